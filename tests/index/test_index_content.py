"""What is put in, what stays, what goes; and that an index grown by edits is the one made anew."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from index_kit import lines

from kvchat.index.index import Chunk, Index

Found = Callable[..., list[str]]


def test_what_is_replaced_is_no_longer_found_and_the_rest_stays(index: Index, found: Found) -> None:
    index.replace("memory/a.md", lines("lighthouse", "harbour", "island"), "1")
    index.replace("memory/a.md", [Chunk("0", "", "bridge"), Chunk("2", "", "island")], "2")
    assert [found(word) for word in ("lighthouse", "harbour", "bridge", "island")] == [[], [], ["0"], ["2"]]
    assert index.docs() == {"memory/a.md": "2"}


def test_the_last_of_two_chunks_with_one_key_counts(index: Index, found: Found) -> None:
    index.replace("memory/a.md", [Chunk("k", "", "lighthouse"), Chunk("k", "", "harbour")])
    assert (found("lighthouse"), found("harbour")) == ([], ["k"])


def test_a_head_that_changes_is_indexed_anew(index: Index, found: Found) -> None:
    index.replace("docs/a.md", [Chunk("k", "Old", "text")])
    index.replace("docs/a.md", [Chunk("k", "New", "text")])
    assert (found("old"), found("new")) == ([], ["k"])


def test_a_removed_document_is_gone_and_removing_it_again_is_no_error(index: Index, found: Found) -> None:
    index.replace("memory/a.md", lines("lighthouse"))
    index.replace("memory/b.md", lines("lighthouse"))
    for _ in range(2):
        index.remove("memory/a.md")
    assert [hit.doc for hit in index.search("lighthouse")] == ["memory/b.md"]
    assert index.docs() == {"memory/b.md": ""}


def test_a_document_without_chunks_is_known(index: Index) -> None:
    index.replace("memory/a.md", [], "1")
    assert index.docs() == {"memory/a.md": "1"}


def test_everything_is_there_after_opening_it_again(index: Index, tmp_path: Path) -> None:
    index.replace("memory/a.md", lines("lighthouse"), "1")
    digest = index.digest()
    index.close()
    again = Index.open(tmp_path / "index.db")
    assert again.digest() == digest and again.docs() == {"memory/a.md": "1"}
    assert [hit.chunk.text for hit in again.search("lighthouse")] == ["lighthouse"]
    again.close()


def test_an_index_grown_by_edits_is_equal_to_one_made_anew(index: Index) -> None:
    dice = random.Random(5)
    words = ["lighthouse", "harbour", "Zürich", "東京タワー", "prefers", "preferred", "the", "C++", "naïve", "ปวดหัว"]
    docs: dict[str, list[Chunk]] = {}
    for _ in range(300):
        name = f"memory/{dice.randrange(12)}.md"
        if dice.random() < 0.2:
            docs.pop(name, None)
            index.remove(name)
        else:
            docs[name] = [
                Chunk(str(key), dice.choice(words), " ".join(dice.choices(words, k=5)))
                for key in dice.sample(range(9), dice.randrange(9))
            ]
            index.replace(name, docs[name], "s")
    anew = Index.open(None)
    for name in sorted(docs, reverse=True):
        anew.replace(name, reversed(docs[name]), "other")  # type: ignore[arg-type]
    assert index.digest() == anew.digest()
    assert index.digest("memory/1") == anew.digest("memory/1") != index.digest("memory/2")
    for query in [*words, "lighthouse harbour", "tokyo 東京 prefer"]:
        assert index.search(query, 20) == anew.search(query, 20)


def test_the_digest_tells_any_change_of_what_can_be_found(index: Index) -> None:
    index.replace("memory/a.md", [Chunk("k", "head", "text")])
    seen = {index.digest()}
    for doc, chunk in (
        ("memory/a.md", Chunk("k", "head", "texts")),
        ("memory/a.md", Chunk("k", "heads", "text")),
        ("memory/a.md", Chunk("l", "head", "text")),
        ("memory/b.md", Chunk("k", "head", "text")),
    ):
        index.remove("memory/a.md")
        index.replace(doc, [chunk])
        seen.add(index.digest())
    assert len(seen) == 5


def test_the_digest_tells_a_full_text_table_that_is_out_of_step(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index.db")
    index.replace("memory/a.md", lines("lighthouse"))
    before = index.digest()
    with index._tables.writing() as connection:
        connection.execute("INSERT INTO words(rowid, place, head, text) VALUES (99, '', '', 'stray')")
    assert index.digest() != before
    index.close()
