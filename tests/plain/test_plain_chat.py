"""Plain mode: what is typed, and what is said."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from plain_kit import plain

from book_samples import epub
from kvchat.backends.dialect import HostClass
from kvchat.chat.events import DeletedElsewhere
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.commands.actions import ACTIONS
from kvchat.config import ServerSettings, Settings
from kvchat.plain.commands import ELSEWHERE, OWN
from kvchat.plain.run import First
from toyserver import ToyServer, calls, error, event, reply, sse, tokens

GLYPHS = re.compile("[\u2500-\u259f\u2800-\u28ff\x00-\x08\x0b-\x1f\u25a0-\u25ff]")
"""Boxes, blocks, braille, circles and controls."""


WITHOUT_TOOLS = {
    "build_info": "b1-toy",
    "total_slots": 1,
    "default_generation_settings": {"n_ctx": 4096},
    "chat_template_caps": {"supports_tools": False, "supports_tool_calls": False},
}
"""What a server tells of a model that has no place for tools."""


async def test_an_answer_and_a_line_of_figures() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Twenty", "-six.", prompt=1240, cached=1204), tokens("Yes.", prompt=1300, cached=1241))
        async with plain(server.url) as run:
            said = await run.type("How many?")
            assert re.fullmatch(
                r"Answer:\nTwenty-six\.\nCached 1,204 of 1,240 prompt tokens; [<\d. ]+ s to the first "
                r"token\.\n",
                said,
            )
            said = await run.type("Sure?")
            assert said.startswith("Answer:\nYes.\nCached 1,241 of 1,300 prompt tokens;")
        first, second = (visit.json["messages"] for visit in server.chats)
    assert second[: len(first)] == first
    assert second[-1]["content"].endswith("Sure?")


async def test_wasted_tokens_are_told_with_their_cause_in_one_clause() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("One.", prompt=900, cached=0), tokens("Two.", prompt=930, cached=0))
        async with plain(server.url) as run:
            await run.type("One?")
            said = await run.type("Two?")
    line = said.splitlines()[-1]
    assert re.fullmatch(
        r"Cached 0 of 930 prompt tokens; [<\d. ]+ s to the first token; \d+ tokens wasted: "
        r"[^.]+\.",
        line,
    )


async def test_states_are_words_of_their_own_line() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Late.", hang_after=0, prompt=1000, cached=400))
        async with plain(server.url, state_seconds=0.02) as run:
            asking = asyncio.create_task(run.type("Slow?"))
            await run.until(lambda: "Prefilling: 100 percent of 1,000 tokens.\n" in run.said)
            run.mode.stop()
            said = await asking
        assert "Stopping.\n" in said
        server.on_chat(tokens("Done.", hang_after=0, prompt=40, progress=False))
        async with plain(server.url, state_seconds=0.02) as run:
            asking = asyncio.create_task(run.type("Slow?"))
            await run.until(lambda: re.search(r"\nWaiting for the server, [\d.<]+ s\.\n", run.said))
            run.mode.stop()
            await asking


async def test_a_call_that_is_written_for_long_is_said() -> None:
    made = {"index": 0, "id": "c", "function": {"name": "read_file", "arguments": '{"path": "'}}
    part = event({"choices": [{"index": 0, "delta": {"tool_calls": [made]}, "finish_reason": None}]})
    async with ToyServer() as server:
        server.on_chat(sse([part], end=False, then="hang"))
        async with plain(server.url, state_seconds=0.02) as run:
            asking = asyncio.create_task(run.type("Slow?"))
            await run.until(lambda: "Writing a call of read_file.\n" in run.said)
            run.mode.stop()
            await asking
    assert run.said.count("Writing a call of read_file.") == 1


async def test_ctrl_c_stops_an_answer_and_keeps_what_came() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("The sea", " is", " wide", hang_after=2))
        async with plain(server.url) as run:
            asking = asyncio.create_task(run.type("What is the sea?"))
            await run.until(lambda: "The sea is" in run.said)
            run.mode.stop()
            said = await asking
            assert said.startswith("Answer:\nThe sea is\n") or "The sea is\nStopping." in said
            server.on_chat(tokens("Wide."))
            said = await run.type("/read")
            assert said == "1. You:\nWhat is the sea?\n2. Answer:\nThe sea is\n"


async def test_ctrl_c_before_the_answer_begins_stops_it() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Half", " of it", hang_after=1))
        async with plain(server.url) as run:
            await run.service.servers.connect()
            run.mode.stop()  # behind Enter, when the message is not handed over yet
            assert "Stopping.\n" in await run.type("go on")
            assert not await run.mode.taken_press()
            assert (await run.type("/read")).startswith("1. You:\ngo on\n")


async def test_ctrl_c_ends_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ToyServer() as server, plain(server.url) as run:
        began, ended = asyncio.Event(), asyncio.Event()

        async def listed(id: str, names: Sequence[str]) -> bytes:
            began.set()
            try:
                return await asyncio.Future[bytes]()
            finally:
                ended.set()

        monkeypatch.setattr(run.service.branches, "can_have", listed)
        asking = asyncio.create_task(run.type("/tools web"))
        await began.wait()
        run.mode.stop()
        await asking
        await ended.wait()
        assert not run.mode.chat.conversation.tools


async def test_ctrl_c_with_nothing_to_stop_counts_at_the_prompt() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Hello?")
        run.mode.stop()
        assert await run.mode.taken_press() and not await run.mode.taken_press()
        run.mode.stop()
        await run.type("/list")
        assert await run.mode.taken_press()


async def test_a_cut_answer_goes_on_where_it_ended() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("The sea", finish="length"), tokens(" is wide."))
        async with plain(server.url) as run:
            said = await run.type("What is the sea?")
            assert "Cut at max tokens." in said
            said = await run.type("/continue")
            assert said.startswith("Continued:\n is wide.\n")
            assert "The sea is wide." in await run.type("/read 2")


async def test_conversations_are_listed_and_opened_by_number(tmp_path: Path) -> None:
    async with ToyServer() as server:
        async with plain(server.url, folder=tmp_path) as run:
            await run.type("What is a lighthouse?")
            said = await run.type("/new")
            assert said == "New conversation.\n"
            await run.type("And a ship?")
            said = await run.type("/list")
            one, two, how = said.splitlines()
            assert re.match(r"1\. And a ship\?, 1 turn, today \d\d:\d\d, \w+, open now", one)
            assert two.startswith("2. What is a lighthouse?, 1 turn") and how == "/open NUMBER opens one."
            said = await run.type("/open 2")
            assert said.splitlines()[1:] == ["1. You:", "What is a lighthouse?", "2. Answer:", "Hello"]
            said = await run.type("/search ship")
            assert said.startswith("1. And a ship?, you: And a ship?\n")
            assert "And a ship?" in await run.type("/open 1")
            assert await run.type("/open 9") == "The last list has no number 9.\n"
        async with plain(server.url, folder=tmp_path, first=First(continues=True)) as run:
            assert "1. You:\nAnd a ship?\n2. Answer:\nHello\n" in run.said


async def test_a_fork_is_undone_until_it_goes_on() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Lamps?")
        origin = run.mode.chat.id
        await run.type("/fork")
        fork = run.mode.chat.id
        assert fork != origin
        assert "the fork is in the trash" in await run.type("/undo") and run.mode.chat.id == origin
        await run.type("/fork")
        await run.type("Ships?")
        assert "Nothing to undo" in await run.type("/undo") and run.mode.chat.id not in (origin, fork)


async def test_undo_takes_back_what_it_does_in_the_app() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Ships?")
        ships = run.mode.chat.id
        await run.type("/new")
        await run.type("Lamps?")
        lamps = run.mode.chat.id
        for act in ("/tag work", "/favourite", "/archive"):
            await run.type(act)
            assert run.mode.chat.conversation.record.tags
            assert await run.type("/undo") == "The tags are as they were.\n"
            assert not run.mode.chat.conversation.record.tags
        await run.type("/delete")
        assert run.mode.chat.id == ships  # the next of the list, as in the app
        assert "Lamps?" in await run.type("/undo") and run.mode.chat.id == lamps
        await run.type("/regenerate")
        await run.type("/tag work")
        await run.type("And ships?")  # the branch went on: that is undone first
        await run.type("/undo")
        assert run.mode.chat.conversation.record.tags == ("work",)


@pytest.mark.parametrize("act", ["/favourite", "/tag {}", "/archive", "/fork"])
@pytest.mark.parametrize("way", ["here", "elsewhere"])
async def test_a_deletion_is_undone_after_what_was_done_since(way: str, act: str) -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Ships?")
        await run.type("/new")
        await run.type("Lamps?")
        gone = run.mode.chat.conversation
        if way == "here":
            await run.type("/delete")
        else:
            await run.service.conversations.delete(gone.id)
            run.service.events.tell(DeletedElsewhere(gone.id))
        for one in (act.format("work"), act.format("home"), "/undo", "/undo"):
            assert "Nothing to undo" not in await run.type(one) and gone.record.trashed is not None
        assert "Lamps?" in await run.type("/undo") and gone.record.trashed is None
        assert "Nothing to undo" in await run.type("/undo")


async def test_acts_are_undone_from_the_last_to_the_first() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Lamps?")
        origin = run.mode.chat.id
        seen = list[tuple[str, ...]]()
        for act in ("/favourite", "/favourite", "/favourite", "/tag work", "/fork", "/tag home"):
            seen.append(run.mode.chat.conversation.record.tags)
            await run.type(act)
        for tags in reversed(seen):
            await run.type("/undo")
            assert run.mode.chat.conversation.record.tags == tags
        assert run.mode.chat.id == origin and "Nothing to undo" in await run.type("/undo")


async def test_undo_brings_back_what_another_window_deleted() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Lamps?")
        id = run.mode.chat.id
        await run.service.conversations.delete(id)
        run.service.events.tell(DeletedElsewhere(id))
        assert "Another window deleted this conversation. /undo brings it back.\n" in await run.type("/tree")
        assert "Lamps?" in await run.type("/undo")
        assert run.mode.chat.conversation.record.trashed is None


async def test_an_edit_makes_a_branch_and_the_branches_can_be_gone_to() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("What is a boat?")
        said = await run.type("/edit", "What is a ship?")
        assert run.asked == ["Edit: What is a boat?"] and "Answer:\nHello\n" in said
        await run.type("/regenerate")
        said = await run.type("/tree")
        assert len(said.splitlines()) == 4 and "What is a ship?, you are here" in said
        number = next(line[0] for line in said.splitlines() if line.endswith("What is a boat?"))
        assert "1. You:\nWhat is a boat?" in await run.type(f"/open {number}")
        assert "What is a ship?" in await run.type("/undo")


async def test_a_price_is_asked_as_yes_or_no() -> None:
    async with ToyServer(context_size=16384) as server:
        server.on_chat(tokens("One.", prompt=9000, cached=0))
        async with plain(server.url) as run:
            await run.type("A long text.")
            said = await run.type("/system Be brief.", "n")
            assert re.search(
                r"Prefills ~?[\d,]+ tokens .*\nThe old version is kept\.\n"
                r"Change the system prompt\? y or n: n\nNot done\.\n",
                said,
            )
            said = await run.type("/system Be brief.", "y")
            assert said.endswith("System prompt changed, /undo undoes it.\n")
            assert "\nBe brief.\n" in await run.type("/system")


async def test_every_slash_command_is_done_or_says_why_not() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        done = run.mode.commands.done_here
        for action in (*ACTIONS, *OWN):
            if action.slash:
                assert (action.id in done) != (action.id in ELSEWHERE), action.id
        for id in ELSEWHERE:
            slash = next(action.slash for action in ACTIONS if action.id == id)
            said = await run.type(f"/{slash}")
            assert said.endswith(".\n") and said.count("\n") == 1, id
        assert "no command /nothing" in await run.type("/nothing")
        assert server.posts == 0


async def test_the_help_names_every_command_that_is_done_here() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        said = await run.type("/help")
        for action in (*ACTIONS, *OWN):
            if action.slash:
                assert (f"  /{action.slash}" in said) == (action.id in run.mode.commands.done_here), action.slash


async def test_what_was_pasted_is_no_command_and_mentions_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    (work / "key.txt").write_text("secret")
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("/exit\n@./key.txt", pasted=True)
        assert not run.mode.is_over
        assert "secret" not in str(server.chats[0].json) and "/exit" in str(server.chats[0].json)
        await run.type("What is in @./key.txt")
        assert "secret" in str(server.chats[1].json)
        await run.type("/exit")
        assert run.mode.is_over


async def test_a_file_from_outside_goes_only_with_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "far.txt").write_text("far away")
    async with ToyServer() as server, plain(server.url) as run:
        said = await run.type("Look at @../far.txt", None)
        assert "is outside the working folder" in said and "Not done." in said
        assert server.posts == 0 and run.mode.chat.unsent == "Look at @../far.txt"
        await run.type("Look at @../far.txt", "y")
        assert "far away" in str(server.chats[0].json)


async def test_an_e_book_is_mentioned_or_attached_as_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    (work / "keeper.epub").write_bytes(epub("<h1>Dusk</h1><p>Whale oil smokes.</p>"))
    (work / "watch.epub").write_bytes(epub("<p>Each watch has four hours.</p>"))
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("What smokes in @keeper.epub")
        await run.type("/attach watch.epub")
        await run.type("How long is it?")
        asked = [visit.json["messages"][-1]["content"] for visit in server.chats]
        assert "Whale oil smokes." in asked[0] and "four hours" in asked[1]
        assert "There is no" in await run.type("And in @dawn.epub"), "a mention by its form"


async def test_a_file_is_attached_to_the_next_message_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "lamp.txt").write_text("Lamps are lit at dusk.")
    async with ToyServer() as server, plain(server.url) as run:
        assert await run.type(f"/attach {tmp_path / 'lamp.txt'}") == (
            "Attached: lamp.txt. It goes with the next message.\n"
        )
        assert await run.type("/attach") == "Attached: lamp.txt. /attach none leaves it out.\n"
        assert await run.type("/attach none") == "Left out: lamp.txt.\n"
        await run.type("When?")
        await run.type(f"/attach {tmp_path / 'lamp.txt'}")
        await run.type("And now?")
        await run.type("And then?")
        asked = [visit.json["messages"][-1]["content"] for visit in server.chats]
        assert ["dusk" in text for text in asked] == [False, True, False]
        assert "Sent with it: " in await run.type("/read 3")


async def test_what_could_not_be_answered_says_why_in_a_sentence() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        server.on_chat(error(500, "out of memory"))
        said = await run.type("Hello?")
        assert "out of memory" in said and "Traceback" not in said
        assert "Cannot read" in await run.type("/attach nowhere.txt") or "nowhere.txt" in run.said
        assert "No conversation" in await run.type("/open abcdef")


async def test_what_changes_no_tag_is_nothing_to_undo() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("What is a lamp?")
        await run.type("/tag work")
        for nothing in ("/tag work", "/tag -home", "/tag Work -home"):
            assert await run.type(nothing) == "Tags: #work.\n"
        assert await run.type("/undo") == "The tags are as they were.\n"
        assert not run.mode.chat.conversation.record.tags
        assert await run.type("/tag -home") == "No tags.\n"
        assert "Nothing to undo" in await run.type("/undo")


async def test_names_tags_trash_export_memory(tmp_path: Path) -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("What is a lamp?")
        assert await run.type("/rename Lamps") == "Title: Lamps.\n"
        assert await run.type("/tag work -home") == "Tags: #work, /undo undoes it.\n"
        assert await run.type("/favourite") == "Favourite: first in the list.\n"
        assert "Lamps, 1 turn" in await run.type("/list") and "favourite, open now, tagged work" in run.said
        run.service.saver.why_not = lambda id: None
        assert await run.type("/keep") == "Kept, saved while the server is idle.\n"
        assert "favourite, kept, open now" in await run.type("/list")
        await run.type("/archive")
        assert await run.type("/list") == "All conversations are archived. /search finds them.\n"
        await run.type("/archive")
        assert await run.type("/keep") == await run.type("/keep off") == "No longer kept.\n"
        target = tmp_path / "lamps.md"
        assert await run.type(f"/export {target}") == f"Exported to {target}\n"
        assert await run.type(f"/export {target}", "n") and "What is a lamp?" in target.read_text()
        assert "Moved to trash, /undo brings it back.\n" in await run.type("/delete")
        assert "Lamps." in await run.type("/undo")
        assert (await run.type("/code")).startswith("There is no code block 1.")
        assert "1. You: What is a lamp?" in await run.type("/find LAMP")
        assert "No side work in 7 days.\n" in await run.type("/memory")


async def test_a_code_block_has_the_number_that_it_has_in_the_app() -> None:
    """What stands in HTML and what is indented is one too; it was left out, and those behind it had other numbers."""
    answer = "<details>\n<summary>The code</summary>\n```py\na\n```\n</details>\n\n    b\n\n```\nc\n```\n"
    async with ToyServer() as server:
        server.on_chat(tokens(answer))
        async with plain(server.url) as run:
            await run.type("Write some code.")
            assert [await run.type(f"/code {number}") for number in "123"] == ["a\n", "b\n", "c\n"]
            assert await run.type("/code 4") == "There is no code block 4.\n"


async def test_memory_is_looked_at_and_changed_as_on_the_command_line(own_folders: Path) -> None:
    """On the open store, with words typed as they come: an apostrophe is none of a shell's."""
    async with ToyServer() as server, plain(server.url, folder=own_folders / "data") as run:
        assert await run.type("/memory list") == "Nothing is remembered yet.\n"
        added = await run.type("/memory add I don't take sugar")
        assert re.fullmatch(r"m\w+, today [\d:]+, facts, I don't take sugar\n", added)
        assert await run.type("/memory list --kind fact") == await run.type("/memory search sugar") == added
        assert await run.type("/memory search salt") == "Nothing found.\n"
        assert (await run.type("/memory delete nothing")).startswith("There is no memory nothing.")
        assert (await run.type("/memory lsit")).startswith("/memory: unknown here: 'lsit'")
        assert (await run.type("/memory list --status nowhere")).startswith("/memory list: ")
        assert (await run.type("/memory list -h")).startswith("usage: /memory list ")
        assert (await run.type("/memory")).startswith("Memory is on in this conversation.\n")


async def test_a_sentence_is_remembered_and_forgotten_by_its_words(own_folders: Path) -> None:
    async with ToyServer() as server, plain(server.url, folder=own_folders / "data") as run:
        assert await run.type("/remember") == "What? /remember I prefer metric units.\n"
        said = await run.type("/remember I take my tea with milk.")
        assert said == "Remembered: “I take my tea with milk.”, /memory list shows it.\n"
        await run.type("/remember I take my tea at four.")
        several = await run.type("/forget tea")
        assert "with milk" in several and "at four" in several and several.splitlines()[-1].startswith("Which one?")
        assert (await run.type("/forget milk")).startswith("Forgotten: “I take my tea with milk.”, /memory restore ")
        assert await run.type("/forget milk") == "No memory has these words.\n"
        assert await run.type("/memory off") == "Memory is off in this conversation.\n"


@pytest.mark.parametrize("words", ["I", "in", "at the", "--help"])
async def test_the_memories_to_forget_are_those_that_have_the_words(own_folders: Path, words: str) -> None:
    """Words too that a search leaves out."""
    async with ToyServer() as server, plain(server.url, folder=own_folders / "data") as run:
        both = [f"I sleep in Paris at the {words} lake.", f"I live in Rome at the {words} river."]
        for sentence in both:
            await run.type(f"/remember {sentence}")
        await run.type("/remember Tea is best.")
        said = await run.type(f"/forget {words}")
    *rows, last = said.splitlines()
    assert last.startswith("Which one?")
    assert [row.rpartition("facts, ")[2] for row in rows] == both[::-1]


async def test_of_many_memories_to_forget_it_is_said_how_many(own_folders: Path) -> None:
    async with ToyServer() as server, plain(server.url, folder=own_folders / "data") as run:
        for number in range(21):
            await run.service.memory.remember(f"I saw {number} ships.")
        said = (await run.type("/forget I")).splitlines()
    assert len(said) == 22 and said[20] == "21 memories have these words. Give more of them."


async def test_what_is_remembered_and_forgotten_is_told_as_a_whole(own_folders: Path) -> None:
    text = "I prefer the metric system for all of my measurements at home."
    async with ToyServer() as server, plain(server.url, folder=own_folders / "data") as run:
        assert f"“{text}”" in await run.type(f"/remember {text}")
        assert f"“{text}”" in await run.type("/forget metric")


@pytest.mark.parametrize("file", ["chat.md", "my chat.md", "deep/chat.jsonl"])
async def test_no_period_stands_behind_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    async with ToyServer() as server, plain(server.url) as run:
        await run.type("Lamps?")
        assert await run.type(f"/export {file}") == f"Exported to {file}\n"


async def test_a_title_is_said_without_the_sign_of_a_fork() -> None:
    async with ToyServer() as server, plain(server.url) as run:
        assert await run.type("/rename ↳ Lamps") == "Title: Lamps, a fork.\n"
        assert await run.type("/rename Lamps and/or ships") == "Title: Lamps and/or ships.\n"


async def test_a_first_message_is_said_as_it_will_begin(own_folders: Path) -> None:
    (own_folders / "config" / "personas").mkdir(parents=True)
    (own_folders / "config" / "personas" / "critic.toml").write_text('first_message = "Read {this}"\n')
    async with ToyServer() as server, plain(server.url) as run:
        assert (await run.type("/persona critic")).endswith("Your first message will begin with: Read {this}\n")


@pytest.mark.parametrize("host", [HostClass.LAN, HostClass.CLOUD])
async def test_a_yes_to_another_machine_is_said_to_be_kept(host: HostClass) -> None:
    async with ToyServer() as server, plain(server.url) as run:
        await run.service.servers.connect()
        backend: Any = run.service.servers.link().connector._backend
        backend._info = replace(backend.info, host_class=host)
        said = await run.type("Hello?", "n")
        assert said.endswith("Send, and do not ask again? y or n: n\nNot done.\n") and server.posts == 0
        assert "Answer:" in await run.type("Hello?", "y")
        assert "Answer:" in await run.type("And now?")


async def test_a_conversation_goes_on_with_another_server() -> None:
    async with ToyServer() as first, ToyServer() as second:
        settings = Settings(profiles={"other": ServerSettings(base_url=second.url)})
        async with plain(first.url, settings=settings) as run:
            await run.type("Lamps?")
            said = await run.type("/model")
            assert said.endswith("Servers of the settings: other.\n/model NAME changes to one.\n")
            said = await run.type("/model other")
            assert said.endswith("This conversation goes on with other.\n")
            await run.type("And ships?")
            assert (len(first.chats), len(second.chats)) == (1, 1)
            assert "no model nowhere" in await run.type("/model nowhere")


async def test_a_trunk_is_made_and_begins_a_conversation(own_folders: Path) -> None:
    (own_folders / "a.md").write_text("The lamp is lit at dusk.")
    async with ToyServer() as server, plain(server.url, folder=own_folders / "data") as run:
        assert await run.type("/trunk") == "There are no trunks yet. /trunk add NAME PATH makes one of files.\n"
        assert await run.type("/trunk add lamps") == "To make a trunk: /trunk add NAME PATH\n"
        said = await run.type(f"/trunk add lamps {own_folders}/a.md")
        assert said == ("lamps: 1 file. It is prefilled while nothing else uses the server.\nNew conversation.\n")
        assert await run.type("/trunk") == "lamps\n/trunk NAME begins a conversation with one.\n"
        assert await run.type("/trunk lamps") == "New conversation.\n"
        await run.type("When is it lit?")
        assert "It begins with trunk lamps (a.md).\n" in await run.type("/cache")
        (own_folders / "a.md").write_text("The lamp is out.")
        begun = run.mode.chat.id
        await run.type(f"/trunk add lamps {own_folders}/a.md")
        (own_folders / "a.md").write_text("The lamp is gone.")
        assert (await run.type("/trunk lamps")).endswith("To make it again: kvchat trunk add lamps PATH\n")
        await run.mode.chat.open(begun)
        assert "It begins with 1 file (a.md).\n" in await run.type("/cache")


@pytest.mark.parametrize("name", ["lamps", "add"])
async def test_a_trunk_is_begun_with_by_its_name(own_folders: Path, name: str) -> None:
    (own_folders / "a.md").write_text("The lamp is lit at dusk.")
    async with ToyServer() as server:
        async with plain(server.url, folder=own_folders / "data") as run:
            await run.type(f"/trunk add {name} {own_folders}/a.md")
        async with plain(server.url, folder=own_folders / "data", first=First(trunk=name)) as run:
            assert "The lamp is lit" in run.mode.chat.conversation.path()[0].message.wire().decode()


async def test_nothing_that_is_said_has_a_glyph_or_a_control() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Plain\x1b[31m red", prompt=600), tokens("B", prompt=700, cached=0))
        async with plain(server.url, state_seconds=0.01) as run:
            for text in (
                "One?",
                "Two?",
                "/list",
                "/tree",
                "/cache",
                "/model",
                "/help",
                "/memory",
                "/queue",
                "/persona",
                "/system",
                "/read",
                "/source",
            ):
                await run.type(text)
            for action in ACTIONS:
                if action.id in ELSEWHERE:
                    await run.type(f"/{action.slash}")
    assert not GLYPHS.findall(run.said)


async def test_a_call_of_a_tool_is_said_and_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("The lamp turns once in ten seconds.\n")
    monkeypatch.chdir(tmp_path)
    async with ToyServer() as server:
        read = '{"path": "a.txt"}'
        server.on_chat(
            calls(read, text="Let me look."), tokens("Ten.", prompt=60), calls(read), tokens("No.", prompt=90)
        )
        async with plain(server.url) as run:
            for words in ("files", ",", ""):  # no name is as no words: nothing is changed
                said = await run.type(f"/tools {words}")
                assert said.startswith("Tools: files, ~")
            said = await run.type("/tools files")
            assert re.fullmatch(r"Tools: files, ~\d+ tokens(, .*)?\. Each call is asked for first\.\n", said)
            said = await run.type("What does it say?", "y")
            assert "Let me look.\nCalls read_file: a.txt.\n" in said
            assert "Let the model read a.txt? y this once, c in this conversation, a always, n no: y\n" in said
            assert "Answer:\nTen.\nSource 1: a.txt.\n" in said
            await run.type("Again?", None)
            said = await run.type("/read 7")
            assert said == "7. Called read_file: a.txt:\nThe user did not allow this call.\n"
            assert (await run.type("/tools none")) == "The model has no tools in this conversation.\n"


async def test_tools_are_listed_for_a_model_without_any_and_not_changed() -> None:
    async with ToyServer() as server:
        server.on("/props", reply(200, WITHOUT_TOOLS))
        async with plain(server.url) as run:
            await run.type("What is a ship?")
            assert "/tools NAMES changes them: files, documents, web, python, none." in await run.type("/tools")
            assert "its chat template has no place for them" in await run.type("/tools files")


async def test_calls_beyond_those_that_are_carried_out_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("The lamp turns once in ten seconds.\n")
    monkeypatch.chdir(tmp_path)
    async with ToyServer() as server:
        server.on_chat(calls(*['{"path": "a.txt"}'] * 40), tokens("Ten.", prompt=600))
        async with plain(server.url) as run:
            await run.type("/tools files")
            said = await run.type("What does it say?", "c")
    note = "The model made 40 calls at once; only the first 32 are carried out.\n"
    assert said.count(f"{note}Calls read_file: a.txt.\n") == 1
    assert said.count("Calls read_file: a.txt.\n") == 32


@pytest.mark.parametrize("line", ["look", "c at", "yes they do", "1", "always"])
async def test_a_line_that_is_none_of_the_answers_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "a.txt").write_text("The lamp turns once in ten seconds.\n")
    monkeypatch.chdir(tmp_path)
    async with ToyServer() as server:
        server.on_chat(calls('{"path": "a.txt"}'), tokens("Ten.", prompt=60))
        async with plain(server.url) as run:
            await run.type("/tools files")
            said = await run.type("What does it say?", line, "y")
            assert said.count("Let the model read a.txt?") == 2 and "Ten." in said


@pytest.mark.process
async def test_a_program_of_yours_is_asked_for_before_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    box = str(Path(__file__).parent.parent / "mcp_box.py")
    file.write_text(json.dumps({"mcpServers": {"box": {"command": sys.executable, "args": [box]}}}))
    async with ToyServer() as server:
        server.on_chat(calls('{"text": "lamp"}', name="box__say"), tokens("Lamp.", prompt=60))
        async with plain(server.url, settings=Settings(mcp_file=str(file))) as run:
            assert "files, documents, web, python, box, none." in await run.type("/tools")
            assert (await run.type("/tools box", "n")).endswith("Not done.\n")
            said = await run.type("/tools box", "y")
            assert "mcp_box.py\nIt is the MCP server box. It runs as you do" in said
            assert "Asking box for tools.\n" in said
            assert re.search(r"Tools: box, ~\d+ tokens(, .*)?\. Each call is asked for first\.\n", said)
            await run.type("/tools forget")
            assert "Start it, now and later? y or n: y\n" in await run.type("/tools box", "y")
            said = await run.type("What now?", "y")
            assert "Let the model call box__say with lamp? This goes to the MCP server box. y this once" in said
            assert "It says of itself: Say it." in said
            assert "Answer:\nLamp.\n" in said


@pytest.mark.parametrize("counted", [True, False])
async def test_what_the_server_counted_too_long_is_not_sent(monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
    async def count(*_: object) -> int | None:
        return 9000 if counted else None

    monkeypatch.setattr(PromptSizes, "_counted", count)
    async with ToyServer() as server:
        server.on_chat(tokens("Ten"))
        async with plain(server.url) as run:
            said = await run.type("1234567890" * 900, *([] if counted else ["y"]))
    assert ("Send it all the same?" in said) is not counted
    assert server.posts == (0 if counted else 1)
    assert "has 9,000 tokens" in said if counted else "Ten" in said
