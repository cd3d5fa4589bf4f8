"""Markdown blocks as rows: headings, paragraphs, lists, quotes, rules, tables, code.

What a block looks like depends on its own source and its neighbour's kind only, so a finished block is never drawn
again because of what follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from kvchat.commonmark import References
from kvchat.ui.runs import Run, width_of
from kvchat.ui.widgets.transcript.render.code import code_rows
from kvchat.ui.widgets.transcript.render.inline import inline_lines, line_end
from kvchat.ui.widgets.transcript.render.rows import BLANK, GAP, Row, prefixed
from kvchat.ui.widgets.transcript.render.table import Table, TableLayout, TableLine, table_line
from kvchat.ui.widgets.transcript.render.wrap import plain_rows, wrapped

if TYPE_CHECKING:
    from markdown_it.token import Token

_BULLETS = "•◦▪"
_TASK = re.compile(r"\[([ xX])\](?: |$)")
_QUOTE = Run("▎ ", "quote-bar", "> ")
_NOTHING = re.compile(r"[\s>]*")
_STRUCTURE = re.compile(r"[\s>]*")
_ALIGN = re.compile("left|right|center")
_SET_APART = frozenset(("fence", "code_block", "table_open"))

Block: TypeAlias = "Sequence[Token]"
"""The tokens of one block, its opening first."""


def blocks_of(tokens: Sequence[Token]) -> Iterator[Block]:
    """The sibling blocks in `tokens`."""
    start = 0
    depth = 0
    for index, token in enumerate(tokens):
        depth += token.nesting
        if depth == 0:
            yield tokens[start : index + 1]
            start = index + 1


def start_line(block: Block) -> int:
    return block[0].map[0] if block[0].map else 0


def gap(previous: str | None, kind: str, blank: bool) -> list[Row]:
    """The empty row between a block of kind `previous` and one of `kind`; `blank`: whether the source has one."""
    if previous is None:
        return []
    if blank and previous != "heading_open":  # the end of a heading has the empty line of the source
        return [BLANK]
    return [GAP] if "heading_open" in (kind, previous) or kind in _SET_APART or previous in _SET_APART else []


class BlockRenderer:
    """Draws blocks parsed from `lines`; the code blocks it meets are added to `codes`."""

    def __init__(self, lines: Sequence[str], codes: list[str], references: References = ()) -> None:
        self._lines = lines
        self._codes = codes
        self._references = references

    def blank_above(self, block: Block) -> bool:
        """Whether the line above a block is empty."""
        start = start_line(block)
        return start > 0 and _NOTHING.fullmatch(self._lines[start - 1]) is not None

    def siblings(self, tokens: Sequence[Token], width: int, style: str = "", depth: int = 0) -> list[Row]:
        """The rows of blocks that stand one below the other."""
        rows: list[Row] = []
        previous: str | None = None
        for block in blocks_of(tokens):
            kind = block[0].type
            rows += gap(previous, kind, self.blank_above(block))
            rows += self.block(block, width, style, depth)
            previous = kind
        return rows

    def block(self, block: Block, width: int, style: str = "", depth: int = 0) -> list[Row]:
        """The rows of one block, `width` cells wide, on top of `style`; `depth` lists around it."""
        token = block[0]
        width = max(8, width)
        match token.type:
            case "paragraph_open":
                return self._paragraph(block[1].content, width, style)
            case "heading_open":
                return self._heading(token, block[1].content, width)
            case "bullet_list_open" | "ordered_list_open":
                return self.siblings(block[1:-1], width, style, depth)
            case "list_item_open":
                return self._item(block, width, style, depth)
            case "blockquote_open":
                inner = self.siblings(block[1:-1], width - 2, f"{style} quote".strip(), depth) or [Row()]
                return prefixed(inner, (_QUOTE,), (_QUOTE,))
            case "fence" | "code_block":
                return self._code(token, width)
            case "table_open":
                return TableLayout(width, self._references).rows(self.table(block))
            case "hr":
                return [Row((Run("─" * width, "rule", "---"),))]
            case _:
                return plain_rows(token.content, width, style)

    def _paragraph(self, text: str, width: int, style: str) -> list[Row]:
        lines = inline_lines(text, style, self._references)
        return [row for line in lines for row in wrapped(line, width, end=line_end(line))]

    def _heading(self, token: Token, text: str, width: int) -> list[Row]:
        level = int(token.tag[1])
        mark = Run("", "", "#" * level + " ")
        lines = inline_lines(text, f"heading h{level}", self._references)
        rows = [row for line in lines for row in wrapped(line, width, end=line_end(line))]
        rows[-1] = replace(rows[-1], end="\n\n")
        return prefixed(rows, (mark,), ())

    def _item(self, block: Block, width: int, style: str, depth: int) -> list[Row]:
        token = block[0]
        inner = list(block[1:-1])
        if token.info:
            mark = f"{token.info}{token.markup} "
            bullet = Run(mark, "bullet")
        else:
            mark = f"{token.markup} "
            bullet = Run(f"{_BULLETS[min(depth, 2)]} ", "bullet", mark)
        text = inner[1].content if inner and inner[0].type == "paragraph_open" else ""
        if task := _TASK.match(text):
            box = "☐ " if task[1] == " " else "☑ "
            bullet = Run(box, "bullet", f"{mark}{task[0]}")
            inner[1] = inner[1].copy(content=text[task.end() :])
        indent = width_of((bullet,))
        rows = self.siblings(inner, width - indent, style, depth + 1) or [Row()]
        return prefixed(rows, (bullet,), (Run(" " * indent, "", " " * len(mark)),))

    def _code(self, token: Token, width: int) -> list[Row]:
        fence = token.markup if token.type == "fence" else ""
        info = token.info.strip()
        self._codes.append(token.content.removesuffix("\n"))
        return code_rows(token.content, info, fence, len(self._codes), width)

    def table(self, block: Block) -> Table:
        """The table in `block`. Body rows are read from the source, as the parser drops surplus cells."""
        heads = [i for i, token in enumerate(block) if token.type == "th_open"]
        top = start_line(block)
        found = (_ALIGN.search(str(block[i].attrs.get("style", ""))) for i in heads)
        table = Table(
            TableLine(tuple(block[i + 1].content for i in heads), self._source(top)),
            self._source(top + 1),
            tuple(match[0] if match else "left" for match in found),
        )
        for token in block:
            if token.type == "tr_open" and token.map and token.map[0] > top:
                table.body.append(table_line(self._source(token.map[0]), len(heads)))
        return table

    def _source(self, number: int) -> str:
        """A line of a table without the indentation and the quote marks around it."""
        line = self._lines[number]
        match = _STRUCTURE.match(line)
        return line[match.end() :].rstrip() if match else line
