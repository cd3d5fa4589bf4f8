"""Texts that are far too large: what drawing them costs grows with their length and no faster."""

from __future__ import annotations

import sys

import pytest

from kvchat.prompt.message import Role
from kvchat.ui.runs import Run, width_of
from kvchat.ui.widgets.transcript.entry import TranscriptEntry
from kvchat.ui.widgets.transcript.render import lazy_text, markdown, table
from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument
from kvchat.ui.widgets.transcript.render.message import Folds, TranscriptItem
from kvchat.ui.widgets.transcript.render.rows import copied, text_of
from kvchat.ui.widgets.transcript.render.wrap import plain_rows, wrapped


class Counted(str):
    """A text that counts the characters that are copied out of it."""

    copied = 0

    def __getitem__(self, key: object) -> str:
        part = super().__getitem__(key)  # type: ignore[index]
        Counted.copied += len(part)
        return Counted(part)


def drawn(text: str) -> list[str]:
    document = MarkdownDocument(80)
    document.update(text, final=True)
    assert copied(document.rows).split() == text.split(), "nothing is lost"
    return text_of(document.rows)


@pytest.mark.parametrize("text", ["word " * 100_000, "x" * 500_000, "日本 " * 50_000, "a  b\u0301 " * 50_000])
def test_of_one_long_line_each_character_is_copied_once(text: str) -> None:
    Counted.copied = 0
    rows = wrapped([Run(Counted(text), "style"), Run("", "close", "**")], 80)
    assert copied(rows).rstrip() == text.rstrip()
    assert Counted.copied <= 2 * len(text)


def test_of_a_table_of_100_000_lines_none_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[str] = []
    monkeypatch.setattr(
        table, "inline_lines", lambda text, style="", _references=(): laid_out.append(text) or [[Run(text, style)]]
    )
    text = "| a | b |\n|---|---|\n" + "".join(f"| {number} | {number * 7} |\n" for number in range(100_000))
    assert len(drawn(text)) >= 100_000 and laid_out == []
    document = MarkdownDocument(80)
    for part in range(1, 9):  # as it comes in
        document.update(text[: len(text) * part // 80])
    assert len(laid_out) <= 4 * table.MOST_LINES + 8


@pytest.mark.parametrize(
    "text",
    [
        "".join("  " * depth + "- item\n" for depth in range(3000)),
        "- " * 3000 + "x",
        "> " * 3000 + "x",
        "- a\n" * 60_000,
        "a\n\n" * 100_000,
        "word\n" * 100_000,
    ],
    ids=["lists by their indentation", "lists in a line", "quotes", "items", "paragraphs", "lines"],
)
def test_what_is_too_much_to_be_parsed_is_shown_as_it_was_written(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks_drawn: list[object] = []
    monkeypatch.setattr(markdown.BlockRenderer, "block", lambda self, block, *a: blocks_drawn.append(block) or [])
    parsed: list[int] = []
    known = markdown.block_tokens
    monkeypatch.setattr(markdown, "block_tokens", lambda text: parsed.append(len(text)) or known(text))
    drawn(text)
    assert blocks_drawn == [] and len(parsed) == 1


LONG = {
    "a line of words": "word " * 100_000,
    "a line without a space": "x" * 500_000,
    "a line of wide characters": "日本語の" * 100_000,
    "a line of joined ones": "日e\u0301👩\u200d🚀 " * 60_000,
    "many lines": "".join(f"line {number} {'x' * (number % 300)}\n" for number in range(20_000)),
}


@pytest.mark.parametrize("role", [Role.USER, Role.ASSISTANT])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_very_long_message_is_laid_out_where_it_is_seen(
    text: str, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[int] = []
    monkeypatch.setattr(
        lazy_text, "plain_rows", lambda text, width: laid_out.append(len(text)) or plain_rows(text, width)
    )
    entry = TranscriptEntry(TranscriptItem("1", role, "model", text=text), Folds(), 80)
    for row in (sys.maxsize, 0, 2000, sys.maxsize):
        before = sum(laid_out)
        row = entry.lay_out(row, 40, 80)
        seen = range(max(0, row - 40), min(entry.height, row + 80))
        assert len(seen) >= 40 and all(entry.is_laid_out(number) for number in seen)
        assert sum(laid_out) - before <= 3 * lazy_text.PART, "no more than what is around"
        assert copied(entry.rows(), (entry.body_start, 0)).split() == text.split(), "nothing is lost"
    assert sum(laid_out) == before, "nor laid out again"
    entry.lay_out(0, 0, sys.maxsize)
    body = entry.rows()[entry.body_start : -1]
    assert "".join("".join(text_of(body)).split()) == "".join(text.split())
    assert all(width_of(row.runs) <= 80 for row in body)
    if "\n" in text:
        assert text_of(body) == text_of(plain_rows(text.strip("\n"), 80)), "as if it had been laid out at once"


def test_a_message_that_is_selected_is_not_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    updated: list[int] = []
    known = MarkdownDocument.update
    monkeypatch.setattr(
        MarkdownDocument, "update", lambda self, text, **more: updated.append(len(text)) or known(self, text, **more)
    )
    entry = TranscriptEntry(TranscriptItem("1", Role.ASSISTANT, "model", text="**word** " * 100), Folds(), 80)
    entry.draw()
    body = entry.rows()[entry.body_start :]
    for change in (
        lambda: entry.set_selected(True),
        lambda: entry.set_keys(True),
        lambda: entry.set_folds(Folds(True)),
    ):
        change()
    assert updated == [900] and len(entry.rows()[entry.body_start :]) >= len(body) > 5
    entry.resize(40)
    entry.draw()
    assert len(updated) == 2 and len(entry.rows()) > len(body)
