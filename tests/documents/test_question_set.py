"""Whether a question finds what answers it: 66 questions on Python's own sources, by words alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kvchat.documents.collection import Collection, IndexingOptions
from kvchat.documents.indexing.index_run import index_collection
from kvchat.documents.library import Library
from kvchat.documents.retriever import found as chosen
from kvchat.index.index import Index
from kvchat.store import Store

LIBRARY = Path(os.__file__).parent
QUESTIONS = json.loads(Path(__file__).with_name("questions.json").read_text(encoding="utf-8"))
"""A question, the file that answers it, and words of the passage that does."""


def hits(library: Library, at: int) -> list[str]:
    """The questions whose answer is among the first `at` passages."""
    found = []
    for question, file, words in QUESTIONS:
        best = library.search(question, at)
        if any(one.place.path == file and words in one.text for one in best):
            found.append(question)
    return found


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Library:
    """The modules that Python comes with, without their tests."""
    folder = tmp_path_factory.mktemp("library")
    sources = folder / "python"
    for path in LIBRARY.rglob("*.py"):
        inside = path.relative_to(LIBRARY)
        if not {"test", "tests", "site-packages", "idlelib", "lib2to3", "__pycache__"} & set(inside.parts):
            copy = sources / inside
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    store = Store.open(folder / "data")
    library = Library(store, Index.open(folder / "index.db"), IndexingOptions(), lambda: 0.0)
    collection = library.add(str(sources))
    report = index_collection(library.index, Collection(collection.name, collection.root, 0.0), IndexingOptions())
    assert report.added > 300 and not report.trouble
    yield library
    library.close()
    store.close()


@pytest.mark.slow
def test_most_questions_find_their_answer_among_five_passages(library):
    assert len(QUESTIONS) >= 60
    found = hits(library, 5)
    missed = [question for question, _, _ in QUESTIONS if question not in found]
    assert len(found) >= 0.6 * len(QUESTIONS), missed


@pytest.mark.slow
def test_few_answers_are_lost_where_nobody_asked_for_the_documents_by_name(library):
    def answers(question: str, *, named: bool) -> set[tuple[str, str]]:
        best = chosen(
            library, question, [one.scope for one in library.collections()], (), most=6, tokens=8000, named=named
        )
        return {(one.place.path, one.text) for one in best}

    def count(*, named: bool) -> int:
        return sum(
            any(path == file and words in text for path, text in answers(question, named=named))
            for question, file, words in QUESTIONS
        )

    assert count(named=False) >= 0.85 * count(named=True)


@pytest.mark.slow
def test_what_is_found_says_where_it_stands(library):
    best = library.search("rmtree: recursively delete a directory tree", 5)
    one = next(one for one in best if "def rmtree(" in one.text)
    first, last = (int(line) for line in one.place.where.partition("~")[0].split("-"))
    lines = (LIBRARY / "shutil.py").read_text(encoding="utf-8").splitlines()
    assert any("def rmtree(" in line for line in lines[first - 1 : last])
    assert "rmtree" in one.head and "shutil" not in one.head
