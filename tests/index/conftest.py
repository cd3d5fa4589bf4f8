"""Indexes to test with: on disk and in memory, with full-text search and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from index_kit import keys

from kvchat.index import index_file
from kvchat.index.index import Index


@pytest.fixture(params=["with full-text search", "without"])
def index(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An empty index in a file."""
    if request.param == "without":
        monkeypatch.setattr(index_file, "has_fts", lambda connection: False)
    opened = Index.open(tmp_path / "index.db")
    yield opened
    opened.close()


Found = Callable[..., list[str]]


@pytest.fixture
def found(index: Index) -> Found:
    """The keys that a search finds, the best first."""
    return lambda query, k=8, **how: keys(index.search(query, k, **how))
