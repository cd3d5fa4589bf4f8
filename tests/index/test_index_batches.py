"""Documents in batches, their order, dates and names, and where a search looks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from index_kit import keys, lines

from kvchat.index import index as module
from kvchat.index import index_file
from kvchat.index.index import Chunk, Document, Index, exactly
from standins.embeddings import vector

Found = Callable[..., list[str]]


def document(name: str, *texts: str, date: float | None = None) -> Document:
    return name, lines(*texts), "s", date


# Put in.


def test_a_batch_puts_in_and_takes_out_at_once(index: Index, found: Found) -> None:
    index.replace("docs/h/old.md", lines("lighthouse"))
    index.replace_all(
        [document("docs/h/a.md", "harbour"), document("docs/h/b.md", "harbour", "island")],
        gone=["docs/h/old.md", "docs/h/never.md"],
    )
    assert index.docs() == {"docs/h/a.md": "s", "docs/h/b.md": "s"}
    assert found("lighthouse") == [] and len(found("harbour")) == 2
    index.replace_all([])
    assert (len(index.docs()), index.count()) == (2, 3)


def test_a_document_that_is_gone_and_put_in_again_in_one_batch_is_there(index: Index, found: Found) -> None:
    index.replace("docs/h/a.md", lines("lighthouse"))
    index.replace_all([document("docs/h/a.md", "harbour")], gone=["docs/h/a.md"])
    assert (found("lighthouse"), found("harbour")) == ([], ["0"])


def test_a_batch_that_fails_in_its_middle_leaves_nothing_of_itself(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index.db")
    index.replace("docs/h/a.md", lines("lighthouse"), "1")
    with pytest.raises(AttributeError):
        index.replace_all(
            [document("docs/h/b.md", "island"), ("docs/h/c.md", [None], "s", None)],  # type: ignore[list-item]
            gone=["docs/h/a.md"],
        )
    assert index.docs() == {"docs/h/a.md": "1"} and keys(index.search("lighthouse island")) == ["0"]
    index.close()


def test_chunks_are_given_back_in_their_order(index: Index) -> None:
    chunks = [Chunk("9-12", "A", "one"), Chunk("1-8", "B", "two"), Chunk("13", "C", "three")]
    index.replace("docs/h/a.md", chunks)
    assert index.get("docs/h/a.md") == chunks
    edited = [Chunk("0", "", "new"), chunks[1], chunks[0]]
    index.replace("docs/h/a.md", edited)
    assert index.get("docs/h/a.md") == edited
    assert index.get("docs/h/a.md", ["9-12", "0", "none"]) == [edited[0], chunks[0]]
    assert index.get("docs/h/a.md", []) == [] == index.get("docs/h/b.md")


@pytest.mark.parametrize(
    "after",
    [
        {"2-9": "small cat", "10-19": "two cats", "20-29": "three cats"},
        {"1-9": "two cats", "10-19": "small cat", "20-29": "three cats"},
        {"0": "new", "1-9": "new too", "21-30": "two cats", "x": "small cat", "y": "three cats"},
    ],
)
def test_a_chunk_that_only_moved_keeps_its_vector_and_is_found_under_its_new_key(
    after: dict[str, str], index: Index, found: Found
) -> None:
    index.replace(
        "docs/h/a.md", [Chunk("1-9", "", "small cat"), Chunk("10-19", "", "two cats"), Chunk("20-29", "", "three cats")]
    )
    index.put_vectors("m", {(doc, chunk.key): vector(chunk.text) for doc, chunk in index.without_vector("m", 9)})
    moved = [Chunk(key, "", text) for key, text in after.items()]
    index.replace("docs/h/a.md", moved)
    assert index.get("docs/h/a.md") == moved
    assert [chunk.text for _, chunk in index.without_vector("m", 9)] == [
        text for text in after.values() if text.startswith("new")
    ]
    assert found("small") == [key for key, text in after.items() if text == "small cat"]
    anew = Index.open(None)
    anew.replace("docs/h/a.md", moved)
    assert index.digest() == anew.digest()


def test_of_equal_chunks_each_key_has_one(index: Index) -> None:
    same = [Chunk(str(number), "", "the same lighthouse") for number in range(4)]
    index.replace("docs/h/a.md", same)
    fewer = [Chunk("7", "", "the same lighthouse"), Chunk("2", "", "the same lighthouse")]
    index.replace("docs/h/a.md", fewer)
    assert index.get("docs/h/a.md") == fewer and (len(index.docs()), index.count()) == (1, 2)
    assert sorted(keys(index.search("lighthouse"))) == ["2", "7"]


# Where a search looks.

NAMES = ("docs/h/a.md", "docs/h/a.md2", "docs/h/a.md/b.md", "docs/h/guide/b.md", "docs/i/a.md", "memory/a.md", "a.md")


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (
            ["docs/h/", "memory/"],
            {"docs/h/a.md", "docs/h/a.md2", "docs/h/a.md/b.md", "docs/h/guide/b.md", "memory/a.md"},
        ),
        (["docs/i/", "docs/h/guide/"], {"docs/i/a.md", "docs/h/guide/b.md"}),
        (["docs/", "docs/h/"], {name for name in NAMES if name.startswith("docs/")}),
        (["docs/h/a", "memory/"], {"docs/h/a.md", "docs/h/a.md2", "docs/h/a.md/b.md", "memory/a.md"}),
        (exactly("docs/h/a.md"), {"docs/h/a.md"}),
        (exactly("a.md"), {"a.md"}),
        ([exactly("docs/h/a.md2"), exactly("docs/i/a.md"), exactly("none")], {"docs/h/a.md2", "docs/i/a.md"}),
        ([exactly("docs/h/a.md"), "memory/"], {"docs/h/a.md", "memory/a.md"}),
        ([exactly("docs/h/a.md"), "mem"], {"docs/h/a.md", "memory/a.md"}),
        (exactly("docs/h"), set()),
        (exactly("docs/h/"), set()),
        ("docs/h/a.md", {"docs/h/a.md", "docs/h/a.md2", "docs/h/a.md/b.md"}),
        ([], set()),
        ((), set()),
        (["docs/h/", ""], set(NAMES)),
        (["no/", "none"], set()),
    ],
)
def test_several_scopes_and_single_documents_are_looked_at_together(
    scope: str | list[str], expected: set[str], index: Index
) -> None:
    index.replace_all([document(name, "lighthouse") for name in NAMES])
    assert {hit.doc for hit in index.search("lighthouse", scope=scope)} == expected
    assert index.docs(scope).keys() == expected
    assert index.count(scope) == len(expected)
    assert index.frequencies(["lighthouse"], 99, scope=scope) == [len(expected)]
    assert {doc for doc, _ in index.without_vector("m", 99, scope)} == expected
    index.put_vectors("m", {(name, "0"): vector("lighthouse") for name in NAMES})
    assert {hit.doc for hit in index.search("?", scope=scope, vector=vector("lighthouse"))} == expected


@pytest.mark.parametrize("scope", ["", "docs/", ["docs/h/", "docs/i/"], "do", exactly("docs/h/b")])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"since": 20.0}, {"b", "c"}),
        ({"until": 20.0}, {"a"}),
        ({"since": 20.0, "until": 30.0}, {"b"}),
        ({"since": 30.5}, set()),
        ({"since": 0}, {"a", "b", "c"}),
        ({}, {"a", "b", "c", "never"}),
    ],
)
def test_dates_bound_what_is_found_by_words_and_by_vectors(
    scope: str | list[str], bounds: dict[str, float], expected: set[str], index: Index
) -> None:
    index.replace_all(
        [
            document(f"docs/h/{name}", "lighthouse", date=date)
            for name, date in (("a", 10.0), ("b", 20.0), ("c", 30.0), ("never", None))
        ]
    )
    index.put_vectors("m", {(f"docs/h/{name}", "0"): vector("lighthouse") for name in ("a", "b", "c", "never")})
    if scope == exactly("docs/h/b"):
        expected = expected & {"b"}
    for query, with_vector in (("lighthouse", None), ("?", vector("lighthouse"))):
        hits = index.search(query, scope=scope, vector=with_vector, **bounds)
        assert {hit.doc.rpartition("/")[2] for hit in hits} == expected


def test_a_document_that_was_touched_has_its_new_date(index: Index) -> None:
    for date in (10.0, 20.0, None, 30.0):
        index.replace("docs/h/a.md", lines("lighthouse"), "s", date=date)
    assert keys(index.search("lighthouse", since=25.0)) == ["0"]
    assert index.search("lighthouse", until=25.0) == []


# Names to complete with.


@pytest.fixture
def named(index: Index) -> Callable[..., list[str]]:
    paths = [
        "guide/setup.md",
        "guide/linux/setup.md",
        "guide/use.md",
        "Setup notes.txt",
        "src/100%_sure.py",
        "src/setup/all.py",
        "z.md",
    ]
    index.replace_all(
        [
            *(document(f"docs/h/{path}", "text") for path in paths),
            document("docs/hh/setup.md", "text"),
            ("docs/h/picture.png", [], "skipped", None),
            ("docs/h/pictures/a.png", [], "skipped", None),
        ]
    )
    return lambda beginning, most=20, scope="docs/h/": [
        name.removeprefix("docs/h/") for name in index.names(scope, beginning, most)
    ]


def test_a_name_is_completed_by_one_of_each_folder_and_the_files_at_its_place(named: Callable[..., list[str]]) -> None:
    assert named("") == ["Setup notes.txt", "guide/linux/setup.md", "src/100%_sure.py", "z.md"]
    assert named("gu")[0] == "guide/linux/setup.md" and named("gu", 1) == ["guide/linux/setup.md"]
    assert named("guide/") == ["guide/linux/setup.md", "guide/setup.md", "guide/use.md"]
    assert named("guide/u") == ["guide/use.md"]
    assert named("", 2) == ["Setup notes.txt", "guide/linux/setup.md"]


def test_files_and_folders_that_begin_so_anywhere_come_after_those(named: Callable[..., list[str]]) -> None:
    assert named("setup") == ["guide/setup.md", "Setup notes.txt", "src/setup/all.py", "guide/linux/setup.md"]
    assert named("setup", 1) == ["guide/setup.md"]
    assert named("100%_") == ["src/100%_sure.py"]
    assert named("%") == named("_") == named("s%e") == named("100%x") == []


def test_what_was_skipped_completes_nothing(named: Callable[..., list[str]], index: Index) -> None:
    assert named("pict") == []
    assert index.names("docs/h/guide/", "", 1) and not index.names("docs/h/none/", "", 1)


def test_all_names_stay_reachable_in_a_large_collection(index: Index) -> None:
    index.replace_all(
        [document(f"docs/h/{folder}/{number:04}.md", "text") for folder in "abc" for number in range(300)]
    )
    assert index.names("docs/h/", "", 5) == [f"docs/h/{folder}/0000.md" for folder in "abc"]
    assert index.names("docs/h/", "b/", 2) == ["docs/h/b/0000.md", "docs/h/b/0001.md"]


# Large indexes.


def test_common_words_of_a_question_do_not_hide_what_its_rare_ones_find(index: Index, found: Found) -> None:
    index.replace(
        "docs/h/a.md",
        lines(
            *(
                f"{('report on an island', 'report on a harbour', 'letter')[number % 3]} {number}"
                for number in range(400)
            ),
            both="a lighthouse, an island",
            rare="a lighthouse, a bridge",
        ),
    )
    index.replace("memory/a.md", lines(*(f"a harbour {number}" for number in range(20))))
    for scope in ("", "docs/h/", ["docs/h/", "docs/i/"]):
        assert found("report on the lighthouse of the island", 3, scope=scope)[0] == "both"
        assert len(found("lighthouse harbour", 100, scope=scope)) == 100
        assert [hit.matched for hit in index.search("island report lighthouse", 3, scope=scope)] == [2, 1, 2]
    assert len(found("lighthouse harbour", scope="memory/")) == 8


def test_the_same_index_put_in_another_order_answers_a_long_question_alike(index: Index) -> None:
    documents = [
        document(f"docs/h/{number:03}.md", f"harbour {number % 7} island {number % 50} report {number % 11}")
        for number in range(300)
    ]
    index.replace_all(documents)
    anew = Index.open(None)
    anew.replace_all(documents[::-1])
    for query in ("harbour island report 3 5", "harbour 6 report", "lighthouse harbour"):
        assert index.search(query, 20) == anew.search(query, 20)


# The file.


def test_an_index_that_was_locked_is_used_again_once_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "READ_MS", 10)
    monkeypatch.setattr(index_file, "WRITE_MS", 10)
    path = tmp_path / "index.db"
    index = Index.open(path)
    index.replace("docs/h/a.md", lines("lighthouse"))
    holder = index_file.connect(path)
    holder.execute("BEGIN EXCLUSIVE")
    assert index.search("lighthouse") == [] and index.path == path
    holder.close()
    assert keys(index.search("lighthouse")) == ["0"] and index.path == path
    index.close()


def test_a_closed_index_does_not_go_back_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.open(tmp_path / "index.db")
    index.replace("docs/h/a.md", lines("lighthouse"))
    index.close()
    monkeypatch.setattr(module.time, "monotonic", lambda: float("inf"))
    assert index.search("lighthouse") == []
