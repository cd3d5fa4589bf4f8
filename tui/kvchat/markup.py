"""Markdown as models write it, beyond CommonMark: emphasis in scripts without spaces, and a few tags of HTML.

CommonMark tells by spaces what stars open and close, and takes those of `**「重要」**です` for text. With the amendment
of https://github.com/tats-u/markdown-cjk-friendly a letter or mark of such a script next to the stars is enough.

`<br>`, `<kbd>`, `<sub>` and their kind are drawn where a tag has its end in the same paragraph, and `<details>` with
its summary where it has a line of its own; every other tag is text.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline.state_inline import Scanned, StateInline

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from markdown_it.utils import EnvType

TAG_BREAK, TAG_OPEN, TAG_CLOSE, TAG_HIDDEN = "tag_break", "tag_open", "tag_close", "tag_hidden"
"""The types of the tokens of tags; their `markup` is what was written."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Myanmar, Khmer
    "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"  # Hangul
    "\u2e80-\u2fff\u3000-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uffee"  # Chinese, Japanese, full-width forms
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff\U000e0100-\U000e01ef]"
)
"""Characters of scripts that are written without spaces, their marks and variation selectors included."""
_BREAK = re.compile(r"<br\s*/?>[ \t]*\n?[ \t]*", re.IGNORECASE)
_TAG = re.compile(r"<(kbd|sub|sup|b|strong|i|em|u|ins|s|del|mark|summary)>", re.IGNORECASE)
_NAMES = {"b": "strong", "i": "em", "ins": "u", "del": "s", "mark": "strong", "summary": "strong"}
_DETAILS = re.compile(r"</?details(?: open)?>[ \t]*(?:\n[ \t]*|\Z|(?=<summary>))", re.IGNORECASE)


def as_models_write(parser: MarkdownIt) -> MarkdownIt:
    """Have a parser take emphasis and tags as above."""
    inline = _Inline()
    inline.ruler, inline.ruler2 = parser.inline.ruler, parser.inline.ruler2
    inline.ruler.before("autolink", TAG_OPEN, _tag)
    parser.inline = inline
    return parser


class _Inline(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803
        scanned = super().scanDelims(start, canSplitWord)
        if self.src.isascii():
            return scanned
        before = self.src[start - 1] if start else " "
        after = self.src[start + scanned.length : start + scanned.length + 1] or " "
        if not (_UNSPACED.match(before) or _UNSPACED.match(after)):
            return scanned
        opens = not after.isspace() and (not _parts(after) or before.isspace() or _is_edge(before))
        closes = not before.isspace() and (not _parts(before) or after.isspace() or _is_edge(after))
        return Scanned(
            opens and (canSplitWord or not closes or _is_mark(before)),
            closes and (canSplitWord or not opens or _is_mark(after)),
            scanned.length,
        )


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _parts(character: str) -> bool:
    """Whether it is a mark that needs a space at its other side."""
    return _is_mark(character) and not _UNSPACED.match(character)


def _is_edge(character: str) -> bool:
    return _is_mark(character) or _UNSPACED.match(character) is not None


def _tag(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] != "<":
        return False
    if found := _BREAK.match(state.src, state.pos, state.posMax):
        if not silent:
            state.push(TAG_BREAK, "br", 0).markup = found[0]
        state.pos = found.end()
        return True
    found = _DETAILS.match(state.src, state.pos)
    if found and state.src[: state.pos].rstrip(" \t")[-1:] in ("", "\n"):
        if not silent:
            state.push(TAG_HIDDEN, "", 0).markup = found[0]
        state.pos = found.end()
        return True
    found = _TAG.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    closer = f"</{found[1]}>"
    start, limit = found.end(), state.posMax
    stop = state.src.find(closer, start, limit)
    if stop <= start:
        return False
    if not silent:
        name = _NAMES.get(found[1].lower(), found[1].lower())
        state.push(TAG_OPEN, name, 1).markup = found[0]
        state.pos, state.posMax = start, stop
        state.md.inline.tokenize(state)
        state.push(TAG_CLOSE, name, -1).markup = closer
        state.posMax = limit
    state.pos = stop + len(closer)
    return True
