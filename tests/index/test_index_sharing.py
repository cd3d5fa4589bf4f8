"""One index for all: what one part of it holds, or another kvchat does, is no trouble for the others."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from index_kit import lines

from kvchat.index import index_file
from kvchat.index.index import Chunk, Index
from kvchat.store.presence.locks import try_lock

MEMORIES = [f"Kestrel project: invoice number {n} was agreed with the client." for n in range(40)] + [
    "The deploy script for staging is run from the laptop in the cellar."
]
OTHERS = [
    (
        f"docs/c/{n}.md",
        [Chunk("1", "", "run the deploy script for staging and check each backup" + " more" * n)],
        "",
        None,
    )
    for n in range(150)
]
QUESTION = "Where is the deploy script for staging run for the Kestrel project?"


def test_a_large_collection_takes_nothing_from_a_small_scope(index: Index) -> None:
    alone = Index.open(None)
    for one in (index, alone):
        one.replace_all([("memory/a.md", lines(*MEMORIES), "", 5.0)])
    index.replace_all(OTHERS)
    for scope in ("memory/", "mem", ["memory/", "docs/none/"]):
        for since in (None, 4.0):
            hits = index.search(QUESTION, 50, scope=scope, since=since)
            assert {hit.chunk.text for hit in hits} == {hit.chunk.text for hit in alone.search(QUESTION, 50)}
            assert len(index.search(QUESTION, 5, scope=scope, since=since)) == 5
    assert index.search(QUESTION, 5, scope="memory/", until=4.0) == []


def test_a_search_and_an_opening_wait_for_nobody_who_holds_the_lock_of_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "PATIENCE_S", 0.0)
    path = tmp_path / "index.db"
    first = Index.open(path)
    first.replace("docs/a/x.md", lines("the quokka sleeps"))
    handle = os.open(tmp_path / "index.db.lock", os.O_RDWR)
    assert try_lock(handle)
    second = Index.open(path)
    for index in (first, second):
        assert index.search("quokka") and not index.trouble
    os.close(handle)


def test_a_file_that_is_locked_while_another_writes_for_long_is_used_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "READ_MS", 10)
    path = tmp_path / "index.db"
    index, other = Index.open(path), Index.open(path)
    index.replace("docs/a/x.md", lines("the quokka sleeps"))
    begun, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with other._tables.writing() as connection:
            connection.execute("PRAGMA cache_size = 1")
            connection.executemany(
                "INSERT INTO doc(name, stamp) VALUES (?, ?)", [(f"z{n}", "x" * 3000) for n in range(500)]
            )
            begun.set()
            go_on.wait(120)

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait(120)
    assert index.search("quokka") == [] and index.trouble
    go_on.set()
    thread.join()
    assert index.search("quokka") and not index.trouble and index.path == path
