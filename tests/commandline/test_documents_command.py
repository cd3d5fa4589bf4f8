"""`kvchat documents`: folders indexed, looked at, searched, read again and forgotten from the command line."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from book_samples import epub
from kvchat import paths
from kvchat.cli import main
from kvchat.cli.documents import FIRST, progress_words, snippet, until
from kvchat.cli.plain_output import cells
from kvchat.commands.command import UsageError, instant
from kvchat.documents.collection import IndexingProgress, Passage
from kvchat.documents.indexing import index_run
from kvchat.documents.indexing.index_lock import alone
from kvchat.paths import Paths
from toyserver import ToyServer

COLLECTION = {"name", "root", "created", "indexed"}
REPORT = {
    "files",
    "added",
    "changed",
    "unchanged",
    "removed",
    "chunks",
    "bytes",
    "seconds",
    "skipped",
    "trouble",
    "stopped",
}
PASSAGE = {"title", "collection", "path", "where", "head", "snippet", "text", "score", "matched", "ref"}
HOSTILE = "bad\x1b]52;c;UFdORUQ=\x07 \x9b31m\u202e name"


@dataclass
class Told:
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Call:
    """`kvchat documents ARGUMENTS` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Told:
        self._capsys.readouterr()
        try:
            status = main(["documents", *map(str, arguments)])
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = self._capsys.readouterr()
        return Told(status, out, err)

    def names(self) -> list[str]:
        return [one["name"] for one in self("list", "--json").json]

    def found(self, *arguments: object) -> list[str]:
        """The paths of the passages that a search finds."""
        return [f"{one['collection']}/{one['path']}" for one in self("search", *arguments, "--json").json]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


@pytest.fixture
def places(own_folders: Path) -> Paths:
    return paths.find()


@pytest.fixture
def handbook(tmp_path: Path) -> Path:
    """A folder with documents of several kinds, and one that cannot be read."""
    root = tmp_path / "Hand book"
    (root / "guide").mkdir(parents=True)
    (root / "guide" / "setup.md").write_text(
        "# Setup\n\nBefore you begin.\n\n## Linux\n\nTurn the brass key twice, then pull the lever.\n"
    )
    (root / "guide" / "care.txt").write_text("Oil the hinges of the lighthouse door in autumn.\n")
    (root / "lamp.py").write_text("def trim(wick):\n    return wick - 1\n")
    (root / "broken.md").write_bytes(b"\x00\x01\x02\x03" * 500)
    return root


# -- adding -----------------------------------------------------------------------------------------------------------


def test_without_documents_there_is_a_word(call: Call) -> None:
    for command in ("list", "status", "rebuild"):
        told = call(command)
        assert (told.status, told.err) == (0, "") and "no documents yet" in told.out and "add FOLDER" in told.out
        assert call(command, "--json").json == []
    told = call("search", "anything")
    assert (told.status, told.out) == (1, "") and "no documents yet" in told.err
    assert call("search", "anything", "--json").json == []


def test_a_folder_is_indexed_at_once_and_what_was_skipped_is_said(call: Call, handbook: Path) -> None:
    told = call("add", handbook)
    lines = told.out.splitlines()
    assert told.status == 0 and told.err == "", "no progress where nobody watches"
    assert lines[0] == f"hand-book: {handbook}"
    assert lines[1] == "  3 added, 0 changed, 0 unchanged, 0 removed"
    assert lines[2].startswith("  3 files, ") and " chunks, " in lines[2] and ", in " in lines[2]
    assert lines[3] == "  1 skipped:" and lines[4].startswith("    broken.md ")
    assert call("search", "brass", "key").out.startswith("hand-book/guide/setup.md:")


def test_an_e_book_is_found_by_what_its_pages_say(call: Call, handbook: Path) -> None:
    (handbook / "keeper.epub").write_bytes(
        epub(f"<h1>Noon</h1><p>{'No whales. ' * 60}</p>", f"<h1>Dusk</h1><p>{'Cold oil smokes. ' * 60}</p>")
    )
    assert "  4 added" in call("add", handbook).out
    found = call("search", "cold", "oil", "--json").json[0]
    assert (found["path"], found["where"], found["head"]) == (
        "keeper.epub",
        "¶2",
        "The Lamp Keeper > Dusk",
    )


def test_several_paths_are_indexed_in_one_go(call: Call, handbook: Path, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("The barometer fell at noon.\n")
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "reef.md").write_text("# Reef\n\nKeep the buoy to port.\n")
    told = call("add", handbook, tmp_path / "log.txt", tmp_path / "charts", tmp_path / "charts")
    assert told.status == 0 and call.names() == ["charts", "hand-book", "log"]
    assert [line for line in told.out.splitlines() if not line.startswith(" ")] == [
        f"hand-book: {handbook}",
        f"log: {tmp_path / 'log.txt'}",
        f"charts: {tmp_path / 'charts'}",
    ]
    assert call.found("barometer") == ["log/log.txt"] and call.found("buoy") == ["charts/reef.md"]
    again = call("add", handbook, tmp_path / "charts", "--json").json
    assert [(one["name"], one["unchanged"]) for one in again] == [("hand-book", 3), ("charts", 1)]


def test_of_several_paths_one_that_fails_takes_nothing_from_the_others(call: Call, handbook: Path) -> None:
    told = call("add", handbook / "guide", handbook / "gone", handbook / "lamp.py")
    assert told.status == 1 and "gone" in told.err
    assert call.found("wick") == ["lamp/lamp.py"] and call.found("brass") == ["guide/setup.md"]
    told = call("add", handbook, handbook / "guide", "--name", "both")
    assert told.status == 2 and "--name is for one PATH" in told.err and "both" not in call.names()


def test_json_has_every_field(call: Call, handbook: Path) -> None:
    added = call("add", handbook, "--name", "hb", "--json").json
    assert set(added) == COLLECTION | REPORT
    assert (added["name"], added["root"], added["added"], added["files"]) == ("hb", str(handbook), 3, 3)
    assert added["trouble"] == "" and added["stopped"] is False and added["indexed"] > added["created"] > 0
    assert [set(one) for one in added["skipped"]] == [{"path", "reason"}] and added["chunks"] >= 3
    (listed,) = call("list", "--json").json
    assert set(listed) == COLLECTION | {"files", "chunks", "bytes", "skipped", "trouble"} and listed["skipped"] == 1
    (status,) = call("status", "--json").json
    assert set(status) == COLLECTION | {"files", "chunks", "bytes", "skipped", "trouble", "stale", "indexing"}
    assert status["stale"] is False and status["skipped"] == added["skipped"]
    assert status["chunks"] == listed["chunks"] == added["chunks"]
    (found,) = call("search", "brass", "key", "-n", "1", "--json").json
    assert set(found) == PASSAGE and found["collection"] == "hb" and found["path"] == "guide/setup.md"
    assert found["matched"] == 2 and found["score"] > 0
    assert "brass key" in found["snippet"] and "setup.md" in found["title"] and found["head"] == "Setup"
    (rebuilt,) = call("rebuild", "--json").json
    assert set(rebuilt) == COLLECTION | REPORT
    assert set(call("remove", "hb", "--json").json) == COLLECTION


def test_adding_again_indexes_what_has_changed_and_says_so(call: Call, handbook: Path) -> None:
    call("add", handbook)
    (handbook / "guide" / "care.txt").write_text("Grease the winch in spring.\n")
    (handbook / "lamp.py").unlink()
    (handbook / "new.md").write_text("# News\n\nA gull nests in the gallery.\n")
    told = call("add", handbook)
    assert told.status == 0 and "already" in told.err and "again" in told.err and told.err.count("\n") == 1
    assert "  1 added, 1 changed, 1 unchanged, 1 removed" in told.out
    assert call.names() == ["hand-book"]
    assert call.found("winch") == ["hand-book/guide/care.txt"] and call.found("hinges") == []
    assert "already" in call("add", f"{handbook}/guide/../", "--json").err, "however it is written"
    assert call.names() == ["hand-book"]


def test_a_single_file_is_a_collection(call: Call, handbook: Path) -> None:
    assert call("add", handbook / "guide" / "setup.md").status == 0
    assert call.names() == ["setup"] and len(call.found("brass")) == 1


def test_collections_with_common_files_are_allowed_and_told(call: Call, handbook: Path) -> None:
    call("add", handbook)
    told = call("add", handbook / "guide", "--name", "guide")
    assert told.status == 0 and told.err.count("\n") == 1
    assert "guide is inside of the collection hand-book" in told.err and "@hand-book/guide" in told.err
    told = call("add", handbook.parent, "--name", "all")
    assert "The collection hand-book is inside of all" in told.err and "The collection guide is inside" in told.err
    link = handbook.parent / "link"
    link.symlink_to(handbook)
    assert "same place as the collection hand-book" in call("add", link).err
    call("remove", "hand-book")
    assert "guide/setup.md" in call.found("brass", "--in", "guide"), "each is whole without the other"


def test_names_are_made_of_the_folder_or_given(call: Call, tmp_path: Path) -> None:
    for folder in ("a/Notes & Ideas", "b/notes ideas", "c/日記", "d/..."):
        (tmp_path / folder).mkdir(parents=True)
        assert call("add", tmp_path / folder).status == 0
    assert call.names() == ["documents", "notes-ideas", "notes-ideas-2", "日記"]
    (tmp_path / "e").mkdir()
    for name in ("a/b", "", "with space", "x" * 41, "..", "NOTES-ideas", "\x1b[31m"):
        told = call("add", tmp_path / "e", "--name", name or " ")
        assert told.status == 1 and told.out == "" and told.err.count("\n") == 1 and "\x1b" not in told.err, name
    told = call("add", tmp_path / "a" / "Notes & Ideas", "--name", "other")
    assert told.status == 1 and "notes-ideas already" in told.err
    assert len(call.names()) == 4


@pytest.mark.parametrize("path", ["nowhere", "", " ", "\0", "~nobody-of-this-name/x", "/dev/null", "\udcff"])
def test_what_cannot_be_added_is_one_sentence(call: Call, path: str) -> None:
    told = call("add", path)
    assert told.status == 1 and told.out == "" and told.err.startswith("kvchat: ") and told.err.count("\n") == 1
    assert call.names() == []


def test_the_first_skipped_files_are_named_and_the_others_counted(call: Call, tmp_path: Path) -> None:
    root = tmp_path / "odd"
    root.mkdir()
    (root / "good.txt").write_text("A good one.\n")
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    for number in range(FIRST + 15):
        (root / f"broken{number:02}.txt").write_bytes(bytes(range(256)) * 9)
    told = call("add", root)
    lines = told.out.splitlines()
    assert f"  {FIRST + 15} skipped:" in lines and sum("broken" in line for line in lines) == FIRST
    assert lines[-1] == "    and 15 more; kvchat documents status odd --skipped"
    assert any(line.startswith("  It holds 1 file of other kinds: .png") for line in lines)
    assert sum("broken" in line for line in call("status", "odd").out.splitlines()) == FIRST
    assert sum("broken" in line for line in call("status", "odd", "--skipped").out.splitlines()) == FIRST + 15
    assert len(call("add", root, "--json").json["skipped"]) == FIRST + 16


# -- stopping ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path: Path) -> Path:
    root = tmp_path / "many"
    root.mkdir()
    for number in range(30):
        (root / f"n{number:02}.txt").write_text(f"Note number{number} about gulls.\n")
    return root


@contextmanager
def interrupted(moment: int, times: int = 1) -> Iterator[None]:
    """Ctrl+C is pressed while a file, by its number, is read."""
    real, numbers = index_run.loaded, itertools.count(1)

    def loaded(*arguments: Any) -> Any:
        if next(numbers) == moment:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_run, "loaded", loaded)
        yield


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(call: Call, many: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupted(10):
        told = call("add", many)
    assert told.status == 130 and told.err.count("\n") == 1
    assert "Stopped." in told.err and "kept" in told.err and f"kvchat documents add {many}" in told.err
    assert "  10 added, 0 changed, 0 unchanged, 0 removed" in told.out
    assert signal.getsignal(signal.SIGINT) is before
    (status,) = call("status", "--json").json
    assert status["files"] == 10 and status["indexed"] is None and status["stale"] is True
    assert "not to the end yet" in call("list").out
    told = call("add", many, "--json")
    assert told.status == 0 and told.json["added"] == 20 and told.json["unchanged"] == 10
    assert told.json["stopped"] is False


def test_a_stopped_run_says_so_in_json_too(call: Call, many: Path) -> None:
    with interrupted(3):
        told = call("add", many, "--json")
    assert told.status == 130 and told.json["stopped"] is True and told.json["files"] == 3
    with interrupted(2):
        told = call("rebuild", "--json")
    assert told.status == 130 and [one["stopped"] for one in told.json] == [True]


def test_a_second_ctrl_c_ends_it_at_once(call: Call, many: Path) -> None:
    with interrupted(5, times=2):
        assert call("add", many).status == 130
    assert call("add", many, "--json").json["files"] == 30, "the next run does it all"


# -- looking ----------------------------------------------------------------------------------------------------------


def test_status_tells_what_is_out_of_date(call: Call, handbook: Path) -> None:
    call("add", handbook)
    assert "It is up to date." in call("status", "HAND-book").out
    (handbook / "new.txt").write_text("Something new.\n")
    told = call("status")
    assert told.status == 0 and f"kvchat documents add '{handbook}'" in told.out and "changed since" in told.out
    call("add", handbook)
    assert "It is up to date." in call("status").out


def test_a_missing_folder_is_told_and_what_was_indexed_is_kept(call: Call, handbook: Path) -> None:
    call("add", handbook)
    shutil.move(handbook, handbook.with_name("elsewhere"))
    told = call("status")
    assert told.status == 0 and "is not there" in told.out
    (status,) = call("status", "--json").json
    assert "is not there" in status["trouble"] and status["stale"] is None and status["files"] == 3
    told = call("rebuild")
    assert told.status == 1 and told.out == "" and "is not there" in told.err and told.err.count("\n") == 1
    assert call("rebuild", "--json").json[0]["trouble"]
    assert call.found("brass") == ["hand-book/guide/setup.md"]


def test_an_unknown_name_is_told_with_those_there_are(call: Call, handbook: Path) -> None:
    told = call("status", "nothing")
    assert told.status == 1 and "no collection nothing" in told.err and told.err.count("\n") == 1
    call("add", handbook)
    for command in (("status", "x"), ("rebuild", "x"), ("remove", "x"), ("search", "key", "--in", "x")):
        told = call(*command)
        assert told.status == 1 and told.out == "" and "hand-book" in told.err and told.err.count("\n") == 1, command


def test_a_search_is_narrowed_to_collections_folders_and_files(call: Call, handbook: Path, tmp_path: Path) -> None:
    call("add", handbook, "--name", "hb")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "door.txt").write_text("The lighthouse door has hinges of bronze.\n")
    call("add", tmp_path / "other")
    assert set(call.found("hinges", "door")) == {"hb/guide/care.txt", "other/door.txt"}
    assert call.found("hinges", "--in", "hb") == ["hb/guide/care.txt"]
    for folder in ("hb/guide", "HB/guide/"):
        assert call.found("hinges", "--in", folder) == ["hb/guide/care.txt"]
    assert call.found("hinges", "--in", "hb/guide/setup.md") == []
    assert len(call.found("hinges", "--in", "hb/guide", "--in", "other")) == 2
    assert len(call.found("hinges", "-n", "1")) == 1
    told = call("search", "hinges", "--in", "hb/nothing")
    assert told.status == 1 and "Nothing is indexed at nothing in the collection hb" in told.err


def test_a_search_is_narrowed_to_when_files_were_changed(call: Call, handbook: Path) -> None:
    care, setup = handbook / "guide" / "care.txt", handbook / "guide" / "setup.md"
    setup.write_text("The lighthouse.\n")
    os.utime(care, (instant("2024-05-06T23:30"), instant("2024-05-06T23:30")))
    call("add", handbook, "--name", "hb")
    assert call.found("lighthouse", "--until", "2024-05-06") == ["hb/guide/care.txt"], "to the end of that day"
    assert call.found("lighthouse", "--until", "2024-05-05") == []
    assert call.found("lighthouse", "--until", "2024-05-06T23:00") == []
    assert call.found("lighthouse", "--since", "2024-05-07") == ["hb/guide/setup.md"]
    assert call.found("lighthouse", "--since", "today") == call.found("lighthouse", "--since", "2024-05-07")
    assert len(call.found("lighthouse", "--since", "2024-05-06", "--until", "today")) == 2


def test_nothing_found_is_1_and_a_word(call: Call, handbook: Path) -> None:
    call("add", handbook)
    for words in (("zeppelin",), (" ",), ("the", "of"), ("\udcff",), ('"',)):
        told = call("search", *words)
        assert (told.status, told.out, told.err) == (1, "", "Nothing found.\n"), words


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("forget",),
        ("add",),
        ("search",),
        ("remove",),
        ("search", "x", "-n", "0"),
        ("search", "x", "-n", "many"),
        ("search", "x", "-n", "1" + "0" * 30),
        ("search", "x", "--since", "soon"),
        ("search", "x", "--until", ""),
        ("search", "x", "--since", "2024-05-06", "--until", "2024-05-05"),
        ("list", "--incognito"),
        ("add", ".", "--incognito"),
    ],
)
def test_wrong_usage_ends_with_2_and_changes_nothing(call: Call, handbook: Path, arguments: tuple[str, ...]) -> None:
    call("add", handbook)
    told = call(*arguments)
    assert told.status == 2 and told.out == "" and "kvchat" in told.err
    assert call.names() == ["hand-book"]


def test_an_incognito_run_has_no_documents(call: Call, places: Paths, handbook: Path) -> None:
    told = call("add", handbook, "--incognito")
    assert told.status == 2 and "incognito" in told.err and told.err.count("\n") == 1 and not places.data.exists()


@pytest.mark.parametrize("within", ["", "/", " ", "/guide"])
def test_a_place_without_a_name_is_bad_usage(call: Call, handbook: Path, within: str) -> None:
    call("add", handbook)
    told = call("search", "brass", "--in", within)
    assert told.status == 2 and "--in needs the name of a collection" in told.err and told.err.count("\n") == 1


def test_status_says_that_another_kvchat_is_at_it(call: Call, handbook: Path, places: Paths) -> None:
    call("add", handbook)
    (handbook / "new.md").write_text("new")
    with alone(places.data / "index.db", "hand-book"):
        assert "Another kvchat indexes it now." in call("status").out
        assert "have changed" not in call("status").out
        assert call("status", "--json").json[0]["indexing"] is True
    assert "have changed" in call("status").out and call("status", "--json").json[0]["indexing"] is False


# -- reading again, forgetting ----------------------------------------------------------------------------------------


def test_reading_again_gives_the_same_index(call: Call, handbook: Path, places: Paths) -> None:
    call("add", handbook)
    before = call("search", "brass", "lever", "lighthouse", "--json").json
    told = call("rebuild", "hand-book", "--json")
    assert told.status == 0 and told.json[0]["unchanged"] == 3 and told.json[0]["added"] == 0
    assert call("search", "brass", "lever", "lighthouse", "--json").json == before
    for file in places.data.glob("index.db*"):
        file.unlink()
    assert call.found("brass") == [] and "rebuild" in call("status", "--json").json[0]["trouble"]
    assert call("rebuild").status == 0
    assert call("search", "brass", "lever", "lighthouse", "--json").json == before


def test_what_is_removed_is_found_no_more_and_its_files_stay(call: Call, handbook: Path) -> None:
    files = {path: path.read_bytes() for path in handbook.rglob("*") if path.is_file()}
    call("add", handbook)
    told = call("remove", "Hand-Book")
    assert told.status == 0 and told.err == ""
    assert told.out == f"hand-book is no longer indexed. Its files in {handbook} are as they were.\n"
    assert call.names() == [] and call("search", "brass").status == 1
    assert {path: path.read_bytes() for path in handbook.rglob("*") if path.is_file()} == files
    assert call("remove", "hand-book").status == 1
    assert call("add", handbook, "--json").json["added"] == 3, "nothing of it was left in the index"


# -- around it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["add", "list", "status", "search", "rebuild", "remove"])
async def test_hostile_names_and_texts_are_shown_harmless_and_fit_the_window(
    call: Call, run: Any, tmp_path: Path, command: str
) -> None:
    root = tmp_path / HOSTILE
    root.mkdir()
    (root / f"{HOSTILE}.txt").write_text(f"# {HOSTILE}\n\nA gull said {HOSTILE} and {'more ' * 60}\n")
    (root / f"{HOSTILE}.md").write_bytes(bytes(range(256)) * 9)
    if command != "add":
        call("add", root, "--name", "birds")
    arguments = {"add": [root], "search": ["gull"], "remove": ["birds"]}.get(command, [])
    done = await run("documents", command, *arguments, terminal=True)
    text = done.out
    assert done.status == 0 and ("␛" in text or command == "list")
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
    if command in ("list", "search"):
        assert all(cells(line) <= 80 for line in text.replace("\r\n", "\n").splitlines())
    assert not set(call("status", "--json").out) & {"\x1b", "\x07", "\x9b", "\u202e"}


async def test_a_terminal_sees_one_line_of_progress_that_goes_away(many: Path, environment: dict[str, str]) -> None:
    terminal, inner = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvchat.cli",
        "documents",
        "add",
        many,
        stdin=inner,
        stdout=asyncio.subprocess.PIPE,
        stderr=inner,
        env={**environment, "COLUMNS": "60"},
    )
    out, _ = await process.communicate()
    os.close(inner)
    shown = b""
    with pytest.raises(OSError):
        while data := os.read(terminal, 4096):
            shown += data
    os.close(terminal)
    states = shown.decode().split("\r")
    assert process.returncode == 0 and "30 added" in out.decode()
    assert states[0] == "" and states[-1] == "" and not states[-2].strip() and "\n" not in shown.decode()
    assert states[1].startswith("many: ") and all(cells(state) < 60 for state in states)


def test_the_progress_says_how_much_is_done_and_left() -> None:
    progress = IndexingProgress(
        "handbook", 1204, 3000, 12_000_000, 48_000_000, 9120, 20.0, "guide/setup.md", bytes_skipped=2_000_000
    )
    assert progress_words(progress) == (
        "handbook: 1,204 of 3,000 files, 12 MB of 48 MB, 9,120 chunks, 1 min 12 s left, guide/setup.md"
    )
    assert progress_words(IndexingProgress("handbook", 0, 812, 0, 5, 0, 0.2, counting=True)) == (
        "handbook: looking for files, 812 so far"
    )
    assert "– left" in progress_words(IndexingProgress("handbook", 1, 2, 3, 4, 5, 0.2))


@pytest.mark.parametrize(
    ("text", "query", "wanted"),
    [
        ("word " * 200 + "the brass key" + " word" * 200, "brass keys", "the brass key"),
        ("key " + "word " * 200 + "brass key here", "where is the brass key", "brass key here"),
        ("Der Schlüssel liegt " + "unter dem Stein. " * 50, "schlussel", "Der Schlüssel liegt"),
        ("文章" * 200 + "鍵は灯台の下にある" + "文章" * 200, "灯台", "灯台の下"),
        ("# Title\n\nfirst\nsecond", "nothing of it", "# Title first second"),
        ("", "x", ""),
    ],
)
def test_a_snippet_is_where_most_of_the_words_are(text: str, query: str, wanted: str) -> None:
    found = snippet(text, query)
    assert wanted in found and "\n" not in found and len(found) <= 250


def test_a_day_ends_at_midnight_and_an_instant_is_itself() -> None:
    assert until("2024-05-06") == pytest.approx(instant("2024-05-07"), abs=0.01)
    assert until("2024-05-06") < instant("2024-05-07")
    assert until("2024-05-06T10:30") == instant("2024-05-06T10:30")
    assert until("yesterday") == pytest.approx(instant("today"), abs=0.01)
    with pytest.raises(UsageError):
        until("soon")


async def test_nothing_heavy_is_loaded_for_a_list(environment: dict[str, str]) -> None:
    heavy = [
        "textual",
        "httpx",
        "rich",
        "kvchat.ui",
        "kvchat.chat",
        "kvchat.backends.http.transport",
        "pypdf",
        "pathspec",
        "watchfiles",
        "zipfile",
        "html.parser",
        "kvchat.documents.reading.formats",
    ]
    script = (
        f"import sys; from kvchat.cli import main; main(['documents', 'list'])\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().splitlines()[-1] == "[]"


async def test_no_server_is_asked(call: Call, places: Paths, handbook: Path) -> None:
    async with ToyServer() as server:
        places.config.parent.mkdir(parents=True, exist_ok=True)
        places.config.write_text(f'[server]\nbase_url = "{server.url}"\n[embeddings]\nbase_url = "{server.url}"\n')
        for command in (
            ("add", handbook),
            ("list",),
            ("status",),
            ("search", "key"),
            ("rebuild",),
            ("remove", "hand-book"),
        ):
            assert (await asyncio.to_thread(call, *command)).status == 0
        assert not server.visits


def test_a_passage_without_a_heading_is_shown_by_its_place() -> None:
    from kvchat.cli.documents import passage_lines

    where, what = passage_lines(Passage("docs/hb/a.pdf#p3", "", "Turn the key.", 1.0, 1), "key")
    assert (where, what) == ("hb/a.pdf p. 3", "Turn the key.")
