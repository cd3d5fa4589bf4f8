"""A server that nobody has used is probed with tiny prompts, and its cache is known from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Ahead, Play, playing, serving, shape_of, until

from engine_fixture import small_model
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.chat.cache import warm_up
from kvchat.chat.cache.cache_probe import prompts, unused
from tiny_models import tiny_models

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "sliding"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    monkeypatch.setattr(warm_up, "on_battery", lambda: False)


async def rested(play: Play) -> None:
    await play.service.warm_up.ended()


def probed(play: Play) -> list[Ahead]:
    """The requests of the probe: prompts of a few different tokens."""
    return [made for made in play.ahead if len(set(made.prompt)) <= 2]


def believed(play: Play) -> tuple[bool, bool, Rewind]:
    shape = play.cache.simulated.best.shape
    return shape.unified, bool(shape.ram_bytes), shape.rewind


CASES = [
    ("dense", shape_of("dense", slots=4, unified=True, batch=512)),
    ("dense", shape_of("dense", slots=2, batch=512)),
    ("dense", shape_of("dense", slots=4, batch=512)),
    ("dense", shape_of("dense", batch=512)),
    ("dense", shape_of("dense", slots=2, ram=0, batch=512)),
    ("hybrid", shape_of("hybrid", slots=2, batch=512)),
    ("hybrid", shape_of("hybrid", ram=0, batch=512)),
    ("sliding", shape_of("sliding", slots=4, unified=True, batch=512)),
]


@pytest.mark.parametrize(("kind", "shape"), CASES)
async def test_the_right_shape_is_believed_after_it(
    models: dict[str, Path], tmp_path: Path, kind: str, shape: Shape
) -> None:
    async with serving(models[kind], shape) as url, playing(url, tmp_path / "data", ahead=True) as play:
        conversation = await play.service.new_conversations.create("Be brief.")
        await rested(play)
        assert believed(play) == (shape.unified, bool(shape.ram_bytes), shape.rewind)
        assert len(play.ahead) <= 6 + 1 and play.service.store.warmups(0.0, "").tokens <= 150
        assert play.service.store.warmups(0.0, "").tokens == sum(made.evaluated for made in play.ahead[:6])
        for question in ("One?", "Two?"):
            figures = await play.say(conversation.id, question)
            assert figures.predicted_cached == figures.cached_tokens


async def test_it_is_made_once_and_kept_for_the_next_time(models: dict[str, Path], tmp_path: Path) -> None:
    shape = shape_of("dense", slots=2, batch=512)
    for run in range(2):
        async with serving(models["dense"], shape) as url, playing(url, tmp_path / "data", ahead=True) as play:
            # the server listens on another port, but is the same build, model and number of slots
            await play.service.new_conversations.create("Be brief.", reuse=False)
            await rested(play)
            assert believed(play) == (False, True, Rewind.ANYWHERE)
            assert len(probed(play)) == (0 if run else 6)


async def test_a_server_that_was_used_or_is_known_is_left_alone(models: dict[str, Path], tmp_path: Path) -> None:
    shape = shape_of("dense", slots=2, batch=512)
    async with serving(models["dense"], shape) as url:
        async with playing(url, tmp_path / "known", shape, ahead=True) as play:
            conversation = await play.service.new_conversations.create("Be brief.")
            await rested(play)
            assert probed(play) == []
            await play.say(conversation.id, "One?")
        async with playing(url, tmp_path / "used", ahead=True) as play:
            await play.service.new_conversations.create("Be brief.")
            await rested(play)
            assert probed(play) == []


async def test_nobody_is_there_to_read_ahead_for(models: dict[str, Path], tmp_path: Path) -> None:
    async with serving(models["dense"], shape_of("dense", batch=512)) as url, playing(url, tmp_path / "data") as play:
        await play.service.new_conversations.create("Be brief.")
        await rested(play)
        assert play.ahead == [] and await unused(play.cache)


async def test_a_question_cancels_it_and_is_predicted_right(models: dict[str, Path], tmp_path: Path) -> None:
    """Whatever was sent until then."""
    for rounds in range(8):
        shape = shape_of("dense", slots=2, batch=512)
        async with (
            serving(models["dense"], shape) as url,
            playing(url, tmp_path / f"data {rounds}", ahead=True) as play,
        ):
            conversation = await play.service.new_conversations.create("Be brief.")
            await until(lambda: len(play.ahead) >= min(rounds, 5))  # noqa: B023
            figures = await play.say(conversation.id, "One?")
            assert len(play.ahead) <= 6
            assert figures.predicted_cached == figures.cached_tokens == 0


def test_it_is_small() -> None:
    for slots in (1, 2, 4, 64):
        sent = list(prompts([5, 6, 7, 8], slots))
        assert len(sent) == 6 and sum(len(prompt) for prompt, _ in sent) <= 150
        assert all(0 <= slot < slots for _, slot in sent)
