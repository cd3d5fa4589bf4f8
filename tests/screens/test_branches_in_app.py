"""Branches with keys alone: every act leaves the old branch as it was, and going back to it sends its old bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from app_kit import Drive, Driven, messages

from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow


@asynccontextmanager
async def talk(drive: Drive, server: ToyServer) -> AsyncIterator[Driven]:
    """Three turns on one branch."""
    server.on_chat(*[tokens(f"answer {number}") for number in range(1, 20)])
    async with drive() as app:
        await app.begin("one", "two", "three")
        yield app


THREE = ["one", "answer 1", "two", "answer 2", "three", "answer 3"]


async def exported(app: Driven) -> tuple[str, str]:
    """The branch in use as OpenAI JSONL, and as the node ids, texts and digests that a lossless export holds."""
    lines = "".join(app.service.exports.text([app.conversation.id], "jsonl"))
    path = "\n".join(f"{n.id} {n.digest.hex()} {n.wire.decode()}" for n in app.conversation.path())
    whole = "".join(app.service.exports.text([app.conversation.id], "json"))
    assert all(n.id in whole for n in app.conversation.path())
    return lines, path


async def returned(app: Driven, before: tuple[str, str], old: bytes) -> None:
    """The branch in use exports as before, and the next request begins with its old bytes."""
    await app.until(lambda: app.shown == THREE)
    assert await exported(app) == before
    await app.say("and on")
    assert app.server is not None
    sent = messages(app.server.chats[-1])
    assert sent.startswith(old)
    assert len(sent) > len(old)


async def test_an_edited_question_leaves_the_old_branch_as_it_was(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.select(2)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.type(" and a half")
        await app.press("enter")
        await app.until(lambda: app.said == ["one", "answer 1", "two and a half", "answer 4"])
        await app.settled()
        assert app.shown == app.said
        assert app.draft == ""
        assert "2/2" in app.text
        sent = messages(server.chats[-1])
        assert sent.startswith(messages(server.chats[0]))
        assert b"three" not in sent
        await app.select(2)
        await app.press("left")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


async def test_editing_nothing_asks_nothing(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        await app.select(0)
        await app.press("e", "enter")
        await app.until(lambda: app.noticed("Message unchanged"))
        assert (app.said, server.posts, app.draft) == (THREE, 3, "")


async def test_another_answer_is_asked_with_the_same_bytes(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.select(5)
        await app.press("r")
        await app.until(lambda: app.shown[-1] == "answer 4")
        await app.settled()
        assert server.chats[-1].body == server.chats[-2].body
        assert "2/2" in app.text
        await app.select(5)
        await app.press("left")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


async def test_another_answer_in_the_middle_keeps_what_followed_the_old_one(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.select(1)
        await app.press("r")
        await app.until(lambda: app.shown == ["one", "answer 4"])
        await app.settled()
        await app.focus_transcript()
        await app.press("end", "left")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


async def test_a_fork_goes_its_own_way(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        origin, before, old = app.conversation.id, await exported(app), messages(server.chats[-1])
        await app.select(1)
        await app.press("f")
        await app.until(lambda: app.conversation.id != origin and app.shown == ["one", "answer 1"])
        await app.say("elsewhere")
        sent = messages(server.chats[-1])
        assert sent.startswith(messages(server.chats[0]))
        assert b'"two"' not in sent
        assert server.chats[-1].json["session_id"] != server.chats[0].json["session_id"]
        await app.open(origin)
        await returned(app, before, old)


async def test_a_fork_at_a_question_puts_it_into_the_composer(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        origin = app.conversation.id
        await app.select(2)
        await app.press("f")
        await app.until(lambda: app.conversation.id != origin and app.draft == "two")
        await app.until(lambda: app.shown == ["one", "answer 1"])


async def test_a_deleted_turn_is_not_sent_and_undo_brings_its_branch_back(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.select(3)
        await app.press("d")
        await app.until(lambda: app.shown == ["one", "answer 1", "three", "answer 3"])
        assert "~" in app.lines[0], "how long the branch is was not counted yet"
        await app.say("go on")
        assert "~" not in app.lines[0]
        contents = [message["content"] for message in server.chats[-1].json["messages"]]
        assert not any(content.endswith("two") for content in contents)
        await app.press("ctrl+underscore")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


@pytest.mark.parametrize("key", ["e", "r", "d"])
async def test_undo_takes_an_act_back(drive: Drive, server: ToyServer, key: str) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.select(4)
        await app.press(key)
        if key == "e":
            await app.until(lambda: app.draft == "three")
            await app.type("!")
            await app.press("enter")
        await app.until(lambda: app.shown != THREE)
        await app.settled()
        await app.press("ctrl+underscore")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


async def test_siblings_are_walked_one_by_one_and_the_ends_hold(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        await app.select(5)
        for answer in ("answer 4", "answer 5"):
            await app.press("r")
            await app.until(lambda answer=answer: app.shown[-1] == answer)
            await app.settled()
        for key, answers in (("left", ["answer 4", "answer 3", "answer 3"]), ("right", ["answer 4", "answer 5"])):
            for answer in answers:
                await app.press(key)
                await app.until(lambda answer=answer: app.shown[-1] == answer)
        await app.press("right")
        await app.rest()
        assert app.shown[-1] == "answer 5"
        assert server.posts == 5


async def test_the_tree_goes_to_a_branch_that_was_left(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.select(1)
        await app.press("r")
        await app.until(lambda: app.shown == ["one", "answer 4"])
        await app.settled()
        await app.press("b")
        await app.opens("BranchTreeScreen")
        assert "2 branches" in app.text
        line = next(at for at, line in enumerate(app.lines) if "answer 3" in line)
        cursor = next(at for at, line in enumerate(app.lines) if "▌" in line)
        await app.press(*["down" if line > cursor else "up"] * abs(line - cursor), "enter")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


async def test_another_system_prompt_is_a_branch_and_the_old_one_stays(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        await app.command("/system Be terse.")
        await app.until(lambda: app.conversation.instructions == "Be terse.")
        await app.say("terse now?")
        assert server.chats[-1].json["messages"][0]["content"].startswith("Be terse.")
        await app.press("ctrl+underscore")
        await app.until(lambda: app.conversation.instructions != "Be terse.")
        await returned(app, before, old)


async def test_branches_survive_a_restart(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before, old = await exported(app), messages(server.chats[-1])
        id = app.conversation.id
        await app.select(2)
        await app.press("e")
        await app.type("!")
        await app.press("enter")
        await app.until(lambda: app.said[-2:] == ["two!", "answer 4"])
        await app.settled()
    async with drive(conversation=id) as app:
        assert app.shown == ["one", "answer 1", "two!", "answer 4"]
        await app.select(2)
        await app.press("left")
        await app.until(lambda: app.shown == THREE)
        await returned(app, before, old)


async def test_no_act_on_a_branch_while_an_answer_runs(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        await app.streaming()
        said = app.said
        for key in ("r", "d", "left"):
            await app.select(2)
            await app.press(key)
            await app.rest()
        assert app.noticed("An answer is still running here.")
        assert app.said == said
        await app.press("escape", "escape")
        await app.until(lambda: not app.service.conversations.streaming())
