"""Fifty ordinary turns have nothing to explain, however the server keeps its slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causes_kit import (
    STEADY,
    WORDS,
    Chat,
    Start,
    another_program_asks,
    served,
    until,
)
from msgspec.structs import replace

from kvchat.chat.cache import warm_up
from kvchat.chat.question import Question
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.prompt.message import State

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("options", "ahead"),
    [
        ({"slots": 2, "n_ctx": 2 * 8192}, False),
        ({"slots": 2, "n_ctx": 2 * 8192}, True),
        ({"slots": 4, "n_ctx": 8192, "kv_unified": True}, False),
    ],
    ids=["two slots", "with reading ahead", "four slots in one"],
)
async def test_fifty_ordinary_turns_have_nothing_to_explain(
    models: dict[str, Path], start: Start, options: dict[str, Any], ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    with served(models["dense"], **options) as url:
        chat = start(url)
        chat.service.warm_up.enabled = ahead
        ids = [await chat.begin("You keep the light. " + WORDS * 10), await chat.begin("You count the ships. " * 30)]
        seen: list[TurnFigures] = []
        for turn in range(15):
            for id in ids:
                seen.append(await chat.say(id, f"Question {turn}: {WORDS * (turn % 4 + 1)}"))
            if turn % 4 == 3:
                await chat.service.turns.regenerate(ids[0], chat.branch(ids[0])[-1].id)
                seen.append(await chat.answered(ids[0]))
            if turn % 5 == 4:
                seen.append(await stopped(chat, ids[1]))
                seen.append(await chat.say(ids[1], "Go on."))
        fork = (await chat.service.branches.fork(ids[0], chat.branch(ids[0])[-1].id)).id
        seen += [await chat.say(fork, f"Question {turn}: {WORDS}") for turn in range(3)]
        await chat.service.turns.edit(fork, chat.questions(fork)[-1].id, "Another question, then?")
        seen.append(await chat.answered(fork))
        seen += [await chat.say(fork, f"Question {turn}: {WORDS}") for turn in range(7)]
        assert len(seen) >= 50
        assert [figures for figures in seen if figures.cause is not None] == []
        assert all((figures.wasted_tokens or 0) <= NOISE for figures in seen if not figures.first_read)


async def stopped(chat: Chat, id: str) -> TurnFigures:
    """An answer that the person stops after some words."""
    await chat.service.options.set_parameters(id, replace(STEADY, max_tokens=2000))
    await chat.service.turns.send(id, Question(f"Stop soon. {WORDS}"))
    await until(lambda: (live := chat.conversation(id).live) is not None and len(live.text) > 40)
    await chat.service.conversations.stop(id)
    assert chat.branch(id)[-1].state is State.CANCELLED
    await chat.service.options.set_parameters(id, STEADY)
    return await chat.answered(id)


async def test_what_a_server_held_before_is_no_alarm(models: dict[str, Path], start: Start) -> None:
    """kvchat is started anew while the server goes on, and another program had used it before the first time."""
    with served(models["dense"], slots=2) as url:
        another_program_asks(url)
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 3)
        await chat.close()
        chat = start(url)
        await chat.service.conversations.open(id)
        await chat.turns(id, 3)
