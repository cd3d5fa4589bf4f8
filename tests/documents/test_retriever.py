"""Finding: what goes with a question, in the room that there is, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from indexing_kit import made

from kvchat.documents.collection import Collection, Passage, tokens_of
from kvchat.documents.indexing.index_run import index_collection
from kvchat.documents.library import Library
from kvchat.documents.retriever import found
from kvchat.store import Store

FILES = {
    "loops.md": "# Loops\n\nYou may think that this is wrong, but continue skips the rest of a loop.\n",
    "arrays.md": "# Arrays\n\nA result may be shorter than the array; 1 is the first index. To explain it again in a "
    "simple way, look below. The time of a test is short, and a bug is easy to fix.\n",
    "horn.md": "# Signals\n\nThe fog horn sounds three times a minute while the granite tower stands in mist.\n",
}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    store = Store.open(tmp_path / "data")
    opened = Library.open(store, tmp_path / "data" / "index.db")
    yield opened
    opened.close()
    store.close()


def added(library: Library, folder: Path, files: dict[str, str]) -> Collection:
    collection = library.add(str(made(folder, files)), "n")
    assert not index_collection(library.index, collection, library.options).trouble
    return collection


def brought(library: Library, question: str, *, tokens: int = 900, named: bool = False) -> list[Passage]:
    return found(library, question, ["docs/n/"], (), most=6, tokens=tokens, named=named)


# -- what is about something else


@pytest.mark.parametrize(
    "said",
    [
        "What do you think?",
        "continue",
        "Can you make it shorter?",
        "1",
        "test",
        "what is the time",
        "fix the bug",
        "Can you explain that again, more simply?",
        "ok great, thanks a lot!",
        "I feel sad today, my dog died",
        "my React component re-renders three times",
        "12 minutes",
        "how many stars are in a minute of arc?",
    ],
)
def test_small_talk_and_other_matters_bring_no_passages(library: Library, tmp_path: Path, said: str) -> None:
    added(library, tmp_path / "n", FILES)
    assert brought(library, said) == []


@pytest.mark.parametrize(
    "question",
    [
        "How often does the fog horn sound?",
        "signals in the mist around the tower",
        "what about arrays?",
        "Explain the horn signals again",
    ],
)
def test_a_question_about_the_texts_finds_them(library: Library, tmp_path: Path, question: str) -> None:
    added(library, tmp_path / "n", FILES)
    assert brought(library, question)


def test_a_word_that_stands_everywhere_brings_nothing_alone(library: Library, tmp_path: Path) -> None:
    added(library, tmp_path / "n", {f"{n}.md": f"# {n}\n\nThe quokka, a quokka and number {n}.\n" for n in range(60)})
    assert brought(library, "Quokka!") == []
    assert brought(library, "Quokka!", named=True)


# -- the room that there is


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        (
            "灯台の霧笛は濃い霧の夜に三十秒ごとに鳴る。守り人は毎晩ランプの油を確かめ、記録簿に天気を書く。",
            "霧笛は何秒ごとに鳴るか",
        ),
        (
            "Маяк стоит на северном мысе острова. Туманный горн звучит каждые тридцать секунд. ",
            "Как часто звучит горн?",
        ),
        ("המגדלור עומד על הכף הצפוני של האי. צופר הערפל נשמע כל שלושים שניות. ", "צופר הערפל"),
        ("def horn(): return fog.horn(seconds=30) ", "fog horn"),
    ],
)
@pytest.mark.parametrize("window", [1024, 4096, 8192])
def test_the_best_passage_goes_in_any_script_and_window(
    library: Library,
    tmp_path: Path,
    sentence: str,
    question: str,
    window: int,
) -> None:
    added(library, tmp_path / "n", {"a.md": "# T\n\n" + (sentence * 10 + "\n\n") * 6})
    best, *others = brought(library, question, tokens=window // 10, named=True)
    assert best.tokens <= 2 * (window // 10)
    assert sum(one.tokens for one in others) <= max(0, window // 10 - best.tokens)
    whole = next(chunk.text for chunk in library.index.get("docs/n/a.md") if best.ref.endswith(f"#{chunk.key}"))
    assert whole.startswith(best.text) and len(best.text) > 40
    if len(best.text) < len(whole):
        assert whole[len(best.text)].isspace() or best.text.endswith("。")


def test_a_passage_that_was_cut_is_not_sent_twice(library: Library, tmp_path: Path) -> None:
    added(library, tmp_path / "n", {"a.md": "A brass horn sounds in the fog. " * 30})
    (best,) = brought(library, "brass horn", tokens=60, named=True)
    assert len(best.text) < 300
    assert found(library, "brass horn", ["docs/n/"], [best.block], most=6, tokens=60, named=True) == []


def test_a_passage_counts_all_that_it_brings_into_a_question() -> None:
    passage = Passage("docs/n/a.md#1-2", "H" * 400, "text " * 20, 1.0, 1)
    assert passage.tokens >= tokens_of(passage.block.source) + tokens_of(passage.block.text) > 120


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("灯台の霧笛は濃い霧の夜に", 12, 12),
        ("а" * 100, 40, 40),
        ("a" * 100, 25, 25),
        ("등대의 안개 고동", 7, 9),
        ("", 0, 0),
    ],
)
def test_tokens_are_counted_by_the_script(text: str, least: int, most: int) -> None:
    assert least <= tokens_of(text) <= most


# -- nothing twice


def test_nearly_the_same_text_goes_once(library: Library, tmp_path: Path) -> None:
    text = "The fog horn of the northern cape sounds three times a minute and is driven by a brass clockwork"
    added(
        library,
        tmp_path / "n",
        {
            **{f"copy{n}.md": f"{text}, number {n}.\n" for n in range(5)},
            "other.md": "Another fog horn, on the southern cape, was sold for scrap.\n",
        },
    )
    assert len(brought(library, "fog horn on the cape", named=True)) == 2


def test_one_file_does_not_crowd_out_the_others(library: Library, tmp_path: Path) -> None:
    def part(topic: str) -> str:
        return f"# The fog horn {topic}\n\n" + " ".join(f"{topic}{n}" for n in range(120)) + "\n\n"

    added(
        library,
        tmp_path / "n",
        {
            "long.md": "".join(map(part, "abcdefgh")),
            **{f"{name}.md": f"A fog horn of {name}. " + " ".join(f"{name}{n}" for n in range(150)) for name in "xyz"},
        },
    )
    paths = [one.place.path for one in brought(library, "fog horn", tokens=9000, named=True)]
    assert len(paths) == 6 and paths.count("long.md") == 3
    scope = library.scope_of("n/long.md")
    assert scope is not None
    alone = found(library, "fog horn", [scope], (), most=6, tokens=9000, named=True)
    assert {one.place.path for one in alone} == {"long.md"} and len(alone) > 3


# -- names


def test_a_file_that_is_named_is_searched_alone(library: Library, tmp_path: Path) -> None:
    added(library, tmp_path / "n", {"a.md": "a quokka\n", "a.md2": "a quokka\n", "a.md.d/b.md": "a quokka\n"})
    file = library.scope_of("n/a.md")
    assert file is not None
    assert {passage.place.path for passage in library.search("quokka", 9, [file])} == {"a.md"}
    folder = library.scope_of("n/a.md.d/")
    assert folder is not None
    assert {passage.place.path for passage in library.search("quokka", 9, [folder])} == {"a.md.d/b.md"}
