"""Indexing large files, and in an index that is somebody else's for a while or gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from indexing_kit import collection, indexed, made, texts
from msgspec.structs import replace

from kvchat.documents.indexing import index_run
from kvchat.documents.indexing.index_run import status_of
from kvchat.index import content, index_file
from kvchat.index.index import Index
from kvchat.store.presence.locks import try_lock
from kvchat.text.problems import StoreProblem

LARGE = "".join(f"word{n} and word{n % 977}, {n % 31}\n" * 3 for n in range(2000))


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many chunks each writing touched."""
    monkeypatch.setattr(index_run, "MOST_CHUNKS", 20)
    sizes: list[int] = []
    real = content.apply

    def apply(connection, fts, doc, done, stamp, date):  # type: ignore[no-untyped-def]
        sizes.append(len(done.removed) + len(done.moved) + len(done.added))
        real(connection, fts, doc, done, stamp, date)

    monkeypatch.setattr(content, "apply", apply)
    return sizes


def test_no_transaction_puts_in_or_takes_out_more_than_a_slice(tmp_path: Path, put: list[int]) -> None:
    root = made(tmp_path / "notes", {"big.txt": LARGE, "a.md": "x"})
    index = Index.open(None)
    indexed(index, root)
    assert texts(index, root)["big.txt"].split() == LARGE.split()
    assert index.count() > 100
    (root / "big.txt").write_text("short\n")
    indexed(index, root)
    assert index.count() == 2
    (root / "big.txt").write_text(LARGE)
    indexed(index, root)
    (root / "big.txt").unlink()
    indexed(index, root)
    assert (len(index.docs()), index.count()) == (1, 1) and index.search("word5") == []
    assert max(put) <= 20


def test_a_large_file_that_was_half_put_in_is_read_again(
    tmp_path: Path, put: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(tmp_path / "notes", {"big.txt": LARGE})
    index = Index.open(None)
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: 1 / (len(put) < 3))
        with pytest.raises(ZeroDivisionError):
            indexed(index, root)
    assert list(index.docs().values()) == [""]
    indexed(index, root)
    fresh = Index.open(None)
    indexed(fresh, root)
    assert index.digest() == fresh.digest()


def test_an_index_in_use_is_said_to_be_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "PATIENCE_S", 0.0)
    root = made(tmp_path / "notes", {"a.md": "a quokka"})
    index = Index.open(tmp_path / "index.db")
    handle = os.open(tmp_path / "index.db.lock", os.O_RDWR)
    assert try_lock(handle)
    assert indexed(index, root).trouble == StoreProblem.INDEX_BUSY
    os.close(handle)
    assert not indexed(index, root).trouble and index.search("quokka")
    index.close()


def test_a_collection_that_is_gone_from_the_index_says_how_to_make_it_anew(tmp_path: Path) -> None:
    root = made(tmp_path / "notes", {"a.md": "a quokka"})
    index = Index.open(None)
    assert not status_of(index, collection(root)).trouble
    once = replace(collection(root), indexed=1.0)
    assert "rebuild notes" in status_of(index, once).trouble
    indexed(index, root)
    assert not status_of(index, once).trouble
