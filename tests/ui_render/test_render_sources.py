"""Citations in an answer's text, the sources below it, and the passages of a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from kvchat.documents.collection import place_of
from kvchat.prompt.context import FILE, NOTE, PASSAGE, ContextBlock
from kvchat.prompt.message import Message, Role, node
from kvchat.prompt.tree import Tree
from kvchat.ui import view_models
from kvchat.ui.runs import ending
from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument
from kvchat.ui.widgets.transcript.render.message import Folds, TranscriptItem, context_summary, foot_rows
from kvchat.ui.widgets.transcript.render.rows import Row, copied, text_of
from kvchat.ui.widgets.transcript.render.sources import CITE, MOST, linked, numbers_at, source_rows, sources_of


def passage(number: int, path: str = "guide/setup.md", where: str = "12-40", head: str = "") -> ContextBlock:
    ref = f"docs/handbook/{path}#{where}"
    return ContextBlock(PASSAGE, f"[{number}] {place_of(ref).title}" + (f", {head}" if head else ""), "Trim it.", ref)


KNOWN = {number: passage(number, where=f"{number}0-{number}9") for number in range(1, 10)}


def drawn(text: str, *numbers: int, width: int = 60) -> list[Row]:
    document = MarkdownDocument(width)
    document.update(text, final=True)
    return linked(document.rows, set(numbers))


def links(rows: Sequence[Row]) -> list[str]:
    return [run.text for row in rows for run in row.runs if CITE in run.tone.split()]


# -- which are cited


def test_an_answer_has_the_sources_it_names_in_the_order_it_names_them() -> None:
    found = sources_of("It burns oil [3], and is trimmed at dusk [1, 2]. Oil [3]. Nobody knows [12].", KNOWN)
    assert [number for number, _ in found] == [3, 1, 2]


def test_a_list_in_code_cites_nothing() -> None:
    assert sources_of("```py\nx = [1]\n```\nand `y = [2]`", KNOWN) == ()
    assert [number for number, _ in sources_of("```\n[1]\n```\nso [2]\n~~~\n[3]", KNOWN)] == [2]


@pytest.mark.parametrize("turns", [3, 30, 300])
def test_an_item_is_made_with_the_sources_of_its_answer_however_many_its_branch_has(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    at = node(None, Message(Role.SYSTEM, "You help."), 0.0)
    path = [at]
    for turn in range(turns):
        blocks = (passage(turn + 2), passage(1, where=f"{turn}-{turn}"))  # [1] has another meaning each time
        for message in (Message(Role.USER, "And?", blocks), Message(Role.ASSISTANT, f"[{turn + 3}, {turn + 2}, 1]")):
            at = node(at, message, 0.0)
            path.append(at)
    known: list[int] = []
    made = view_models.sources_of

    def counted(text: str, sources: Mapping[int, ContextBlock]) -> Sequence[tuple[int, ContextBlock]]:
        known.append(len(sources))
        return made(text, sources)

    monkeypatch.setattr(view_models, "sources_of", counted)
    conversation: Any = SimpleNamespace(tree=Tree(path), live=None, path=lambda: path)
    items = view_models.BranchItems(conversation, "m", datetime(2026, 1, 1, tzinfo=UTC))
    for turn in range(turns):
        expected = ((turn + 2, passage(turn + 2)), (1, passage(1, where=f"{turn}-{turn}")))
        assert items.item(2 * turn + 1).sources == expected and items.item(2 * turn).sources == ()
    assert known == [2] * turns


# -- in the text


def test_citations_are_marked_in_prose_lists_tables_and_emphasis() -> None:
    text = "So [1], and **[2, 3]**.\n\n- item [4-5]\n\n| a |\n|---|\n| [6] |\n"
    assert links(drawn(text, *range(1, 7))) == ["[1]", "[2, 3]", "[4-5]", "[6]"]


def test_only_known_numbers_outside_of_code_and_links_are_marked() -> None:
    text = "See [9], `[1]`, [1](https://e.test), a[1].\n\n```py\nx = [1]\n```\n"
    assert links(drawn(text, 1)) == []


def test_marking_changes_neither_what_is_drawn_nor_what_is_copied() -> None:
    text = "It is **trimmed [1] at** dusk [2], and `[1]` is code.\n\n- one [1]\n- two [2] and three [2]"
    document = MarkdownDocument(24)
    document.update(text, final=True)
    rows = linked(document.rows, {1, 2})
    assert text_of(rows) == text_of(document.rows)
    assert copied(rows) == copied(document.rows)


def test_a_click_on_a_citation_means_its_numbers_and_beside_it_nothing() -> None:
    (row,) = drawn("Öl 日本 [1, 2] end", 1, 2)
    at = cell_len("Öl 日本 ")
    assert [numbers_at(row, cell) for cell in (at - 1, at, at + 5, at + 6)] == [(), (1, 2), (1, 2), ()]
    assert numbers_at(row, 500) == ()


# -- below an answer


def test_sources_that_fit_stand_on_one_row_and_others_on_one_row_each() -> None:
    sources = ((1, passage(1)), (3, passage(3, "a.md", "1-2")))
    assert text_of(source_rows(sources, 80)) == [
        "",
        "Sources  [1] handbook/guide/setup.md:12-40 · [3] handbook/a.md:1-2",
    ]
    assert text_of(source_rows(sources, 40)) == [
        "",
        "Sources  [1] …dbook/guide/setup.md:12-40",
        "         [3] handbook/a.md:1-2",
    ]


def test_a_selected_answer_tells_the_key_where_there_is_room_and_keeps_its_height() -> None:
    for sources in (((1, passage(1)),), ((1, passage(1)), (3, passage(3)))):
        for width in (30, 45, 60, 90):
            plain, chosen = (source_rows(sources, width, selected=selected) for selected in (False, True))
            assert len(plain) == len(chosen) and all(cell_len(row.text) <= width for row in chosen)
    assert text_of(source_rows(((1, passage(1)),), 90, selected=True))[-1].endswith("setup.md:12-40  o open")


def test_a_click_on_a_listed_title_means_its_number() -> None:
    row = source_rows(((1, passage(1)), (3, passage(3, "a.md", "1-2"))), 80)[1]
    third = row.text.index("a.md")
    assert (numbers_at(row, 3), numbers_at(row, 20), numbers_at(row, third)) == ((), (1,), (3,))


def test_very_many_sources_are_listed_in_part() -> None:
    rows = text_of(source_rows([(number, passage(number)) for number in range(1, 51)], 60))
    assert len(rows) == 1 + MOST and rows[-1].strip() == f"and {51 - MOST} more: o shows all"


def test_a_hostile_source_is_shown_as_signs_in_its_width() -> None:
    evil = ContextBlock(PASSAGE, "[1] x\x1b]52;c;AAAA\x07\n[2] y\u202e", "t", "docs/x\x1b[2J/\x07#1-2")
    for width in (16, 40, 80):
        rows = source_rows(((1, evil),), width)
        assert all(cell_len(row.text) <= max(width, 22) for row in rows)
        assert not any(ord(char) < 32 or char == "\u202e" for row in rows for char in row.text)


def test_the_end_of_a_long_title_stays() -> None:
    assert ending("handbook/日本語/設定.md:1-2", 12) == "…設定.md:1-2"
    for width in range(1, 40):
        assert cell_len(ending("handbook/日本語/設定の手引き.md:12-40", width)) <= max(1, width)


def test_a_streaming_answer_has_no_sources_below_it_and_a_settled_one_has() -> None:
    item = TranscriptItem("n", Role.ASSISTANT, "M", text="So [1].", sources=sources_of("So [1].", KNOWN))
    assert any("Sources" in row for row in text_of(foot_rows(item, 80, Folds())))
    assert text_of(foot_rows(TranscriptItem("n", Role.ASSISTANT, "M", text="So [1]."), 80, Folds())) == [""]


# -- with a question


def test_the_context_of_a_question_says_how_many_passages_from_where() -> None:
    note = ContextBlock(NOTE, "kvchat", "The texts below are numbered.")
    one_file = context_summary([note, passage(1), passage(2, where="50-60")])
    assert one_file == "sent with: 2 passages from handbook/guide/setup.md"
    assert context_summary([passage(1), passage(2, "paper.pdf", "p3")]) == "sent with: 2 passages from handbook"
    file = ContextBlock(FILE, "[3] setup.md", "x", "/home/mara/setup.md#")
    both = context_summary([passage(1), file])
    assert both == "sent with: 1 passage from handbook/guide/setup.md · attached: setup.md"


def test_unfolded_passages_are_listed_by_number_and_title_without_their_text() -> None:
    blocks = (
        ContextBlock(NOTE, "kvchat", "The texts below are numbered."),
        passage(1, head="setup.md > Lamp"),
        passage(2, "paper.pdf", "p3"),
        ContextBlock("time", "2026", "Monday"),
    )
    item = TranscriptItem("n", Role.USER, "You", text="how?", blocks=blocks)
    rows = foot_rows(item, 80, Folds(context=True))
    assert text_of(rows)[1:5] == [
        "│ The texts below are numbered.",
        "│ [1] handbook/guide/setup.md:12-40  setup.md > Lamp",
        "│ [2] handbook/paper.pdf p. 3",
        "│ ",
    ]
    assert numbers_at(rows[2], 10) == (1,)
    assert "Trim" not in "".join(text_of(rows))
