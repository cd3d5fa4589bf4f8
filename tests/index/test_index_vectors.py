"""Vectors: kept small, compared right, of one model at a time, and fused with the words."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from index_kit import keys, lines

from kvchat.index import vector_search, vectors
from kvchat.index.index import Chunk, Index
from kvchat.index.ranking import fused, in_order
from kvchat.index.vector_search import COMPARED_WITHOUT_NUMPY
from standins.embeddings import vector

Found = Callable[..., list[str]]


@pytest.fixture(params=["with numpy", "without numpy"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "without numpy":
        monkeypatch.setattr(vectors, "numpy", lambda: None)
    else:
        pytest.importorskip("numpy")
    yield request.param


def embed(index: Index, model: str = "m", length: int = 64, limit: int = 3) -> int:
    """Give every chunk its vector; how many were asked for."""
    count = 0
    while found := index.without_vector(model, limit):
        index.put_vectors(model, {(doc, chunk.key): vector(chunk.text, length) for doc, chunk in found})
        count += len(found)
    return count


def test_a_vector_finds_what_no_word_does(index: Index) -> None:
    index.replace("memory/a.md", lines("Drives an automobile", "Grows tomatoes", "Plays chess"))
    embed(index)
    best = index.search("Which car is mine?", 1, vector=vector("car"))[0]
    assert (best.chunk.key, best.why, best.matched) == ("0", "vector", 0)
    assert best.similarity is not None and best.similarity > 0.4


def test_what_words_and_vector_find_comes_before_what_one_of_them_does(index: Index) -> None:
    index.replace(
        "memory/a.md", lines("Sells cars", "Drives an automobile", "The harbour", "Likes car radios, automobile")
    )
    embed(index)
    hits = index.search("cars", vector=vector("automobile"))
    assert hits[0].why == "both" and {hit.why for hit in hits} == {"both", "vector"}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_words_find_chunks_that_have_no_vector_yet(index: Index) -> None:
    index.replace("memory/a.md", lines("Drives an automobile"))
    embed(index)
    index.replace("memory/b.md", lines(new="Sells automobiles in the harbour"))
    assert {hit.chunk.key: hit.why for hit in index.search("harbour", vector=vector("harbour"))} == {
        "new": "words",
        "0": "vector",
    }


def test_a_scope_holds_for_vectors_too(index: Index) -> None:
    index.replace("memory/a.md", lines(mine="An automobile"))
    index.replace("docs/a.md", lines(theirs="An automobile"))
    embed(index)
    for scope, key in (("memory/", "mine"), ("docs/", "theirs"), ("mem", "mine")):
        assert keys(index.search("?", scope=scope, vector=vector("car"))) == [key]


def test_beyond_a_few_the_best_by_words_are_compared_at_least(index: Index, library: str) -> None:
    count = COMPARED_WITHOUT_NUMPY + 50
    index.replace(
        "docs/a.md",
        lines(
            *(f"report number {number}" for number in range(count)), car="report on an automobile", hidden="automobile"
        ),
    )
    embed(index, limit=1000)
    hits = index.search("automobile report", 2, vector=vector("report automobile"))
    assert {(hit.chunk.key, hit.why) for hit in hits} == {("car", "both"), ("hidden", "both")}
    near = keys(index.search("nothing", 5, vector=vector("car")))
    assert near[:1] == (["hidden"] if library == "with numpy" else [])


def test_what_is_equal_keeps_its_vector_and_what_changed_loses_it(index: Index) -> None:
    index.replace("memory/a.md", lines("one cat", "two cats", "three cats"))
    assert embed(index) == 3
    index.replace("memory/a.md", lines("one cat", "two dogs", "three cats", "four"))
    assert [chunk.text for _, chunk in index.without_vector("m", 10)] == ["two dogs", "four"]
    index.remove("memory/a.md")
    assert index.search("?", vector=vector("cat")) == []


def test_a_vector_that_comes_too_late_for_its_text_is_left_out(index: Index) -> None:
    index.replace("memory/a.md", lines("an automobile"))
    asked = index.without_vector("m", 10)
    index.replace("memory/a.md", lines("a tomato"))
    index.put_vectors("m", {(doc, chunk.key): vector(chunk.text) for doc, chunk in asked})
    assert [chunk.text for _, chunk in index.without_vector("m", 10)] == ["a tomato"]
    index.remove("memory/a.md")
    index.put_vectors("m", {("memory/a.md", "0"): vector("gone")})
    assert index.without_vector("m", 10) == []


def test_asking_is_limited_and_scoped(index: Index) -> None:
    index.replace("memory/a.md", lines("a", "b", "c"))
    index.replace("docs/a.md", lines("d"))
    assert [(doc, chunk.text) for doc, chunk in index.without_vector("m", 2)] == [
        ("memory/a.md", "a"),
        ("memory/a.md", "b"),
    ]
    assert [doc for doc, _ in index.without_vector("m", 9, "docs/")] == ["docs/a.md"]


def test_vectors_of_another_model_or_length_are_thrown_away_never_compared(index: Index) -> None:
    index.replace("memory/a.md", lines("a cat", "an automobile"))
    embed(index, "old")
    assert len(index.without_vector("new", 10)) == 2
    assert index.search("?", vector=vector("cat"), model="new") == []
    assert index.search("?", vector=vector("cat", 32)) == []
    index.put_vectors("new", {("memory/a.md", "0"): vector("a cat")})
    assert [chunk.key for _, chunk in index.without_vector("new", 10)] == ["1"]
    assert keys(index.search("?", vector=vector("cat"), model="new")) == ["0"]
    index.put_vectors("new", {("memory/a.md", "1"): vector("an automobile", 32)})
    assert [chunk.key for _, chunk in index.without_vector("new", 10)] == ["0"]


@pytest.mark.parametrize("bad", [[[]], [[math.nan, 1.0]], [[math.inf, 1.0]], [[1.0, 0.0], [1.0]]])
def test_what_is_no_vector_is_refused_and_nothing_is_kept(bad: list[list[float]], index: Index) -> None:
    index.replace("memory/a.md", lines("a", "b"))
    with pytest.raises(ValueError, match="vector"):
        index.put_vectors("m", {("memory/a.md", str(n)): one for n, one in enumerate(bad)})
    assert len(index.without_vector("m", 10)) == 2


def test_a_vector_without_a_direction_is_kept_and_is_near_nothing(index: Index) -> None:
    index.replace("memory/a.md", lines("a cat", "a dog"))
    index.put_vectors("m", {("memory/a.md", "0"): [0.0] * 64, ("memory/a.md", "1"): vector("a dog")})
    assert index.without_vector("m", 10) == []
    assert index.search("?", vector=vector("cat"))[0].chunk.key == "1"
    assert keys(index.search("cat", vector=[0.0] * 64)) == ["0"]


def test_vectors_survive_opening_the_index_again(index: Index) -> None:
    index.replace("memory/a.md", lines("a cat"))
    embed(index)
    assert index.path is not None
    again = Index.open(index.path)
    assert again.without_vector("m", 10) == []
    assert keys(again.search("?", vector=vector("kitten"))) == ["0"]
    again.close()


def test_equal_vectors_come_in_the_order_of_their_names(index: Index) -> None:
    names = [f"memory/{number:03}.md" for number in range(260)]
    random.Random(3).shuffle(names)
    for name in names:
        index.replace(name, [Chunk("k", "", "the same cat")])
    embed(index, limit=1000)
    assert [hit.doc for hit in index.search("cats", vector=vector("cat"))] == sorted(names)[:8]


def test_while_vectors_are_put_in_a_large_scope_is_not_read_at_every_search(
    index: Index, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr(vector_search.time, "monotonic", later)
    monkeypatch.setattr(vector_search, "_REST", 1e6)
    index.replace("memory/a.md", lines("a cat", "an automobile"))
    index.put_vectors("m", {("memory/a.md", "0"): vector("a cat")})

    def found() -> set[str]:
        return set(keys(index.search("?", vector=vector("cat"))))

    assert found() == {"0"}
    index.put_vectors("m", {("memory/a.md", "1"): vector("an automobile")})
    assert found() == ({"0"} if library == "with numpy" else {"0", "1"})
    index.replace("memory/a.md", lines("a tomato", "an automobile"))
    assert "0" not in found(), "what is gone is found"
    now += 1e9
    assert found() == {"1"}
    index.put_vectors("other", {("memory/a.md", "0"): vector("a tomato")})
    assert found() == {"0"}, "vectors of two models are compared"


@given(st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=8), st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=8))
def test_packed_vectors_are_about_as_near_as_the_real_ones(one: list[float], other: list[float]) -> None:
    a, b = vectors.unit(one), vectors.unit(other)
    if a is None or b is None:
        return
    exact = sum(x * y for x, y in zip(a, b, strict=True))
    assert vectors.cosine(*vectors.packed(one), b) == pytest.approx(exact, abs=0.02)


def test_tiny_and_huge_vectors_have_the_same_direction() -> None:
    for size in (1e-300, 1.0, 1e300):
        assert vectors.unit([3 * size, 4 * size]) == pytest.approx([0.6, 0.8])


def test_places_count_not_scores(index: Index) -> None:
    index.replace("memory/a.md", lines("word one", "word two", "word three", "other four"))
    with index._tables.reading() as connection:
        ids = dict(connection.execute("SELECT key, id FROM chunk"))
        found = in_order(connection, [(ids["0"], 90.0), (ids["1"], 3.0), (ids["2"], 2.0)])
        best = fused(connection, found, {ids["2"]: 0.9, ids["3"]: 0.8})
    assert [(one.name[1], one.score) for one in best] == [
        ("2", 1 / 63 + 1 / 61),
        ("0", 1 / 61),
        ("1", 1 / 62),
        ("3", 1 / 62),
    ]
