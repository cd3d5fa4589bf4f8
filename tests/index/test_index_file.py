"""The file: private, disposable, shared; whatever happens to it, searching and filling go on."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from index_kit import keys, lines

from kvchat.index import index_file
from kvchat.index.index import Index, IndexBusyError
from kvchat.text.problems import StoreProblem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "index.db"


def filled(path: Path, texts: int = 3) -> None:
    index = Index.open(path)
    index.replace("memory/a.md", lines(*(f"lighthouse {number}" for number in range(texts))), "1")
    index.close()


def works(index: Index) -> None:
    """Putting in and finding work."""
    index.replace("memory/new.md", lines(new="harbour"), "2")
    assert keys(index.search("harbour")) == ["new"]
    assert index.docs("memory/new") == {"memory/new.md": "2"}
    assert index.digest("memory/new")
    index.close()


def test_file_and_folder_are_private_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        filled(path)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    Index.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_in_memory_leaves_nothing_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    works(Index.open(None))
    assert sorted(tmp_path.rglob("*")) == before


DAMAGE: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"\x00garbage" * 4000),
    "text": lambda path: path.write_text("hello"),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:9000]),
    "zeros in the middle": lambda path: path.write_bytes(
        path.read_bytes()[:8192] + bytes(16384) + path.read_bytes()[24576:]
    ),
    "noise after the header": lambda path: path.write_bytes(path.read_bytes()[:100] + os.urandom(40000)),
    "gone": lambda path: path.unlink(),
    "a journal of something else": lambda path: path.with_name("index.db-journal").write_bytes(os.urandom(4096)),
    "tables missing": lambda path: run(path, "DROP TABLE chunk"),
    "an older version": lambda path: run(path, "PRAGMA user_version = 1"),
    "without full-text search": lambda path: run(path, f"PRAGMA user_version = {2 * index_file.VERSION}"),
}


def run(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_no_use_is_made_anew(name: str, path: Path) -> None:
    filled(path, 400)
    DAMAGE[name](path)
    index = Index.open(path)
    assert index.search("lighthouse") is not None
    works(index)
    again = Index.open(path)
    assert keys(again.search("harbour")) == ["new"], "it was not made anew in its place"
    again.close()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in DAMAGE
        if name not in ("a journal of something else", "an older version", "without full-text search")
    ],
)
def test_damage_while_it_is_open_is_no_error_either(name: str, path: Path) -> None:
    filled(path, 400)
    index = Index.open(path)
    assert index.search("lighthouse")
    DAMAGE[name](path)
    for _ in range(2):  # what is put in just before damage is noticed may be lost with the rest
        index.replace("memory/b.md", lines("island"))
        index.search("lighthouse island")
    works(index)


def test_damage_in_the_full_text_table_alone_is_noticed_and_ends_with_an_empty_index(path: Path) -> None:
    filled(path)
    run(path, "UPDATE words_data SET block = x'00ff00ff00ff' WHERE id > 1")
    index = Index.open(path)
    assert index.search("lighthouse") == [] and index.docs() == {}
    works(index)


def test_another_programs_database_is_never_touched(path: Path) -> None:
    path.parent.mkdir()
    run(path, "CREATE TABLE mine(x)")
    before = path.read_bytes()
    index = Index.open(path)
    assert index.path is None
    works(index)
    assert path.read_bytes() == before


def test_a_newer_kvchats_index_is_left_to_it(path: Path) -> None:
    filled(path)
    run(path, "PRAGMA user_version = 999")
    before = path.read_bytes()
    index = Index.open(path)
    assert index.path is None
    works(index)
    assert path.read_bytes() == before


def test_a_folder_a_pipe_or_a_file_in_the_way_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for path in (
        tmp_path / "folder",
        tmp_path / "pipe",
        tmp_path / "file" / "index.db",
        tmp_path / "nul\0",
        Path("/dev/null/index.db"),
    ):
        index = Index.open(path)
        assert index.path is None
        works(index)


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a folder that cannot be written")
def test_a_folder_that_cannot_be_written_is_no_error(path: Path) -> None:
    filled(path)
    path.parent.chmod(0o500)
    try:
        works(Index.open(path))
    finally:
        path.parent.chmod(0o700)


def test_a_file_that_is_locked_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "WRITE_MS", 10)
    filled(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    index = Index.open(path)
    assert index.search("lighthouse") == [] and index.docs() == {}
    index.replace("memory/new.md", lines(new="harbour"))
    assert index.path == path and index.trouble == StoreProblem.INDEX_BUSY
    holder.close()
    monkeypatch.setattr(index, "_again", 0.0)
    assert len(index.search("lighthouse")) == 3 and not index.trouble
    works(index)


def test_a_lock_that_comes_while_it_is_open_is_no_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "WRITE_MS", 10)
    monkeypatch.setattr(index_file, "READ_MS", 10)
    filled(path)
    index = Index.open(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert index.search("lighthouse") == [] and index.trouble == StoreProblem.INDEX_BUSY
    index.replace("memory/b.md", lines(new="island"), "2")
    with pytest.raises(IndexBusyError):
        index.replace_all([("memory/c.md", lines("harbour"), "", None)], at_once=True)
    with pytest.raises(IndexBusyError):
        index.docs(surely=True)
    holder.close()
    assert len(index.search("lighthouse")) == 3 and not index.trouble
    assert index.docs("memory/b") == {"memory/b.md": "2"}, "what could not be put in is lost"
    works(index)


def test_a_full_disk_is_no_error(path: Path) -> None:
    index = Index.open(path)
    index._tables._writer.execute("PRAGMA max_page_count = 20")
    for number in range(50):
        index.replace(f"memory/{number}.md", lines("lighthouse " * 500))
    works(index)


def test_nothing_fails_after_it_is_closed(path: Path) -> None:
    index = Index.open(path)
    index.replace("memory/a.md", lines("lighthouse"))
    index.close()
    index.close()
    assert index.search("lighthouse") == [] and index.docs() == {}
    again = Index.open(path)
    assert keys(again.search("lighthouse")) == ["0"]
    again.close()


def test_what_fails_is_logged_in_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"garbage" * 1000)
    with caplog.at_level(logging.INFO):
        Index.open(path).close()
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_threads_search_and_write_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.index.index_file.PATIENCE_S", 120.0)  # the machine may be busy
    monkeypatch.setattr("kvchat.index.index.PATIENCE_S", 120.0)
    monkeypatch.setattr("kvchat.index.index_file.READ_MS", 120_000)
    index = Index.open(path)
    index.replace("memory/always.md", lines("lighthouse"))
    done = threading.Event()

    def search() -> int:
        count = 0
        while not done.is_set():
            assert "memory/always.md" in {hit.doc for hit in index.search("lighthouse", 100)}
            count += 1
        return count

    def write(number: int) -> None:
        for turn in range(15):
            index.replace(f"memory/{number}.md", lines(*(f"lighthouse {turn} {n}" for n in range(5))), str(turn))

    with ThreadPoolExecutor(6) as pool:
        searches = [pool.submit(search) for _ in range(2)]
        for writing in [pool.submit(write, number) for number in range(4)]:
            writing.result()
        done.set()
        assert all(one.result() > 0 for one in searches)
    assert index.path == path, "it fell back to memory"
    assert index.docs() == {"memory/always.md": "", **{f"memory/{number}.md": "14" for number in range(4)}}
    assert len(index.search("lighthouse", 100)) == 21
    index.close()


WRITER = """
import sys
from pathlib import Path
from kvchat.index.index import Chunk, Index
index = Index.open(Path(sys.argv[1]))
for turn in range(40):
    chunks = [Chunk(str(n), "", f"lighthouse {turn} {n}") for n in range(9)]
    index.replace(f"memory/{sys.argv[2]}-{turn % 7}.md", chunks, str(turn))
    index.search("lighthouse", scope="memory/")
assert index.path is not None
index.close()
"""


@pytest.mark.process
def test_processes_share_it(path: Path) -> None:
    index = Index.open(path)
    children = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(number)]) for number in range(3)]
    assert [child.wait(120) for child in children] == [0, 0, 0]
    assert index.path == path and len(index.docs()) == 21
    assert len(index.search("lighthouse", 500)) == 189
    anew = Index.open(None)
    for number in range(3):
        for turn in range(33, 40):
            anew.replace(f"memory/{number}-{turn % 7}.md", lines(*(f"lighthouse {turn} {n}" for n in range(9))))
    assert index.digest() == anew.digest()
    index.close()


def test_one_that_was_thrown_away_by_another_kvchat_is_opened_anew(path: Path) -> None:
    filled(path)
    mine = Index.open(path)
    path.write_bytes(b"garbage" * 1000)
    other = Index.open(path)
    other.replace("memory/b.md", lines("island"))
    assert keys(mine.search("island")) == ["0"]
    works(mine)
    assert keys(other.search("harbour")) == ["new"]
    other.close()


KILLED = """
import os, sys, threading, random
from pathlib import Path
from kvchat.index.index import Chunk, Index
index = Index.open(Path(sys.argv[1]))
threading.Timer(random.Random(int(sys.argv[2])).uniform(0.0, 0.15), lambda: os.kill(os.getpid(), 9)).start()
turn = 0
while True:
    turn += 1
    index.replace(f"memory/{turn % 5}.md", [Chunk(str(n), "", f"lighthouse {turn} {n}") for n in range(60)], str(turn))
"""


@pytest.mark.process
def test_a_kill_in_the_middle_leaves_whole_documents(path: Path) -> None:
    for seed in range(12):
        subprocess.run([sys.executable, "-c", KILLED, str(path), str(seed)], check=False)
        index = Index.open(path)
        assert index.path == path
        docs = index.docs()
        hits = index.search("lighthouse", 1000)
        assert {doc: {hit.chunk.text for hit in hits if hit.doc == doc} for doc in docs} == {
            doc: {f"lighthouse {turn} {n}" for n in range(60)} for doc, turn in docs.items()
        }
        anew = Index.open(None)
        for doc, turn in docs.items():
            anew.replace(doc, lines(*(f"lighthouse {turn} {n}" for n in range(60))))
        assert index.digest() == anew.digest()
        index.close()
