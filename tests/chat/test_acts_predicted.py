"""Random acts on real servers: what the service predicts is what the server reuses, also of models that cannot rewind.

`acts_walk.py` as a script does long walks.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from acts_walk import ACTS, BESIDE, MORE, walked
from service_play import shape_of

from engine_fixture import small_model
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
FULL = bool(os.environ.get("KVCHAT_FULL"))
COUNT = 30
EVERY = {**ACTS, **MORE, **BESIDE}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "sliding"))


@pytest.mark.parametrize("kind", ["dense", "hybrid", "sliding"])
@pytest.mark.parametrize("slots", [1, 2])
async def test_what_is_predicted_is_what_is_reused(
    models: dict[str, Path], tmp_path: Path, kind: str, slots: int
) -> None:
    shape = shape_of(kind, slots=slots, batch=256)
    async with walked(models[kind], tmp_path, shape, ACTS, COUNT, seed=slots, known=True, context=8192) as walk:
        assert walk.tally.right == COUNT, walk.tally.lines
        memory = [held.checkpoints for held in walk.play.cache.simulated.best.slots if held is not None]
        assert any(memory) or kind == "dense", "this model saves checkpoints"


async def test_every_act_is_predicted(models: dict[str, Path], tmp_path: Path) -> None:
    shape = shape_of("dense", slots=2, batch=512)
    async with walked(models["dense"], tmp_path, shape, EVERY, COUNT, seed=2, known=False, context=8192) as walk:
        assert not walk.tally.wrong and walk.tally.right >= COUNT - 3, walk.tally.lines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sliding", {"n_ubatch": 128}),
        ("hybrid", {"n_ctx_checkpoints": 3}),
        ("sliding", {"swa_full": True}),
        ("dense", {"slot_prompt_similarity": 0.5}),
    ],
)
async def test_options_that_a_server_does_not_name_are_learnt(
    models: dict[str, Path], tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    shape = replace(shape_of(kind, slots=2, batch=2048), micro_batch=512)
    async with walked(
        models[kind], tmp_path, shape, ACTS, 2 * COUNT, seed=1, known=False, context=8192, options=options
    ) as walk:
        # two that no guess explains, and one while what explains them is told apart
        assert walk.tally.wrong.total() <= 3, walk.tally.lines


@pytest.mark.parametrize("kind", ["hybrid", "sliding"])
async def test_a_state_from_a_file_goes_back_as_far_as_it_did_when_it_was_saved(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    """Also in the next kvchat."""
    shape = shape_of(kind, ram=0, batch=512)
    async with walked(models[kind], tmp_path, shape, {}, 0, seed=1, known=False, context=8192) as walk:
        for _ in range(3):
            await (walk.append if walk.now else walk.new)(walk.play)
            await walk.play.answered(kept := walk.now)
        await walk.play.service.kept.keep(kept)
        await walk.play.service.kept.settled()
        await walk.new(walk.play)
        await walk.play.answered(walk.now)
        walk.now = kept
        await walk.begin()
        assert (await walk.play.say(kept, "And now?")).cached_tokens, "it came back"
        await walk.play.service.turns.edit(kept, walk.play.questions(kept)[1], "Something else, then?")
        figures = await walk.play.answered(kept)
        assert figures.predicted_cached == figures.cached_tokens != 0, figures


@pytest.mark.parametrize("kind", ["hybrid", "sliding"])
async def test_what_another_kvchat_left_goes_back_as_far_as_that_one_noted(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    async with walked(
        models[kind], tmp_path, shape_of(kind, batch=512), {}, 0, seed=1, known=False, context=8192
    ) as walk:
        walk.systems, walk.said = walk.systems[1:], lambda: "Why?"  # type: ignore[method-assign]
        await walk.new(walk.play)
        await walk.play.answered(walk.now)
        await walk.ask(walk.play)  # it takes the slot, and this one goes on in it
        await walk.play.answered(walk.now)
        await walk.play.service.turns.edit(walk.now, walk.play.questions(walk.now)[0], "Something else, then?")
        figures = await walk.play.answered(walk.now)
        assert figures.predicted_cached == figures.cached_tokens != 0, figures
    assert not walk.tally.wrong, walk.tally.lines


@pytest.mark.skipif(not FULL, reason="half an hour: run with KVCHAT_FULL=1")
@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize(("kind", "least"), [("dense", 0.99), ("hybrid", 0.97), ("sliding", 0.95)])
async def test_long_walks_with_every_act(
    models: dict[str, Path], tmp_path: Path, kind: str, least: float, slots: int
) -> None:
    shape = shape_of(kind, slots=slots, unified=slots == 4, batch=512)
    context = 4096 * slots
    async with walked(models[kind], tmp_path, shape, EVERY, 200, seed=slots, known=False, context=context) as walk:
        tally = walk.tally
    assert tally.right >= least * (tally.right + tally.wrong.total()), (str(tally), tally.lines)
