"""What a turn added and what was read again, counted on the server's own tokens, where its figures alone mislead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from causes_kit import THOUGHTS, WORDS, Start, served, told, until

from kvchat.chat.cache import warm_up
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters

pytestmark = pytest.mark.engine

FORGETS = {"preserve_reasoning": False}
SPELT = Parameters(
    temperature=1.5,
    seed=3,
    max_tokens=400,
    extra={"grammar": f"root ::= {json.dumps('The lamp turned over the sea while the keeper wrote the log. ' * 3)}"},
)
"""Answers with the text of the grammar, but in any tokens that spell it."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    monkeypatch.setattr(warm_up, "on_battery", lambda: False)


@pytest.mark.parametrize("anew", [False, True], ids=["one run", "a run for each turn"])
async def test_where_reasoning_is_dropped_a_turn_adds_its_question_and_wastes_nothing(
    models: dict[str, Path], start: Start, anew: bool
) -> None:
    with served(models["forgetful"]) as url:
        chat = start(url, parameters=THOUGHTS)
        chat.service.warm_up.enabled = True
        id = await chat.begin()
        await chat.service.options.set_template_options(id, FORGETS)
        seen = []
        for _ in range(4):
            await chat.looked_at(id)
            seen.append(await chat.say(id, WORDS * 4))
            await chat.rested()
            if anew:
                await chat.close()
                chat = start(url, parameters=THOUGHTS)
                chat.service.warm_up.enabled = True
        first, *others = seen
        assert first.first_read and [figures.cause for figures in seen] == [None] * 4
        assert len({figures.new_tokens for figures in others}) == 1, "the same question each time"
        assert all(60 < (figures.new_tokens or 0) < 100 for figures in others), others
        assert all(figures.wasted_tokens == 0 for figures in others), others


async def test_where_reasoning_is_dropped_only_the_rest_of_the_answer_is_wasted(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["forgetful"]) as url:
        chat = start(url, parameters=THOUGHTS)
        id = await chat.begin()
        await chat.service.options.set_template_options(id, FORGETS)
        before = await chat.say(id, WORDS * 4)
        figures = await chat.say(id, WORDS * 4)
        told(figures, Cause.REASONING, "forgets thoughts")
        thoughts = (before.predicted_tokens or 0) // 2
        assert NOISE < (figures.wasted_tokens or 0) < (before.predicted_tokens or 0) - thoughts // 2


async def test_an_edit_where_reasoning_is_dropped_adds_the_question_and_wastes_nothing(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["forgetful"]) as url:
        chat = start(url, parameters=THOUGHTS)
        chat.service.warm_up.enabled = True
        id = await chat.begin()
        await chat.service.options.set_template_options(id, FORGETS)
        await chat.looked_at(id)
        for _ in range(4):
            await chat.say(id, WORDS * 4)
            await chat.rested()
        await chat.service.turns.edit(id, chat.questions(id)[2].id, f"Another question, then? {WORDS * 4}")
        figures = await chat.answered(id)
        assert figures.cause is None and (figures.wasted_tokens or 0) <= NOISE, figures
        await chat.rested()
        after = await chat.say(id, "And then?")
        assert after.cause is None and after.wasted_tokens == 0, after


async def test_an_answer_that_reads_back_as_other_tokens_is_settled_while_idle(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["dense"]) as url:
        chat = start(url, parameters=SPELT)
        chat.service.warm_up.enabled = True
        id = await chat.begin()
        await chat.looked_at(id)
        ahead = chat.service.store.warmups(0.0, id).requests
        for turn in range(3):
            figures = await chat.say(id)
            assert chat.branch(id)[-1].state is State.DONE
            await chat.rested()
            await until(lambda least=ahead + turn + 1: chat.service.store.warmups(0.0, id).requests >= least)
            assert figures.first_read or (figures.cause is None and figures.wasted_tokens == 0), figures


async def test_an_answer_that_reads_back_as_other_tokens_says_so_where_it_was_not_settled(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["dense"]) as url:
        chat = start(url, parameters=SPELT)
        id = await chat.begin()
        await chat.say(id)
        told(await chat.say(id), Cause.RETOKENISED, "reads back as other tokens")
        report = await chat.service.cache_reports.report(id)
        assert report.exact_predictions == report.predictions, "what cannot be known was not predicted"


async def test_turns_that_stand_on_a_new_branch_are_new_there(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 4)
        before = chat.branch(id)[-1].figures
        await chat.service.branches.delete_turn(id, chat.questions(id)[1].id)
        figures = await chat.say(id)
        assert before is not None and before.new_tokens is not None and figures.new_tokens is not None
        assert figures.new_tokens > 2 * before.new_tokens, "the two later turns, and the question"
        assert figures.cause is None and (figures.wasted_tokens or 0) <= NOISE, figures
        assert (await chat.say(id)).cause is None
