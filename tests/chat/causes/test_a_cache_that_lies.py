"""A server that reports nothing cached of what it held: said beside the answer, and never where that has another
cause.

Twenty lies on each kind of model with KVCHAT_FULL=1.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from causes_kit import WORDS, Chat, Start, served

from kvchat.figures.cause import Cause
from kvchat.prompt.message import Node, NoteKind
from kvchat.text.notes import note_sentence
from standins.liar import STRANGE, Liar, lying

pytestmark = pytest.mark.engine
FULL = bool(os.environ.get("KVCHAT_FULL"))
LIES = 20 if FULL else 5


def is_noted(answer: Node) -> bool:
    return answer.note is not None and answer.note.is_a(NoteKind.REPORTED_COLD)


async def append(chat: Chat, id: str) -> Node:
    await chat.say(id, f"And then? {WORDS}")
    return chat.branch(id)[-1]


async def regenerate(chat: Chat, id: str) -> Node:
    await chat.service.turns.regenerate(id, chat.branch(id)[-1].id)
    await chat.answered(id)
    return chat.branch(id)[-1]


async def edit(chat: Chat, id: str) -> Node:
    await chat.service.turns.edit(id, chat.questions(id)[-1].id, "Something else, then?")
    await chat.answered(id)
    return chat.branch(id)[-1]


async def after_another(chat: Chat, id: str) -> Node:
    """Another conversation has had the slot meanwhile: this one is in the host cache."""
    await chat.turns(await chat.begin("You count the ships. " * 30), 1)
    return await append(chat, id)


async def lied_to(chat: Chat, liar: Liar, id: str, act) -> Node:  # type: ignore[no-untyped-def]
    liar.lies = 1
    answer = await (act(chat, id) if act is not after_another else _lied_to_at_the_return(chat, liar, id))
    assert liar.lies == 0
    return answer


async def _lied_to_at_the_return(chat: Chat, liar: Liar, id: str) -> Node:
    liar.lies = 0
    await chat.turns(await chat.begin("You count the ships. " * 30), 1)
    liar.lies = 1
    return await append(chat, id)


@pytest.mark.parametrize(
    ("kind", "slots", "acts"),
    [
        ("dense", 1, (append, regenerate, edit, after_another)),
        ("dense", 2, (append, regenerate, edit)),
        ("hybrid", 2, (append,)),
        ("sliding", 1, (append,)),
    ],
)
async def test_every_lie_is_told_beside_the_answer_and_nothing_else_is(
    models: dict[str, Path], start: Start, kind: str, slots: int, acts: tuple[object, ...]
) -> None:
    chance = random.Random(f"{kind} {slots}")
    with served(models[kind], slots=slots, n_ctx=8192 * slots) as url:
        async with lying(url) as liar:
            chat = start(liar.base_url)
            id = await chat.begin()
            await chat.turns(id, 2)
            noted = 0
            for _ in range(LIES):
                answer = await lied_to(chat, liar, id, chance.choice(acts))
                assert answer.text == STRANGE
                noted += is_noted(answer)
                for _ in range(
                    chance.randint(kind != "dense", 2)
                ):  # one that cannot go back may have lost a checkpoint
                    assert not is_noted(await append(chat, id))
            assert noted == LIES


async def test_what_is_said_of_it(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as url:
        async with lying(url) as liar:
            chat = start(liar.base_url)
            id = await chat.begin()
            await chat.turns(id, 2)
            liar.lies = 1
            answer = await append(chat, id)
            figures = answer.figures
            assert figures is not None and figures.cause == Cause.REPORTED_COLD
            assert note_sentence(answer.note) == (
                f"The server reports 0 cached tokens, though it held {figures.predicted_cached:,} of this "
                "conversation. Check the answer: it may be another conversation's. If it is, restart the server with "
                "--cache-ram 0 and regenerate it."
            )
            await chat.close()
            chat = start(liar.base_url)
            assert is_noted(chat.service.conversations.load(id).path()[-1]), "it stays with the answer"
            await chat.service.conversations.open(id)
            liar.lies = 1
            assert is_noted(await append(chat, id)), "in the first turn of another kvchat, too"


async def test_a_server_that_never_reuses_anything_is_said_to_have_its_caching_off(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["dense"]) as url:
        async with lying(url) as liar:
            liar.lies = 99
            chat = start(liar.base_url)
            id = await chat.begin()
            answers = [await append(chat, id) for _ in range(6)]
            assert [is_noted(answer) for answer in answers[3:]] == [False] * 3
            assert answers[-1].figures is not None and answers[-1].figures.cause == Cause.CACHING_OFF
