"""Behind a router no server's cache is taken for another's."""

from __future__ import annotations

from pathlib import Path

import pytest
from affinity_kit import Cluster, alternate, apart, service_on
from passthrough import SessionRouter

from kvchat.chat.cache import warm_up
from kvchat.config import Settings, changed

SLACK = 8
WARM = "/completion"


async def test_reading_ahead_reaches_the_replica_of_the_conversation_and_nothing_is_explained_falsely(
    here: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 1_000.0)  # on a slow machine it prefilled once more by itself
    async with service_on(here.settings(), tmp_path / "data") as service:
        service.warm_up.enabled = True
        marks = ("Ada", "Bob")
        ids = await apart(service, here, marks)
        for replica in here.replicas:
            replica.forget()
        for _ in range(4):
            for id in ids:
                await service.conversations.open(id)
                await service.warm_up.warm(id)
                await alternate(service, [id], 1)
        info = service.servers.info
        assert info is not None and info.replicas == (info.kind == "llama.cpp")
        assert service.servers.link().cache is None
        for number, (mark, id) in enumerate(zip(marks, ids, strict=True)):
            turns = here.turns(mark)
            assert len({turn.replica for turn in turns}) == 1
            assert all(turn.evaluated <= turn.new + SLACK for turn in turns[1:])
            ahead = [passed for passed in here.replicas[turns[0].replica].passed if passed.path == WARM]
            assert len(ahead) in ((3, 4) if info.replicas else (0,)), (
                number
            )  # 4: before it was known that there are several
            assert all(passed.timings and passed.timings["prompt_n"] <= SLACK for passed in ahead)
            path = service.conversations.load(id).path()
            assert not [node.figures.cause for node in path if node.figures and node.figures.cause]


async def test_one_server_behind_a_router_is_followed(servers: list[str], tmp_path: Path) -> None:
    async with SessionRouter(servers[0]) as router:
        settings = changed(Settings(), "server.base_url", router.url)
        async with service_on(settings, tmp_path / "data") as service:
            assert service.servers.info is not None and not service.servers.info.replicas
            backend = await service.servers.link().connector.ready()
            assert await service.tracker.cache_of(backend) is not None


async def test_a_replica_that_comes_later_ends_the_following(servers: list[str], tmp_path: Path) -> None:
    async with SessionRouter(servers[0]) as router:
        settings = changed(Settings(), "server.base_url", router.url)
        async with service_on(settings, tmp_path / "data") as service:
            backend = await service.servers.link().connector.ready()
            assert await service.tracker.cache_of(backend) is not None
            router.add(servers[1])
            for _ in range(16):  # a look meets the old one as often as the new one
                if await service.tracker.cache_of(backend) is None:
                    break
            assert backend.info.replicas and service.servers.link().cache is None
