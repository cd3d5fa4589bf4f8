"""The help: every key and command, every mark and glyph, and what the figures mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from textual.content import Content

from kvchat.commands.keymap import HelpRow
from kvchat.ui.screens.kit import (
    ACCENT,
    CACHED,
    GLYPHS,
    MARK_TONES,
    MUTED,
    FilterList,
    Heading,
    column,
    content,
    grouped,
    highlighted,
    kept,
)
from kvchat.ui.widgets import sidebar_rows

CACHE_GLYPHS = (
    ("█", "cached: the server had these tokens in its cache"),
    ("▒", "new: this turn added them, the server had to prefill them"),
    ("░", "wasted: prefilled again without need"),
)
RAIL = (
    ("┃", CACHED, "warm: the server has these tokens in a slot"),
    ("╎", CACHED, "kept: in its host cache or in a snapshot, from where they come back without a prefill"),
    ("│", MUTED, "cold: the next request prefills them"),
    (" ", MUTED, "no mark: the server does not tell, nothing was sent lately, or nothing of the answer has come yet"),
)
"""The marks left of the messages."""
FIGURES = (
    ("% cached", "cached tokens / prompt tokens: how much of the prompt came from the cache"),
    ("reuse", "cached tokens / (prompt tokens − new tokens): 100 % is the physical limit"),
    ("wasted", "evaluated tokens − new tokens: work that need not have been done"),
    ("saved", "time saved: cached tokens / measured prefill speed; a stopped turn saves nothing"),
    ("TTFT", "from sending to the first token, measured by kvchat"),
    ("prefill", "reading the prompt before an answer begins; its speed is tokens of the prompt in a second"),
    ("decode", "tokens of an answer in a second: the tok/s of its title, next to the number of its tokens"),
    ("context", "tokens of the conversation / tokens that fit into the server's window"),
    ("~", "an estimate: this server does not count it"),
    ("predicted", "cached tokens that kvchat expected, beside what the server said"),
    ("slot", "a place in the server for the state of one prompt; each answer needs one"),
    ("host cache", "the server's memory for states that have left their slot, from where they come back fast"),
    ("warm", "the server still holds the conversation: its next answer starts at once; cold: it is prefilled first"),
    ("warm-up", "the prefill of a conversation before you send, while you read or type"),
    ("keep", "/keep saves the server's state of a conversation after every turn, so that it is warm after a restart"),
    ("trunk", "files that conversations begin with, prefilled once for all of them"),
    ("another client", "a program on the same server, as a coding agent; what it costs: docs/coding-agents.md"),
    ("side request", "a request that is no part of the conversation: a title, a summary, memory"),
    ("side work", "side requests in spare time; a question ends them at once"),
    ("wasted by", "the causes of wasted tokens"),
    ("prediction", "requests of which kvchat knew the cached tokens to the token before it sent them"),
    ("status line", "the last request: cached and new tokens of its prompt; while one runs, tokens done / to do"),
    ("so far", "the time saved in this conversation"),
    ("▸ ▾", "folded, unfolded: a click or the key to fold changes it"),
    ("^", "Ctrl, where there is little room: ^N is Ctrl+N"),
    ("sent with", "what kvchat put in front of your text, once: the time, memories, passages, files"),
)
KEYS_CELLS = 23
SLASH_CELLS = 17


class HelpLine(NamedTuple):
    """A line of the help."""

    group: str
    keys: Content
    slash: str
    label: str
    words: str

    @property
    def text(self) -> str:
        """What the filter looks at."""
        return f"{self.group} {self.keys.plain} {self.slash} {self.label} {self.words}".casefold()


class HelpScreen(FilterList[HelpLine, None]):
    """All of it on one filtered list; the line under the cursor is shown in full below."""

    DEFAULT_CSS = "HelpScreen #detail { height: 2; margin: 1 0 0 2; }"
    heading = "Help"
    hints = (("rows.up rows.down", "move"), ("type", "to filter"), ("dialog.close", "close"))
    placeholder = "filter: a key, a command, a word"
    empty = "Nothing of this name."
    has_detail = True

    def __init__(self, rows: Mapping[str, Sequence[HelpRow]], *, query: str = "") -> None:
        super().__init__("-list -wide", query=query)
        self._lines = [*_actions(rows), *_legend()]
        self._texts = [line.text for line in self._lines]

    def find(self, query: str) -> Iterable[HelpLine | Heading]:
        return grouped([self._lines[at] for at in kept(self._texts, query)], lambda line: line.group)

    def detail(self, row: HelpLine | None) -> Content:
        if row is None:
            return content()
        words = f"{row.label}: {row.words}" if row.label else row.words
        return content(words, (f"  {row.slash}" if row.slash else "", MUTED))

    def draw(self, row: HelpLine, width: int) -> Content:
        wide = width >= 96
        first = row.keys if row.keys or wide else content((row.slash, MUTED))
        parts = [column(highlighted(first, self.query_text), KEYS_CELLS)]
        if wide:
            parts.append(column(highlighted(content((row.slash, MUTED)), self.query_text), SLASH_CELLS))
        return Content.assemble(*parts, highlighted(content(row.words), self.query_text))


def _actions(groups: Mapping[str, Sequence[HelpRow]]) -> Iterable[HelpLine]:
    for group, rows in groups.items():
        for row in rows:
            yield HelpLine(group, content((row.keys, ACCENT)), row.slash, row.label, row.help)


def _legend() -> Iterable[HelpLine]:
    for glyph, words in CACHE_GLYPHS:
        yield HelpLine("Cache", content((glyph * 3, GLYPHS[glyph])), "", "", words)
    for mark, glyph in sidebar_rows.GLYPHS.items():
        yield HelpLine("Marks of conversations", content((glyph, MARK_TONES[mark])), "", "", sidebar_rows.WORDS[mark])
    yield HelpLine("Marks of conversations", content(("•", ACCENT)), "", "", "an answer that you have not seen")
    for glyph, tone, words in RAIL:
        yield HelpLine("Marks beside messages", content((glyph, tone)), "", "", words)
    for name, words in FIGURES:
        yield HelpLine("Figures", content((name, ACCENT)), "", "", words)
