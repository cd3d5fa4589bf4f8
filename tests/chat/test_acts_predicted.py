"""Random acts on real servers: what the service predicts is what the server reuses, also of models that cannot rewind.

`acts_walk.py` as a script does long walks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from acts_walk import acts
from service_play import playing, serving, shape_of

from engine_fixture import small_model
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
ACTS = 30


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "sliding"))


@pytest.mark.parametrize("kind", ["dense", "hybrid", "sliding"])
@pytest.mark.parametrize("slots", [1, 2])
async def test_what_is_predicted_is_what_is_reused(
    models: dict[str, Path], tmp_path: Path, kind: str, slots: int
) -> None:
    shape = shape_of(kind, slots=slots, batch=256)
    async with serving(models[kind], shape) as url, playing(url, tmp_path / "data", shape) as play:
        exact, wrong = await acts(play, ACTS, seed=slots)
        assert exact == ACTS, wrong
        if kind != "dense":
            memory = [held.checkpoints for held in play.cache.simulator.best.slots if held is not None]
            assert any(memory), "this model saves checkpoints"
