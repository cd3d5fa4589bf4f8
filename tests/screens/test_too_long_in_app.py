"""A message that is longer than the window: asked about before it is sent, put back when the server refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from app_kit import Drive, Driven, messages

from kvchat.prompt.drafts import Draft, decoded, unsent_in
from kvchat.prompt.message import State
from toyserver import Answer, ToyServer, Visit, error, tokens

pytestmark = pytest.mark.slow

LONG = "1234567890" * 380
"""About 3,800 tokens: with what stands there it is too long for 4,096."""
REFUSED = error(
    400,
    "the request exceeds the available context size",
    "exceed_context_size_error",
    n_prompt_tokens=13039,
    n_ctx=4096,
)


@asynccontextmanager
async def talk(
    drive: Drive,
    server: ToyServer,
    size: tuple[int, int] = (100, 26),
    turn: int = 400,
) -> AsyncIterator[Driven]:
    """Three turns of so many tokens each."""
    server.on_chat(*(tokens(f"answer {n}", prompt=turn - 1 + turn * n) for n in range(3)))
    async with drive(size=size) as app:
        await app.begin(*(f"question {n} " + "word " * (turn // 2) for n in range(3)))
        server.on_chat(tokens("Hello", prompt=1300, cached=1200))
        yield app


def held(release: asyncio.Event, answer: Answer) -> Answer:
    async def wait(visit: Visit) -> None:
        await release.wait()
        await answer(visit)

    return wait


def meter(app: Driven) -> str:
    return app.lines[0].rpartition("▏")[2].strip()


async def test_a_prompt_over_the_window_asks_first_and_can_be_edited(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before = meter(app)
        await app.write(LONG + "0")
        await app.press("enter")
        await app.until(lambda: "Too long for the window" in app.text)
        assert "Too long for the window" in app.text
        assert "The prompt has about 5," in app.text and "the window holds 4,096." in app.text
        assert "The conversation has 1,200 of them, this message " in app.text
        assert [line.split()[1] for line in app.lines if line.strip(" │").startswith(("e  ", "c  ", "s  "))]
        await app.press("e")
        await app.closes()
        await app.until(lambda: app.draft == LONG + "0" or "pasted" in app.draft)
        assert (len(app.said), server.posts, meter(app)) == (6, 3, before)
        assert not app.noticed("Too long")


async def test_it_is_sent_all_the_same_where_the_person_wants_that(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        await app.write(LONG)
        await app.press("enter")
        await app.until(lambda: "Too long for the window" in app.text)
        await app.press("s")
        await app.until(lambda: server.posts == 4)
        await app.settled()
        assert app.said[-1] == "Hello" and app.draft == ""


async def test_compacting_is_offered_where_it_makes_room(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server, turn=900) as app:
        await app.write("1234567890" * 200)
        await app.press("enter")
        await app.until(lambda: "Too long for the window" in app.text)
        assert "c  Compact the conversation: 2,700 → at most " in app.text
        await app.press("c")
        await app.until(lambda: "Compact this conversation?" in app.text)
        await app.press("n")
        await app.closes()
        assert app.draft and server.posts == 3


async def test_escape_keeps_the_message(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        await app.write(LONG)
        await app.press("enter")
        await app.until(lambda: "Too long for the window" in app.text)
        await app.press("escape")
        await app.closes()
        await app.until(lambda: bool(app.draft))
        assert server.posts == 3


@pytest.mark.parametrize("size", [(100, 26), (80, 24)])
async def test_a_refused_message_comes_back_and_the_next_one_goes_on_from_the_branch(
    drive: Drive, server: ToyServer, size: tuple[int, int]
) -> None:
    async with talk(drive, server, size) as app:
        before, said = meter(app), app.said
        release = asyncio.Event()
        server.on_chat(held(release, REFUSED), tokens("fine", prompt=1300, cached=1200))
        await app.write("far too long")
        await app.press("enter")
        await app.until(lambda: server.posts == 4 and not app.draft)
        await app.write("and more")
        release.set()
        await app.until(lambda: app.draft == "far too long\n\nand more")
        await app.settled()
        assert app.shown == app.said == said
        assert "Too long: 13k of 4.1k tokens · shorten it or /compact" in app.lines[-2]
        assert meter(app) == before
        tree = app.conversation.tree
        assert [n.text for n in tree.children(app.conversation.record.head)] == ["far too long"]

        app.chat.composer.replace_text("short")
        await app.press("enter")
        await app.until(lambda: app.said[-1:] == ["fine"])
        assert "Too long" not in app.text
        assert messages(server.chats[-1]).startswith(messages(server.chats[2]))
        assert b"far too long" not in server.chats[-1].body
        assert "2/2" in app.text


async def test_a_refusal_that_comes_at_once_puts_the_message_back_too(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        server.on_chat(REFUSED)
        await app.write("far too long")
        await app.press("enter")
        await app.until(lambda: app.draft == "far too long" and not app.service.conversations.streaming())
        await app.until(lambda: "Too long: 13k of 4.1k tokens" in app.text)
        assert unsent_in(app.conversation.draft).draft.text in ("", "far too long")
        await app.until(lambda: app.chat.composer._timer is None)  # it stands there for a while, and is given up
        app.chat.composer.replace_text("")
        await app.until(lambda: "Too long" not in app.text)


async def test_a_refused_edit_is_an_edit_again(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        release, said = asyncio.Event(), app.said
        server.on_chat(held(release, REFUSED))
        await app.select(2)
        app.chat.drafts.begin_edit(app.path[2].id, Draft("edited far too long"))
        await app.rest()
        await app.press("enter")
        await app.until(lambda: server.posts == 4 and app.chat.workspace.editing is None)
        release.set()
        await app.until(lambda: app.chat.workspace.editing is not None)
        assert app.draft == "edited far too long" and app.said == said
        assert app.chat.workspace.editing == app.path[2].id


async def test_a_message_refused_elsewhere_waits_in_its_draft(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        first, release = app.conversation.id, asyncio.Event()
        server.on_chat(held(release, REFUSED))
        await app.write("far too long")
        await app.press("enter")
        await app.until(lambda: server.posts == 4 and not app.draft)
        await app.open((await app.service.new_conversations.create(reuse=False)).id)
        release.set()
        await app.until(lambda: decoded(app.service.conversations.get(first).draft).text == "far too long")  # type: ignore[union-attr]
        assert app.draft == "" and "Too long" not in app.lines[-2]
        await app.open(first)
        assert app.draft == "far too long" and "Too long: 13k of 4.1k tokens" in app.lines[-2]


async def test_a_first_message_that_is_refused_leaves_a_conversation_to_begin(drive: Drive, server: ToyServer) -> None:
    server.on_chat(REFUSED, tokens("fine"))
    async with drive() as app:
        await app.write("far too long")
        await app.press("enter")
        await app.until(lambda: app.draft == "far too long" and not app.service.conversations.streaming())
        await app.until(lambda: "Too long: 13k of 4.1k tokens" in app.text and "window · 1 slot" in app.text)
        assert app.said == [] and "/compact" not in app.text
        app.chat.composer.replace_text("short")
        await app.press("enter")
        await app.until(lambda: app.said == ["short", "fine"])


async def test_another_answer_that_is_refused_leaves_the_one_there_is(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        said = app.said
        server.on_chat(REFUSED)
        await app.select(5)
        await app.press("r")
        await app.until(lambda: server.posts == 4 and not app.service.conversations.streaming())
        await app.until(lambda: "Too long: 13k of 4.1k tokens" in app.text)
        assert app.said == said and app.draft == "" and app.path[-1].state is State.DONE
