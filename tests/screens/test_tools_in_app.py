"""Tools in the app: chosen, asked about, shown in a line, stopped."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from app_kit import Drive, Driven

from kvchat.chat.errors import ChatError
from kvchat.config import Settings
from kvchat.prompt.message import State
from kvchat.text.tools import TOOL_GROUPS
from toyserver import ToyServer, Visit, calls, tokens

READ = '{"path": "a.txt"}'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("The lamp turns once in ten seconds.\nIt was lit in 1874.\n")
    monkeypatch.chdir(folder)
    return folder


async def asked(app: Driven, question: str = "What does it say?") -> None:
    """A question whose answer calls a tool, until the user is asked."""
    await app.write(question)
    await app.press("enter")
    await app.opens("ConfirmScreen")


async def with_files(app: Driven) -> None:
    await app.command("/tools files")
    await app.until(lambda: app.conversation.tools)


@pytest.mark.parametrize("line", ["/tools", "/tools ,"])
async def test_the_tools_are_chosen_in_a_dialog_with_their_price(drive: Drive, server: ToyServer, line: str) -> None:
    server.on_chat(tokens("Hello."))
    async with drive() as app:
        await app.command(line)
        await app.opens("ToolsScreen")
        assert "Use none" in app.prose and re.search(r"\[ \] files +~\d+ tokens read files", app.prose)
        assert all(words in app.prose for words in TOOL_GROUPS.values()), "none is cut"
        await app.press("space")
        await app.until(lambda: "[x] files" in app.prose)
        assert "Use them prefills ~" in app.prose
        await app.press("enter")
        await app.until(lambda: app.conversation.tools == ("read_file",))
        assert app.noticed("Tools: files · ~") and app.noticed("tokens")
        assert "Tools: files · ~" in app.prose, "the empty page says that they are on"
        await app.say("Hello?")
        assert [one["function"]["name"] for one in server.chats[0].json["tools"]] == ["read_file"]


async def test_a_new_conversation_with_tools_says_what_they_cost_and_a_click_ticks(
    drive: Drive, server: ToyServer
) -> None:
    async with drive() as app:
        await app.command("/new files,web,documents,python")
        await app.until(lambda: len(app.conversation.tools) == 5)
        assert app.noticed("Tools: documents, files, web, python · ~") or app.noticed("Tools: ")
        await app.command("/tools")
        await app.opens("ToolsScreen")
        assert app.prose.count("[x]") == 4
        await app.press("down", "space", "escape")
        await app.closes()
        assert len(app.conversation.tools) == 5, "Escape changes nothing"


async def test_a_call_is_asked_for_shown_in_a_line_and_its_result_unfolds(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("In 1874.", prompt=60))
    async with drive() as app:
        await with_files(app)
        await asked(app)
        assert "Let the model read a.txt?" in app.prose
        await app.press("y")
        await app.until(lambda: app.said[-1] == "In 1874.")
        await app.settled()
        assert "read_file: a.txt · 2 lines" in app.prose
        assert "It was lit" not in app.prose
        await app.select(-2)
        await app.press("space")
        await app.until(lambda: "It was lit in 1874." in app.prose)


async def test_a_no_goes_on_without_it_and_is_shown(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("I may not.", prompt=60))
    async with drive() as app:
        await with_files(app)
        await asked(app)
        await app.press("n")
        await app.until(lambda: app.said[-1] == "I may not.")
        await app.settled()
        assert "The user did not allow this call." in app.prose


async def test_escape_stops_the_answer_and_the_next_question_goes_on(drive: Drive, server: ToyServer) -> None:
    server.on_chat(calls(READ), tokens("Hello.", prompt=60))
    async with drive() as app:
        await with_files(app)
        await asked(app)
        await app.press("escape")
        await app.until(lambda: app.path[-1].state is State.CANCELLED)
        await app.settled()
        assert app.text.count("■ Stopped") == 1, app.text
        await app.say("Hello?")
        assert app.said[-1] == "Hello."
        assert [message["role"] for message in server.chats[-1].json["messages"]][-4:] == [
            "assistant",
            "tool",
            "assistant",
            "user",
        ]


async def test_a_call_in_another_conversation_is_asked_for_when_that_is_opened(drive: Drive, server: ToyServer) -> None:
    gate = asyncio.Event()

    async def later(visit: Visit) -> None:
        await gate.wait()
        await calls(READ)(visit)

    server.on_chat(later, tokens("In 1874.", prompt=60))
    async with drive() as app:
        await with_files(app)
        waiting = app.conversation.id
        await app.write("What does it say?")
        await app.press("enter")
        await app.until(lambda: server.chats)
        await app.run("new")
        await app.until(lambda: app.conversation.id != waiting)
        gate.set()
        await app.until(lambda: app.noticed("waits for your word on a call"))
        await app.open(waiting)
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.said[-1] == "In 1874.")


async def test_other_tools_in_a_begun_conversation_have_a_price(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Hello.", prompt=900), tokens("Yes.", prompt=1000))
    async with drive() as app:
        await app.say("Hello?")
        await app.command("/tools files")
        await app.opens("ConfirmScreen")
        assert "Change the tools of this conversation?" in app.prose
        await app.press("n")
        await app.closes()
        assert app.conversation.tools == ()
        await app.command("/tools files")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.conversation.tools == ("read_file",))
        await app.say("And now?")
        assert "tools" in server.chats[-1].json and "tools" not in server.chats[0].json


async def test_a_new_conversation_begins_with_the_tools_that_are_named(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.command("/new files,web")
        await app.until(lambda: app.conversation.tools == ("fetch_url", "read_file", "web_search"))
        await app.command("/tools forget")
        await app.until(lambda: app.noticed("is asked for again"))
        await app.command("/new shell")
        await app.until(lambda: app.noticed("There is no tool shell."))


@pytest.mark.process
async def test_a_program_of_yours_is_asked_for_by_its_command_line(
    drive: Drive, server: ToyServer, tmp_path: Path
) -> None:
    box = str(Path(__file__).parent.parent / "mcp_box.py")
    file = tmp_path / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"box": {"command": sys.executable, "args": [box, "noise"]}}}))
    server.on_chat(calls('{"text": "lamp"}', name="box__say"), tokens("It says lamp.", prompt=60))
    async with drive(settings=Settings(mcp_file=str(file))) as app:
        await app.command("/new box")
        await app.until(lambda: app.noticed("The tools of box are not known yet"))
        await app.command("/tools")
        await app.opens("ToolsScreen")
        assert "[ ] box" in app.prose and "MCP: " in app.prose
        await app.press("end", "up", "space", "enter")
        await app.opens("ConfirmScreen")
        assert "Start this program?" in app.prose and "mcp_box.py noise" in app.prose
        await app.press("n")
        await app.until(lambda: "Start this program?" not in app.prose)
        assert app.conversation.tools == ()
        await app.command("/tools box")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: "box__say" in app.conversation.tools)
        await app.until(
            lambda: app.noticed("3 tools cannot be offered") and app.noticed("Each call is asked for first")
        )
        await asked(app)
        assert "It says of itself: Say it." in app.prose
        assert "Let the model call box__say with lamp? This goes to the MCP server box." in app.prose
        await app.press("c")
        await app.until(lambda: app.said[-1] == "It says lamp.")
        await app.settled()
        assert "box__say: lamp" in app.prose


@pytest.mark.parametrize(
    ("keys", "draft"),
    [(("a", "left", "b"), "ba"), (("a", "b", "backspace", "c"), "ac"), (("b", "home", "a"), "ab")],
    ids=lambda one: "-".join(one) if isinstance(one, tuple) else "",
)
async def test_no_key_waits_while_a_program_lists_its_tools_and_escape_gives_that_up(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], draft: str
) -> None:
    monkeypatch.setattr("kvchat.ui.key_queue.PATIENCE_S", 3600.0)
    async with drive() as app:
        began, go, can_have = asyncio.Event(), asyncio.Event(), app.service.branches.can_have

        async def listed(id: str, names: Sequence[str]) -> bytes:
            began.set()
            await go.wait()
            return await can_have(id, names)

        monkeypatch.setattr(app.service.branches, "can_have", listed)
        await app.command("/tools web")
        await app.until(began.is_set)
        await app.press(*keys)
        await app.until(lambda: app.draft == draft)
        await app.press("escape")
        go.set()
        await app.rest()
        assert app.conversation.tools == () and app.draft == draft
        app.chat.composer.replace_text("")
        await app.command("/tools web")
        await app.until(lambda: app.conversation.tools)


@pytest.mark.parametrize("draft", ["", "And"])
async def test_a_price_after_a_long_listing_opens_over_no_draft(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch, draft: str
) -> None:
    server.on_chat(tokens("Hello.", prompt=900))
    async with drive() as app:
        began, go = asyncio.Event(), asyncio.Event()

        async def listed(id: str, names: Sequence[str]) -> bytes:
            began.set()
            await go.wait()
            return b""

        await app.say("Hello?")
        monkeypatch.setattr(app.service.branches, "can_have", listed)
        monkeypatch.setattr(app.service.mcp, "to_agree", lambda names: {})
        monkeypatch.setattr(app.service.mcp, "behind", lambda names: {"box": None})
        await app.command("/tools web")
        await app.until(began.is_set)
        await app.press(*draft)
        go.set()
        if draft:
            await app.until(lambda: app.chat.composer.has_question)
            await app.press("o", "w", "y")
            await app.until(lambda: app.draft.endswith("owy"))
            assert app.front == "ChatScreen" and app.conversation.tools == ()
            await app.press("tab")
        await app.opens("ConfirmScreen")
        assert "Change the tools of this conversation?" in app.prose and "900" in app.prose


class GivenUp:
    """Work that waits, then fails."""

    def __init__(self) -> None:
        self.began, self.go, self.is_ended = asyncio.Event(), asyncio.Event(), False

    async def __call__(self, *_: object) -> Any:
        self.began.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.is_ended = True
            raise
        raise ChatError.of("It is gone.")


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
@pytest.mark.parametrize("act", ["/tools web", "/model owner/name", "/thinking on"])
async def test_what_was_given_up_is_ended_and_says_nothing_later(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, act: str, key: str
) -> None:
    monkeypatch.setattr("kvchat.ui.key_queue.PATIENCE_S", 0.05)
    async with drive() as app:
        work, service = GivenUp(), app.service
        monkeypatch.setattr(service.branches, "can_have", work)
        monkeypatch.setattr(service.chooser, "to_fetch", work)
        monkeypatch.setattr(service.options, "thinking", work)
        await app.command(act)
        await app.until(work.began.is_set)
        await app.press(key)
        await app.until(lambda: work.is_ended)
        work.go.set()
        await app.until(lambda: all(worker.is_finished for worker in app.app.workers if worker.group == "dialog"))
        await app.rest()
        assert not app.noticed("It is gone.") and app.front == "ChatScreen"


async def test_tools_that_were_waited_for_change_no_other_conversation(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive() as app:
        began, go, can_have = asyncio.Event(), asyncio.Event(), app.service.branches.can_have

        async def listed(id: str, names: Sequence[str]) -> bytes:
            began.set()
            await go.wait()
            return await can_have(id, names)

        monkeypatch.setattr(app.service.branches, "can_have", listed)
        first = app.conversation
        await app.write("First question.")
        await app.press("enter")
        await app.until(lambda: len(app.said) == 2)
        await app.command("/tools web")
        await app.until(began.is_set)
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.id != first.id)
        go.set()
        await app.until(lambda: app.noticed("another conversation is open"))
        assert app.conversation.tools == () and app.service.conversations.get(first.id).tools == ()
