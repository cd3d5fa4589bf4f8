"""Citing: numbers go on over a branch, what stands there is not sent again, and what an answer's numbers mean."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.prompt.branching import awaited, under_system, without_turn
from kvchat.prompt.citations import (
    CITE,
    citations,
    cited,
    holds,
    is_there,
    name_of,
    number_of,
    numbered,
    resolved,
    sources,
)
from kvchat.prompt.context import FILE, NOTE, PASSAGE, SUMMARY, TIME, ContextBlock
from kvchat.prompt.message import Message, Node, Role, node, system_message
from kvchat.prompt.tree import Tree


def _passage(text: str, doc: str = "docs/handbook/a.md", where: str = "1-9") -> ContextBlock:
    return ContextBlock(PASSAGE, f"{doc.removeprefix('docs/')}:{where}", text, f"{doc}#{where}")


def _file(text: str, path: str = "/home/p/a.md", state: str = "0" * 16) -> ContextBlock:
    return ContextBlock(FILE, "a.md", text, f"{path}#{state}")


def _root() -> list[Node]:
    return [node(None, system_message("Be brief."), 0.0)]


def _asked(path: Sequence[Node], *blocks: ContextBlock, answer: str = "So.") -> list[Node]:
    question = node(path[-1], Message(Role.USER, "Why?", tuple(numbered(blocks, path))), 1.0)
    return [*path, question, node(question, Message(Role.ASSISTANT, answer), 2.0)]


def _numbers(path: Sequence[Node]) -> list[int]:
    return [number for message in path for block in message.message.blocks if (number := number_of(block)) is not None]


# -- numbers


def test_numbers_go_on_over_the_turns_and_the_note_is_said_once() -> None:
    path = _asked(_root(), _passage("one"), _passage("two"))
    path = _asked(path)
    path = _asked(path, _passage("three"))
    assert [block.source for block in path[1].message.blocks] == [
        "kvchat",
        "[1] handbook/a.md:1-9",
        "[2] handbook/a.md:1-9",
    ]
    assert path[1].message.blocks[0] == ContextBlock(NOTE, "kvchat", CITE)
    assert [block.source for block in path[5].message.blocks] == ["[3] handbook/a.md:1-9"]
    assert [sources(path)[number].text for number in (1, 2, 3)] == ["one", "two", "three"]


def test_other_blocks_keep_their_places_and_have_no_numbers() -> None:
    stamp = ContextBlock(TIME, "2026-01-01T00:00:00", "Thursday")
    paste = ContextBlock("paste", "[7] pasted", "x")
    found = numbered([stamp, paste, _passage("one")], _root())
    assert found[:2] == [stamp, paste] and [number_of(block) for block in found] == [None, None, None, 1]
    assert name_of(paste) == "[7] pasted"


def test_a_branch_numbers_on_from_its_own_path_only() -> None:
    shared = _asked(_root(), _passage("one"))
    left = _asked(shared, _passage("two"), _passage("three"))
    right = _asked(shared, _passage("four"))
    assert _numbers(left) == [1, 2, 3] and _numbers(right) == [1, 2]
    assert sources(left)[2].text == "two" and sources(right)[2].text == "four"
    forked = _asked(right[:3], _passage("two"))
    assert _numbers(forked) == [1, 2]


def test_a_branch_that_lost_its_first_turns_does_not_use_their_numbers_again() -> None:
    path = _asked(_asked(_root(), _passage("one"), _passage("two")), _passage("three"))
    tree = Tree(path)
    kept = under_system(tree, path[-1].id, Message(Role.SYSTEM, "Anew."), 3.0).nodes
    assert _numbers(_asked([kept[0], *kept[3:]], _passage("four"))) == [3, 4]


def test_numbers_that_only_a_summary_names_are_not_used_again() -> None:
    summary = ContextBlock(SUMMARY, "summary of 4 earlier turns", "Fired at 1240 degrees [2, 7], built in [1998].")
    question = node(_root()[0], Message(Role.USER, "And?", (summary,)), 1.0)
    assert _numbers(_asked([*_root(), question, awaited(question, _now())], _passage("one"))) == [8]


@pytest.mark.parametrize(
    ("answer", "number"),
    [("As [1] says.", 2), ("Both do [1][4].", 5), ("It was in [1998].", 1), ("x = a[3]", 1), ("So.", 1)],
)
def test_a_number_that_an_answer_names_keeps_its_meaning_after_its_turn_is_gone(answer: str, number: int) -> None:
    path = _asked(_asked(_root(), _passage("one")), answer=answer)
    left = without_turn(Tree(path), path[-1].id, path[1].id).nodes
    assert _numbers(_asked([path[0], *left], _passage("two"))) == [number]


def test_a_number_that_the_person_types_is_free() -> None:
    question = node(_root()[0], Message(Role.USER, "What is [7]?"), 1.0)
    assert _numbers(_asked([*_root(), question, awaited(question, _now())], _passage("one"))) == [1]


def _now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


def test_the_note_is_said_again_on_a_branch_that_lost_it() -> None:
    path = _asked(_asked(_root(), _passage("one")), _passage("two"))
    found = numbered([_passage("three")], [path[0], *path[3:]])
    assert [block.kind for block in found] == [NOTE, PASSAGE] and number_of(found[1]) == 3


def test_numbering_again_gives_the_same() -> None:
    path = _asked(_root(), _passage("one"))
    once = numbered([_passage("two"), _file("three")], path)
    assert numbered(once, path) == once
    first = numbered([_passage("two"), _file("three")], _root())
    assert numbered(first, _root()) == first


def test_a_number_of_another_branch_is_not_kept() -> None:
    path = _asked(_root(), _passage("one"), _passage("two"))
    found = numbered([ContextBlock(PASSAGE, "[1] handbook/b.md", "new", "docs/handbook/b.md#1-2")], path)
    assert [block.source for block in found] == ["[3] handbook/b.md"]


# -- what stands there already


def test_a_passage_that_stands_on_the_branch_is_left_out() -> None:
    path = _asked(_root(), _passage("one\ntwo\nthree\n", where="1-3"))
    assert numbered([_passage("one\ntwo\nthree\n", where="1-3"), _passage("\ntwo\n", where="2")], path) == []
    assert numbered([_passage("two", "docs/handbook/b.md", "2")], path) != []
    assert numbered([_passage("one\n2\nthree\n", where="1-3")], path) != []


def test_a_passage_that_is_given_twice_goes_once() -> None:
    assert [number_of(b) for b in numbered([_passage("one"), _passage("one")], _root())] == [None, 1]


def test_a_passage_of_an_attached_file_is_left_out_however_the_file_is_named() -> None:
    path = _asked(_root(), _file("one\ntwo\n", "/home/p/handbook/guide/a.md"))
    assert numbered([_passage("two", "docs/handbook/guide/a.md", "2")], path) == []
    assert numbered([_passage("two", "docs/handbook/a.md", "2")], path) == []
    assert numbered([_passage("two", "docs/handbook/uide/a.md", "2")], path) != []
    assert numbered([_passage("three", "docs/handbook/guide/a.md", "3")], path) != []


def test_another_state_of_an_attached_file_goes_even_if_the_old_one_had_all_of_it() -> None:
    path = _asked(_root(), _file("one\ntwo\n"))
    assert numbered([_file("one\ntwo\n")], path) == []
    shorter = _file("one\n", state="1" * 16)
    assert [block.text for block in numbered([shorter], path)] == ["one\n"]
    assert not holds(path[1].message.blocks[1], shorter)


def test_a_passage_that_is_as_it_was_before_its_last_change_is_sent_again() -> None:
    path = _asked(_asked(_root(), _passage("The tower is white.")), _passage("The tower is red."))
    again = numbered([_passage("The tower is white.")], path)
    assert [(number_of(block), block.text) for block in again] == [(3, "The tower is white.")]
    assert numbered([_passage("The tower is red.")], path) == []


def test_a_passage_that_was_shortened_is_sent() -> None:
    path = _asked(_root(), _passage("The tower is white, but red from May on."))
    assert [block.text for block in numbered([_passage("The tower is white")], path)] == ["The tower is white"]
    assert [block.text for block in numbered([_passage("The tower is white", where="1-2")], path)] != []


def test_a_passage_of_an_attached_file_that_was_changed_since_goes() -> None:
    path = _asked(_root(), _file("The tower is white.\nIt is high.\n"))
    assert numbered([_passage("It is high.", where="2")], path) == []
    change = ContextBlock(FILE, "change of a.md", "-The tower is white.", f"/home/p/a.md#{'0' * 16}..{'1' * 16}")
    assert numbered([_passage("It is high.", where="2", doc="docs/p/a.md")], _asked(path, change)) != []


def test_a_passage_from_the_middle_of_a_files_long_line_is_left_out() -> None:
    path = _asked(_root(), _file("The lamp turns. The tower is white. It is high, and old."))
    assert numbered([_passage("The tower is white.", where="1~2")], path) == []
    assert numbered([_passage("It is high", where="1~3")], path) != []


KINDS = st.sampled_from([PASSAGE, FILE, "paste", TIME])
BLOCKS = st.lists(
    st.builds(
        lambda kind, source, text, doc: ContextBlock(kind, source, text, f"docs/x/{doc}#1"),
        KINDS,
        st.sampled_from(["a", "[1] a", "[12] b", "[x] c"]),
        st.text("abc \n", max_size=3),
        st.sampled_from("pq"),
    ),
    max_size=4,
)
TURNS = st.lists(st.tuples(st.integers(0, 5), BLOCKS), min_size=1, max_size=8)


@given(TURNS)
def test_on_every_branch_of_every_tree_a_number_means_one_passage_that_stands_there_once(
    turns: list[tuple[int, list[ContextBlock]]],
) -> None:
    paths = [_root()]
    for after, blocks in turns:
        paths.append(_asked(paths[after % len(paths)], *blocks))
    for path in paths:
        numbers = _numbers(path)
        assert numbers == list(range(1, len(numbers) + 1))
        there = [b for message in path for b in message.message.blocks if b.kind in (PASSAGE, FILE)]
        for at, block in enumerate(there):
            assert not is_there(block, there[:at])
            before = [one for one in there[:at] if one.ref == block.ref]
            assert not before or (before[-1].kind, before[-1].text.strip()) != (block.kind, block.text.strip())
        said = [message for message in path for b in message.message.blocks if b.kind == NOTE]
        assert len(said) == (1 if numbers else 0)


# -- what an answer says


@corpus(
    ("text", "numbers"),
    [
        ("It is so [1].", [1]),
        ("[2, 3] and [4-6], also [7–8]; [9;1]", [2, 3, 4, 5, 6, 7, 8, 9, 1]),
        ("Both say it [1][2].", [1, 2]),
        ("(see below)[3] and **so**[4]", [3, 4]),
        ("According to [1]: yes.", [1]),
        ("[ 1 ] [1, 2-4; 9]", [1, 2, 3, 4, 9]),
        ("x = a[1] + f[2][3]", []),
        ("[1](http://e.test) ![2](x.png) [text][3] [4][ref]", []),
        ("[1][2](http://e.test)", [1]),
        ("So [1].\n\n[1]: http://e.test\n  [2]: x", [1]),
        ("`[1]` and ``a ` [2]`` but [3]", [3]),
        ("a ` tick [1]\n\nand ` another [2]", [1, 2]),
        ("```py\nx = [1]\n```\n[2]\n~~~\n[3]", [2]),
        ("- so:\n  ```\n  [1]\n  ```\n  [2]", [2]),
        ("> ```\n> [1]\n> ```\n[2]", [2]),
        ("````\n```\n[1]\n````\n[2]", [2]),
        ("[5-2] [1-2-3] [-1] [1.5] [a] [] [1,] [^1]", []),
        ("[999999999999] [1-9999999] [1-9999] [0-51]", []),
        ("[2-51]", list(range(2, 52))),
    ],
)
def test_the_numbers_an_answer_cites(text: str, numbers: list[int]) -> None:
    assert cited(text) == numbers


def test_citations_are_told_bracket_by_bracket() -> None:
    assert list(citations("so [1][2, 3]")) == [(3, 6, (1,)), (6, 12, (2, 3))]


def test_only_what_the_branch_has_is_resolved() -> None:
    known = {1: _passage("one"), 2: _passage("two")}
    assert resolved("[2] [9] [1-3]", known) == {2: known[2], 1: known[1]}


@given(st.text("[]()0123456789,;–- `~\n:a>", max_size=60))
def test_any_answer_gives_few_and_small_numbers(text: str) -> None:
    found = cited(text)
    assert len(found) == len(set(found)) <= 50 * len(text)
    assert all(0 <= number < 1_000_000 for number in found)
    for start, end, numbers in citations(text):
        assert text[start] == "[" and text[end - 1] == "]" and numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("[1]" * 100_000, [1]),
        ("[" + "1," * 100_000, []),
        ("x" + "`" * 200_000 + "[1]", [1]),
        ("".join("`" * at + " " for at in range(600)) + "[1]", [1]),
        ("` " * 100_001 + "[1] [2]", [1, 2]),
        ("> " * 100_000 + "```\n[1]", []),
        ("[ " * 100_000 + "1]", [1]),
        ("[1-9]" * 50_000, list(range(1, 10))),
        ("~~~\n[1]\n" * 50_000, [1]),
        ("\n\n" * 100_000 + "[1]", [1]),
    ],
    ids=range(10),
)
def test_long_and_odd_answers_are_read_like_others(text: str, numbers: list[int]) -> None:
    assert cited(text) == numbers
