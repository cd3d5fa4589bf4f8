"""`kvchat memory`: what is remembered, looked at, changed and taken back from the command line."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvchat import paths
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.cli import main
from kvchat.cli.plain_output import cells
from kvchat.config import Settings, changed
from kvchat.index.index import Chunk, Index
from kvchat.memory.entry import ChangeReason, Entry, Fact, Kind, MemoryTrouble, Why
from kvchat.memory.ledger import ExtractionRun
from kvchat.memory.memories import Memories, open_memories
from kvchat.memory.place import memory_folder
from kvchat.memory.sync import SCOPE
from kvchat.paths import Paths
from kvchat.store import Store
from kvchat.store.side_requests import SideRequest
from toyserver import ToyServer
from whole_rows import put_row

ENTRY = {
    "id",
    "kind",
    "text",
    "page",
    "created",
    "status",
    "confidence",
    "conversation",
    "nodes",
    "by",
    "superseded_by",
    "edited",
}
CHANGE = {"act", "before", "after", "at", "session", "why", "seq", "undone"}
HOSTILE = "Likes \x1b]52;c;UFdORUQ=\x07 red \x9b31m and \u202eblue"


@dataclass
class Told:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Call:
    """`kvchat memory ARGUMENTS` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Told:
        self._capsys.readouterr()
        try:
            status = main(["memory", *arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = self._capsys.readouterr()
        return Told(status, out, err)

    def add(self, *text: str) -> str:
        """The id of a new memory."""
        return str(self("add", *text, "--json").json["id"])

    def texts(self, *options: str) -> set[str]:
        return {entry["text"] for entry in self("list", "--json", *options).json}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


@pytest.fixture
def places(own_folders: Path) -> Paths:
    return paths.find()


@contextmanager
def opened(places: Paths, session: str = "app") -> Iterator[tuple[Store, Memories]]:
    """The memory as an app has it that runs beside the commands."""
    store = Store.open(places.data)
    memories = open_memories(places, Settings(), store, session)
    assert memories is not None
    yield store, memories
    memories.close()
    store.close()


async def talked(places: Paths, *questions: str) -> tuple[str, list[str]]:
    """A new conversation with these questions, and the ids of its messages."""
    async with ToyServer() as server:
        service = ChatService(Store.open(places.data), changed(Settings(), "server.base_url", server.url))
        conversation = await service.new_conversations.create(reuse=False)
        for question in questions:
            await service.turns.send(conversation.id, Question(question))
            await service.conversations.wait(conversation.id)
        nodes = [node.id for node in conversation.path()[1:]]
        await service.aclose()
    return conversation.id, nodes


def note(memories: Memories, conversation: str, nodes: list[str], *facts: Fact, session: str = "app") -> list[Entry]:
    """Note what an extraction found."""
    made = memories.store_extraction(
        ExtractionRun(f"{session}-1", conversation, time.time(), "facts", "toy", session), nodes, facts
    )
    assert made is not None
    return made


def fact(text: str, *, nodes: list[str], kind: Kind = Kind.PREFERENCE, review: ChangeReason | None = None) -> Fact:
    return Fact(kind, text, 0.9, tuple(nodes), review=review)


def changed_line(places: Paths, old: str, new: str) -> None:
    """What a person does with an editor."""
    page = next(page for page in (places.data / "memory" / "topics").glob("*.md") if old in page.read_text())
    page.write_text(page.read_text().replace(old, new))


# -- looking ----------------------------------------------------------------------------------------------------------


def test_without_memories_there_is_a_word(call: Call) -> None:
    told = call("list")
    assert (told.status, told.out, told.err) == (0, "Nothing is remembered yet.\n", "")
    assert call("list", "--json").json == []
    assert call("list", "--status", "pending").out == "Nothing is pending approval.\n"
    assert call("log").out == "Nothing has changed yet.\n"
    assert call("queue").out == "Nothing waits.\n"
    told = call("search", "anything")
    assert (told.status, told.out, told.err) == (1, "", "Nothing found.\n")


def test_what_is_added_is_listed_found_and_in_a_file(call: Call, places: Paths) -> None:
    assert call("add", "Prefers", "metric", "units", "--kind", "preference").status == 0
    call("add", "Plays the cello in an orchestra", "--page", "music")
    told = call("list")
    assert "Prefers metric units" in told.out and "preferences" in told.out
    for page in ("music", "music.md", "topics/music.md"):
        assert call.texts("--page", page) == {"Plays the cello in an orchestra"}
    assert call.texts("--kind", "preference") == {"Prefers metric units"}
    assert "cello" in (places.data / "memory" / "topics" / "music.md").read_text()
    found = call("search", "which", "cello", "--json")
    assert found.status == 0 and found.json[0]["text"] == "Plays the cello in an orchestra"
    assert set(found.json[0]) == ENTRY | {"score", "matched", "why"}
    assert "cello" in call("search", "cello").out


def test_the_person_may_write_into_the_profile(call: Call, places: Paths) -> None:
    call("add", "Is called Kim", "--profile")
    assert "- Is called Kim" in (places.data / "memory" / "profile.md").read_text()
    assert call.texts("--page", "profile") == {"Is called Kim"}
    assert call("add", "Both", "--profile", "--page", "music").status == 2


def test_json_has_every_field(call: Call) -> None:
    id = call.add("Lives in Bonn")
    listed = call("list", "--json").json
    assert [set(entry) for entry in listed] == [ENTRY] and listed[0]["id"] == id and listed[0]["status"] == "live"
    assert listed[0]["text"] == "Lives in Bonn" and listed[0]["nodes"] == []
    log = call("log", "--json").json
    assert [set(change) for change in log] == [CHANGE] and set(log[0]["after"]) == ENTRY and log[0]["act"] == "added"


def test_what_is_off_in_the_settings_can_be_looked_at(call: Call, places: Paths) -> None:
    call("add", "Lives in Bonn")
    places.config.parent.mkdir(parents=True, exist_ok=True)
    places.config.write_text("[memory]\nenabled = false\n")
    assert "Lives in Bonn" in call("list").out


def test_an_incognito_run_has_no_memory(call: Call, places: Paths) -> None:
    told = call("add", "A secret", "--incognito")
    assert told.status == 2 and told.out == "" and "incognito" in told.err and told.err.count("\n") == 1
    assert not places.data.exists()


def test_a_line_written_by_hand_is_a_memory(call: Call, places: Paths) -> None:
    call("add", "Lives in Bonn", "--page", "home")
    page = places.data / "memory" / "topics" / "home.md"
    page.write_text(page.read_text() + "- Has two cats\n")
    assert call.texts() == {"Lives in Bonn", "Has two cats"}
    changed_line(places, "Lives in Bonn", "Lives in Köln")
    assert call.texts() == {"Lives in Köln", "Has two cats"}


def test_a_broken_page_is_told_with_its_line_and_the_rest_is_listed(call: Call, places: Paths) -> None:
    call("add", "Lives in Bonn", "--page", "home")
    call("add", "Plays the cello", "--page", "music")
    page = places.data / "memory" / "topics" / "home.md"
    broken = "---\nkvchat: {\n" + page.read_text().partition("\n")[2]
    page.write_text(broken)
    told = call("list")
    assert told.status == 0 and "Plays the cello" in told.out and "Lives in Bonn" in told.out
    assert "home.md:" in told.err and told.err.startswith("kvchat: ") and page.read_text() == broken


@pytest.mark.parametrize("command", [("list",), ("list", "--status", "all"), ("search", "red"), ("log",), ("queue",)])
async def test_hostile_text_is_shown_harmless_and_fits_the_window(
    call: Call, run: Any, places: Paths, command: tuple[str, ...]
) -> None:
    conversation, _ = await talked(places, HOSTILE + " to be said at length" * 10)
    with opened(places) as (store, memories):
        memories.add(HOSTILE + " and more words than fit on one line of a small window" * 2, page="topics/colours.md")
        store.jobs.put("extract", conversation, 0.0, HOSTILE)
        store.jobs.pause("extract", conversation, HOSTILE * 3)
    done = await run("memory", *command, terminal=True)
    lines = done.out.replace("\r\n", "\n").splitlines()
    assert done.status == 0 and any("␛" in line for line in lines)
    assert all(cells(line) <= 80 for line in lines), lines
    assert not set("".join(lines)) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert not set(call(*command, "--json").out) & {"\x1b", "\x07", "\x9b", "\u202e"}


async def test_nothing_heavy_is_loaded_for_a_list(environment: dict[str, str]) -> None:
    heavy = ["textual", "httpx", "rich", "kvchat.ui", "kvchat.chat", "kvchat.backends.http.transport"]
    script = (
        f"import sys; from kvchat.cli import main; main(['memory', 'list'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().splitlines() == ["Nothing is remembered yet.", "[]"]


async def test_no_server_is_asked(call: Call, places: Paths) -> None:
    async with ToyServer() as server:
        places.config.parent.mkdir(parents=True, exist_ok=True)
        places.config.write_text(f'[server]\nbase_url = "{server.url}"\n[embeddings]\nbase_url = "{server.url}"\n')
        id = await asyncio.to_thread(call.add, "Lives in Bonn")
        for command in (
            ("list",),
            ("search", "Bonn"),
            ("log",),
            ("queue",),
            ("rebuild",),
            ("edit", id, "In Köln"),
            ("delete", id),
            ("restore", "1"),
            ("path",),
        ):
            await asyncio.to_thread(call, *command)
        assert not server.visits


# -- changing ---------------------------------------------------------------------------------------------------------


def test_an_entry_is_named_by_a_unique_beginning(call: Call) -> None:
    one, _ = call.add("Lives in Bonn"), call.add("Plays the cello")
    told = call("delete", one, one[0])
    assert told.status == 1 and told.out == "" and told.err.startswith("kvchat: ") and told.err.count("\n") == 1
    assert call("delete", one, "mzzzzzzzz").status == 1
    assert call.texts() == {"Lives in Bonn", "Plays the cello"}, "nothing is done where one of the ids is wrong"
    assert call("edit", one[:6], "Lives in Köln").status == 0
    assert call.texts() == {"Lives in Köln", "Plays the cello"}


def test_a_name_that_is_no_id_is_one_sentence(call: Call) -> None:
    call("add", "Lives in Bonn")
    for arguments in (
        ("delete", ""),
        ("delete", "%"),
        ("edit", "\udcff", "x"),
        ("accept", "../x"),
        ("restore", "999"),
        ("log", "--conversation", "ffffffff"),
        ("restore", "--conversation", "ffffffff"),
    ):
        told = call(*arguments)
        assert told.status == 1 and told.out == "" and told.err.startswith("kvchat: "), arguments
        assert told.err.count("\n") == 1
    assert call.texts() == {"Lives in Bonn"}


def test_what_was_deleted_is_kept_in_the_history_and_comes_back(call: Call, places: Paths) -> None:
    id = call.add("Lives in Bonn")
    assert [entry["id"] for entry in call("delete", id, id, "--json").json] == [id]
    assert call.texts() == set() and call.texts("--status", "deleted") == call.texts("--status", "all")
    assert not any("Bonn" in page.read_text() for page in (places.data / "memory").glob("topics/*.md"))
    deletion = call("log", "-n", "1", "--json").json[0]
    assert deletion["act"] == "deleted"
    assert call("restore", str(deletion["seq"])).status == 0
    assert call.texts() == {"Lives in Bonn"}


def test_an_edit_tells_what_was_before(call: Call) -> None:
    id = call.add("Lives in Bonn")
    assert call("edit", id, "Lives", "in", "Köln", "--json").json["text"] == "Lives in Köln"
    assert "Lives in Köln (was: Lives in Bonn)" in call("log").out


def editor(folder: Path, script: str) -> str:
    """An editor that runs a script of Python on the file."""
    file = folder / "editor.py"
    file.write_text(f"import sys, pathlib\nfile = pathlib.Path(sys.argv[1])\ntext = file.read_text()\n{script}\n")
    return f"{sys.executable} {file}"


def test_one_entry_is_edited_in_the_editor(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = call.add("Lives in Bonn")
    call.add("Plays the cello")
    monkeypatch.setenv("EDITOR", editor(tmp_path, "file.write_text(text.replace('Bonn', 'Köln') + '\\n')"))
    assert call("edit", id).status == 0
    assert call.texts() == {"Lives in Köln", "Plays the cello"}
    for script, word in (("file.write_text('')", "empty"), ("sys.exit(3)", "status 3")):
        monkeypatch.setenv("EDITOR", editor(tmp_path, script))
        told = call("edit", id)
        assert told.status == 1 and word in told.err
    monkeypatch.setenv("EDITOR", editor(tmp_path, ""))
    changes = len(call("log", "--json").json)
    assert call("edit", id).status == 0
    assert len(call("log", "--json").json) == changes, "nothing was changed"
    assert call.texts() == {"Lives in Köln", "Plays the cello"}


def test_a_text_comes_from_a_pipe(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("Spricht ein wenig Dänisch\n".encode())))
    assert call("add", "-").status == 0
    assert call.texts() == {"Spricht ein wenig Dänisch"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" \n")))
    told = call("add", "-")
    assert told.status == 2 and "empty" in told.err


@pytest.mark.parametrize("page", ["../x", "a/b", ".md", "/etc/passwd", "log/2026-11-21", "x\0"])
def test_what_is_no_page_is_refused(call: Call, places: Paths, page: str) -> None:
    told = call("add", "Lives in Bonn", "--page", page)
    assert told.status == 1 and "page" in told.err and told.err.count("\n") == 1 and call.texts() == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", " "),
        ("add", "x", "--kind", "rumour"),
        ("accept",),
        ("accept", "m1", "--all"),
        ("restore",),
        ("restore", "1", "--session"),
        ("restore", "0"),
        ("restore", "--since", "soon"),
        ("restore", "--since", ""),
        ("log", "-n", "1" + "0" * 30),
        ("log", "-n", "0"),
        ("log", "-n", "x"),
        (),
        ("forget",),
    ],
)
def test_wrong_usage_ends_with_2_and_changes_nothing(call: Call, arguments: tuple[str, ...]) -> None:
    call("add", "Lives in Bonn")
    told = call(*arguments)
    assert told.status == 2 and told.out == "" and "kvchat" in told.err
    assert call.texts() == {"Lives in Bonn"}


async def test_only_proposals_are_accepted_and_all_of_them_only_by_that_word(call: Call, places: Paths) -> None:
    conversation, nodes = await talked(places, "I am Kim, I live in Bonn, and I prefer tea to coffee in the morning")
    with opened(places) as (_, memories):
        note(
            memories,
            conversation,
            nodes,
            fact("Lives in Bonn", nodes=nodes, kind=Kind.IDENTITY, review=ChangeReason(Why.IDENTITY)),
            fact("Is called Kim", nodes=nodes, kind=Kind.IDENTITY, review=ChangeReason(Why.IDENTITY)),
            fact("Prefers tea to coffee", nodes=nodes),
        )
    proposed = {entry["text"]: entry["id"] for entry in call("list", "--status", "pending", "--json").json}
    assert set(proposed) == {"Lives in Bonn", "Is called Kim"} and call.texts() == {"Prefers tea to coffee"}
    live = call("list", "--json").json[0]["id"]
    told = call("accept", proposed["Is called Kim"], live)
    assert told.status == 1 and live in told.err
    assert call.texts() == {"Prefers tea to coffee"}
    assert call("accept", proposed["Is called Kim"]).status == 0
    assert call.texts() == {"Prefers tea to coffee", "Is called Kim"}
    assert call("accept", "--all").status == 0
    assert call.texts() == {"Prefers tea to coffee", "Is called Kim", "Lives in Bonn"}
    assert call("accept", "--all", "--json").json == []


def test_a_kvchat_that_runs_sees_it_and_its_changes_are_seen(call: Call, places: Paths) -> None:
    with opened(places) as (_, memories):
        id = call.add("Lives in Bonn")
        memories.sync()
        assert [entry.text for entry in memories.entries()] == ["Lives in Bonn"]
        memories.edit(id, "Lives in Köln")
        assert call.texts() == {"Lives in Köln"}
        assert call("rebuild", "--json").json == {"entries": 1, "equal": True}
        assert [entry.id for entry, _ in memories.search("Köln")] == [id]
        call("delete", id)
        memories.sync()
        assert memories.entries() == [] and memories.search("Köln") == []


# -- taking back and repairing ----------------------------------------------------------------------------------------


async def noted_twice(places: Paths) -> tuple[str, str]:
    """Two conversations, each noted by a run of its own, the second one last."""
    found = []
    for session, words in (
        ("first", ("Prefers tea to coffee", "Plays the cello")),
        ("second", ("Learns Danish on Mondays", "Works with Postgres at night")),
    ):
        conversation, nodes = await talked(places, ". ".join(words))
        with opened(places, session) as (_, memories):
            note(memories, conversation, nodes, *(fact(text, nodes=nodes) for text in words), session=session)
        found.append(conversation)
    return found[0], found[1]


async def test_all_of_the_last_session_is_undone_and_nothing_else(call: Call, places: Paths) -> None:
    await noted_twice(places)
    call("add", "Lives in Bonn")
    told = call("restore", "--session")
    assert (told.status, told.out) == (0, "2 changes undone.\n")
    assert call.texts() == {"Prefers tea to coffee", "Plays the cello", "Lives in Bonn"}
    told = call("restore", "--session")
    assert (told.status, told.out) == (1, "") and "nothing to undo" in told.err
    assert call.texts() == {"Prefers tea to coffee", "Plays the cello", "Lives in Bonn"}


async def test_what_was_edited_since_is_left_and_told(call: Call, places: Paths) -> None:
    await noted_twice(places)
    changed_line(places, "Learns Danish on Mondays", "Learns Danish on Tuesdays")
    told = call("restore", "--session")
    assert told.status == 0 and told.out.startswith("1 change undone.\n") and "was left: you have" in told.out
    again = call("restore", "--session", "--json")
    assert again.status == 1 and again.json["undone"] == 0 and len(again.json["left"]) == 1
    assert call.texts() == {"Prefers tea to coffee", "Plays the cello", "Learns Danish on Tuesdays"}


async def test_what_came_from_a_conversation_is_undone(call: Call, places: Paths) -> None:
    first, _ = await noted_twice(places)
    assert len(call("log", "--conversation", first[:8], "--json").json) == 2
    assert call("restore", "--conversation", "").status == 1 and len(call.texts()) == 4
    undone = call("restore", "--conversation", first[:8], "--json").json
    assert undone == {"undone": 2, "left": []}
    assert call.texts() == {"Learns Danish on Mondays", "Works with Postgres at night"}


async def test_what_a_conversation_left_is_undone_when_it_is_gone_for_good(call: Call, places: Paths) -> None:
    first, second = await noted_twice(places)
    store = Store.open(places.data)
    put_row(store, replace(store.conversation(first), trashed=1.0))
    store.purge_trash(2.0)
    store.close()
    assert call("restore", "--conversation", first[:8]).out == "2 changes undone.\n"
    assert call("restore", "--conversation", second[:3]).status == 1


async def test_what_was_noted_since_a_day_is_undone(call: Call, places: Paths) -> None:
    await noted_twice(places)
    call("add", "Lives in Bonn")
    told = call("restore", "--since", "2999-01-01")
    assert told.status == 1 and len(call.texts()) == 5
    assert call("restore", "--since", "today").out == "4 changes undone.\n"
    assert call.texts() == {"Lives in Bonn"}


def test_before_anything_was_noted_there_is_a_sentence(call: Call) -> None:
    call("add", "Lives in Bonn")
    told = call("restore", "--session")
    assert told.status == 1 and "nothing to undo" in told.err and call.texts() == {"Lives in Bonn"}


def test_the_index_is_made_anew_from_the_files(call: Call, places: Paths) -> None:
    call.add("Lives in Bonn")
    call.add("Plays the cello")
    told = call("rebuild")
    assert told.status == 0 and "2 memories" in told.out and "equal to before" in told.out
    (places.data / "index.db").write_bytes(b"no database" * 100)
    assert call("rebuild", "--json").json["entries"] == 2
    assert "cello" in call("search", "cello").out


def test_an_index_that_was_wrong_is_told_and_right_again(call: Call, places: Paths) -> None:
    id = call.add("Plays the cello")
    index = Index.open(places.data / "index.db")
    ((name, stamp),) = index.docs(SCOPE).items()
    index.replace(name, [Chunk(id, "", "Plays the oboe")], stamp)
    index.close()
    assert call("search", "cello").status == 1
    told = call("rebuild")
    assert told.status == 0 and "1 memory" in told.out and "not what it was before" in told.out
    assert call("search", "cello").status == 0
    assert call("rebuild", "--json").json == {"entries": 1, "equal": True}


async def test_the_queue_has_what_is_pending_and_what_is_parked(call: Call, places: Paths) -> None:
    conversation, _ = await talked(places, "I prefer tea to coffee", "I play the cello")
    with opened(places) as (store, _):
        store.jobs.put("extract", conversation, 0.0)
        store.jobs.pause("extract", conversation, "the model's answers cannot be used")
    told = call("queue", "--json").json
    assert told["pending"] == [{"conversation": conversation, "title": "I prefer tea to coffee", "messages": 4}]
    assert [(job["subject"], job["state"], job["why"]) for job in told["jobs"]] == [
        (conversation, "paused", "the model's answers cannot be used")
    ]
    assert set(told["jobs"][0]) == {"kind", "subject", "title", "due", "attempts", "state", "why", "created"}
    shown = call("queue").out
    assert conversation[:8] in shown and "cannot be used" in shown and "waits for you" in shown


async def test_the_queue_says_what_side_work_cost(call: Call, places: Paths) -> None:
    with opened(places) as (store, _):
        store.side_requests.record(
            SideRequest("extraction", "", time.time(), "http://127.0.0.1:1", "m", "done", 70, 9, 140, 3.1)
        )
    assert call("queue").out == ("Nothing waits.\nSide work in 7 days: 1 request, 61 tokens prefilled, 3.1 s.\n")


async def test_a_long_queue_is_told_page_by_page(call: Call, places: Paths) -> None:
    ids = [(await talked(places, f"question {number}", "and another"))[0] for number in range(4)]
    with opened(places) as (store, _):
        for id in ids[:3]:
            store.jobs.put("extract", id, 0.0)
    told = call("queue", "--json", "-n", "2").json
    assert [row["conversation"] for row in told["pending"]] == ids[:2] and len(told["jobs"]) == 2 and told["more"]
    shown = call("queue", "-n", "2").out
    assert ids[1][:8] in shown and ids[2][:8] not in shown
    assert "More waits: kvchat memory queue -n 20 shows it." in shown
    everything = call("queue", "--json").json
    assert len(everything["pending"]) == 4 and len(everything["jobs"]) == 3 and not everything["more"]
    assert "More waits" not in call("queue", "-n", "4").out
    assert call("queue", "-n", "0").status == 2


# -- the folder -------------------------------------------------------------------------------------------------------


def in_folder(folder: str) -> Settings:
    return changed(Settings(), "memory.folder", folder)


def test_the_folder_does_not_hang_on_where_kvchat_was_started(
    places: Paths, own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert memory_folder(places, Settings()) == places.data / "memory"
    assert memory_folder(places, in_folder("~/notes/kvchat")) == own_folders / "notes" / "kvchat"
    assert memory_folder(places, in_folder("diary")) == places.data / "diary"
    assert memory_folder(places, in_folder(str(tmp_path / "vault"))) == tmp_path / "vault"
    with pytest.raises(MemoryTrouble, match="home folder"):
        memory_folder(places, in_folder("~nosuchuser/notes"))


def test_the_path_is_told_and_nothing_is_made(call: Call, places: Paths) -> None:
    assert call("path").out == f"{places.data / 'memory'}\n"
    assert call("path", "--json").json == {
        "folder": str(places.data / "memory"),
        "exists": False,
        "index": str(places.data / "index.db"),
    }
    assert not places.data.exists()


def test_in_another_programs_vault_nothing_but_the_own_folder_is_touched(
    call: Call, places: Paths, own_folders: Path
) -> None:
    vault = own_folders / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    vault.chmod(0o755)
    (vault / "Diary.md").write_text("- Not for kvchat\n")
    places.config.parent.mkdir(parents=True, exist_ok=True)
    places.config.write_text('[memory]\nfolder = "~/vault/kvchat"\n')
    call.add("Lives in Bonn")
    assert call.texts() == {"Lives in Bonn"}
    assert any("Bonn" in page.read_text() for page in (vault / "kvchat").rglob("*.md"))
    assert {path.name for path in vault.iterdir()} == {".obsidian", "Diary.md", "kvchat"}
    assert vault.stat().st_mode & 0o777 == 0o755
    assert {path.suffix for path in (vault / "kvchat").rglob("*") if path.is_file()} == {".md"}
    assert not (places.data / "memory").exists()


def test_a_vault_that_is_not_there_is_not_begun_anew(call: Call, places: Paths, own_folders: Path) -> None:
    vault = own_folders / "drive" / "vault"
    places.config.parent.mkdir(parents=True, exist_ok=True)
    places.config.write_text('[memory]\nfolder = "~/drive/vault/kvchat"\n')
    for command in (("list",), ("add", "Plays the cello")):
        told = call(*command)
        assert told.status == 1 and str(vault) in told.err and told.err.count("\n") == 1
    assert not (own_folders / "drive").exists()
    vault.mkdir(parents=True)
    call.add("Lives in Bonn")
    shutil.move(own_folders / "drive", own_folders / "away")
    told = call("list")
    assert told.status == 0 and "Lives in Bonn" in told.out and f"{vault}/kvchat is not there" in told.err
    assert call("add", "Plays the cello").status == 1 and not (own_folders / "drive").exists()
    shutil.move(own_folders / "away", own_folders / "drive")
    call.add("Plays the cello")
    assert call.texts() == {"Lives in Bonn", "Plays the cello"}
    assert any("cello" in page.read_text() for page in (vault / "kvchat").rglob("*.md"))
