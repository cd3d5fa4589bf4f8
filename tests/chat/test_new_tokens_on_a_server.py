"""What a turn added, on a real server: not what the conversation's tree had before, on whatever branch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Play, playing, serving, shape_of

from engine_fixture import small_model
from kvchat.chat.question import Question
from kvchat.figures.accounting import NOISE
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
LINE = "The lamp turned over the sea while the keeper wrote the log of the night. "


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@pytest.fixture
async def single(dense: Path, tmp_path: Path) -> AsyncIterator[Play]:
    """One slot, nothing parked: whatever comes between is prefilled again."""
    shape = shape_of("dense", ram=0)
    async with serving(dense, shape) as url, playing(url, tmp_path / "data", shape) as play:
        yield play


async def conversation(play: Play, *questions: str, system: str = "You keep the log.") -> str:
    id = (await play.service.new_conversations.create(system, reuse=False)).id
    for question in questions:
        await play.say(id, question)
    return id


async def other_one(play: Play) -> None:
    await conversation(play, LINE * 4, system="Something else.")


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_another_answer_prefills_again_is_wasted(
    single: Play, dense: Path, tmp_path: Path, restarted: bool
) -> None:
    id = await conversation(single, LINE * 10)
    await other_one(single)
    url, play = single.service.settings.server.base_url, single
    if restarted:
        await single.service.aclose()
        shape = shape_of("dense", ram=0)
        async with playing(url, tmp_path / "data", shape) as play:
            await play.service.conversations.open(id)
            await regenerated(play, id)
        return
    await regenerated(play, id)


async def regenerated(play: Play, id: str) -> None:
    await play.service.turns.regenerate(id, play.service.conversations.get(id).path()[-1].id)  # type: ignore[union-attr]
    figures = await play.answered(id)
    assert figures.new_tokens == 0
    assert figures.evaluated_tokens is not None and figures.evaluated_tokens > 100
    assert figures.wasted_tokens == figures.evaluated_tokens
    assert figures.cause is not None


async def test_back_on_an_old_branch_all_that_is_prefilled_again_is_wasted(single: Play) -> None:
    id = await conversation(single, "Who?", LINE * 10)
    conversation_ = single.service.conversations.get(id)
    assert conversation_ is not None
    old = conversation_.path()
    await single.service.turns.edit(id, old[1].id, LINE * 8)
    await single.answered(id)
    await single.service.branches.select(id, old[-1].id)
    figures = await single.say(id, "And then?")
    assert figures.new_tokens is not None and figures.new_tokens < 20
    assert figures.wasted_tokens is not None and figures.wasted_tokens > 100
    assert figures.cause is not None


async def test_an_edit_that_begins_alike_adds_only_what_is_other(single: Play) -> None:
    id = await conversation(single, LINE * 10 + "Why?")
    question = single.questions(id)[-1]
    await single.service.turns.edit(id, question, LINE * 10 + "Since when?")
    figures = await single.answered(id)
    assert figures.new_tokens is not None and figures.new_tokens < 20
    assert figures.wasted_tokens is not None and figures.wasted_tokens <= NOISE


async def test_what_stands_behind_a_deleted_turn_is_new(single: Play) -> None:
    id = await conversation(single, "Who?", "When?", LINE * 10)
    await single.service.branches.delete_turn(id, single.questions(id)[1])
    figures = await single.say(id, "And then?")
    assert figures.new_tokens is not None and figures.new_tokens > 100
    assert figures.wasted_tokens is not None and figures.wasted_tokens <= NOISE


async def test_a_question_whose_prompt_was_stopped_is_new_at_the_next_try(single: Play) -> None:
    id = await conversation(single, "Who?")
    await single.service.turns.send(id, Question(LINE * 300))
    await single.service.turns.stop(id)
    await single.service.conversations.wait(id)
    await single.cache.settled()
    await single.service.turns.regenerate(id, single.service.conversations.get(id).path()[-1].id)  # type: ignore[union-attr]
    figures = await single.answered(id)
    assert figures.wasted_tokens is not None and figures.wasted_tokens <= NOISE
