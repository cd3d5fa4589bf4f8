"""Two real servers, and each router in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from affinity_kit import KEY_VARIABLE, Cluster, cluster, two_servers
from routers import ROUTERS, Router

from engine_fixture import small_model
from tiny_models import tiny_models


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with two_servers(tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]) as urls:
        yield urls


@pytest.fixture(params=ROUTERS, ids=lambda router: router.name)
async def here(
    request: pytest.FixtureRequest, servers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    """Each router; the test is skipped where that is not installed."""
    router: Router = request.param
    if router.missing:
        pytest.skip(router.missing)
    monkeypatch.setenv(KEY_VARIABLE, router.key)
    async with cluster(router, servers, tmp_path / "router") as found:
        yield found
