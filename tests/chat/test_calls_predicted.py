"""Turns that call tools, on real servers: what is predicted of each step, and what of it is new and what is wasted.

`calls_walk.py` as a script does long walks.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from calls_walk import CallsWalk, walked
from service_play import shape_of

from engine_fixture import small_model
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.prompt.message import Role
from tiny_models import CALLING, tiny_models

pytestmark = pytest.mark.engine
GIVEN = "{{ given if given is string else given | tojson }}"
ANEW = CALLING.replace(GIVEN, "{{ given | tojson }}")
"""Prints the arguments of a call as JSON of its own."""
TURNS = 3


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    kinds = [f"calling {kind}" for kind in ("dense", "hybrid", "sliding")]
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), kinds)


def steps(walk: CallsWalk) -> list[tuple[TurnFigures, TurnFigures]]:
    """Of each answer that follows a call: the figures of the one that made it, and its own."""
    path = walk.play.service.conversations.load(walk.now).path()
    said = [one for one in path if one.role is Role.ASSISTANT]
    pairs = [(one, other) for one, other in pairwise(said) if one.message.calls]
    return [(one.figures, other.figures) for one, other in pairs if one.figures and other.figures]


@pytest.mark.parametrize("kind", ["dense", "hybrid", "sliding"])
async def test_each_step_is_predicted_and_a_call_that_is_read_again_is_named(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    model, shape = models[f"calling {kind}"], shape_of(kind, batch=512)
    async with walked(model, tmp_path, shape, {"append": 1}, TURNS, seed=1, context=8192) as walk:
        found = steps(walk)
        assert not walk.steps.wrong and not walk.steps.untold, walk.steps.lines
    assert len(found) >= 3
    for call, after in found:
        made = (call.prompt_tokens or 0) + 1, (after.prompt_tokens or 0) - (after.new_tokens or 0)
        assert made[0] < made[1], "the call is no part of what is new"
        assert after.wasted_tokens == made[1] - (after.cached_tokens or 0)
        if kind != "hybrid":  # which goes back further
            assert after.cached_tokens == after.predicted_cached == made[0]
            assert after.predicted_roughly and (after.cause == "retokenised" or (after.wasted_tokens or 0) <= NOISE)


async def test_so_is_a_call_whose_arguments_are_printed_anew(models: dict[str, Path], tmp_path: Path) -> None:
    """The model writes them with line breaks, the template prints them on one line."""
    async with walked(
        models["calling dense"], tmp_path, shape_of("dense"), {"append": 1}, TURNS, seed=1, context=8192, template=ANEW
    ) as walk:
        found = steps(walk)
        assert not walk.steps.wrong and not walk.steps.untold, walk.steps.lines
    assert len(found) >= 3
