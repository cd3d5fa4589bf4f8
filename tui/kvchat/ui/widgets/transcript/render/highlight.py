"""Colours of code: Pygments tokens mapped to a dozen style names.

Pygments is imported when the first fenced block with a language is drawn, never before, and a language it does not know
is plain text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kvchat.ui.runs import Run

if TYPE_CHECKING:
    from pygments.lexer import Lexer
    from pygments.token import _TokenType

HIGHLIGHT_LIMIT = 64 * 1024
"""Characters of code above which it stays plain: a quarter of a second of one core."""

_STYLES = {
    "Comment": "comment",
    "Keyword": "keyword",
    "Keyword.Constant": "number",
    "Operator.Word": "keyword",
    "Name.Function": "name",
    "Name.Class": "name",
    "Name.Decorator": "name",
    "Name.Tag": "keyword",
    "Name.Attribute": "name",
    "Name.Builtin": "builtin",
    "Name.Exception": "builtin",
    "Name.Namespace": "name",
    "Literal.String": "string",
    "Literal.Number": "number",
    "Literal": "string",
    "Generic.Deleted": "deleted",
    "Generic.Inserted": "inserted",
    "Generic.Heading": "name",
    "Generic.Subheading": "name",
    "Generic.Prompt": "comment",
}
CODE = "code"
_SPANS_LINES = re.compile(r"String|Comment(?!\.Single|\.Hashbang|\.Preproc)")


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except (ClassNotFound, ImportError):
        return None


@lru_cache(maxsize=256)
def _style(token: _TokenType) -> str:
    parts = tuple(token)
    while parts:
        name = _STYLES.get(".".join(parts))
        if name:
            return f"{CODE} {name}"
        parts = parts[:-1]
    return CODE


@lru_cache(maxsize=256)
def _spans_lines(token: _TokenType) -> bool:
    """Whether a token of this kind may go on in the next line."""
    return _SPANS_LINES.search(str(token)) is not None


def language_of(info: str) -> str:
    """The language in a fence's info string: its first word, in small letters."""
    word = info.strip().split(None, 1)[0] if info.strip() else ""
    return word.strip("{}.").split(",")[0].split(":")[0].lower()[:32]


def plain_lines(code: str) -> list[list[Run]]:
    """The lines of `code` in one style."""
    return [[Run(line, CODE)] if line else [] for line in code.split("\n")]


def highlighted(code: str, language: str) -> list[list[Run]]:
    """The lines of `code`, coloured as `language`; plain when it is unknown or the code is very long."""
    return highlighted_with_sync(code, language)[0]


def highlighted_with_sync(code: str, language: str) -> tuple[list[list[Run]], int]:
    """As `highlighted`, and the last line before which no string or comment is open: what follows can be coloured
    without what precedes it."""
    lexer = _lexer(language) if language and len(code) <= HIGHLIGHT_LIMIT else None
    if lexer is None:
        lines = plain_lines(code)
        return lines, len(lines) - 1
    lines = [[]]
    sync = 0
    for _, token, value in lexer.get_tokens_unprocessed(code):
        style = _style(token)
        parts = value.split("\n")
        for number, part in enumerate(parts):
            if number:
                lines.append([])
            if part:
                _put(lines[-1], part, style)
        if len(parts) > 1 and not _spans_lines(token):
            sync = len(lines) - 1
    return lines, sync


def _put(line: list[Run], text: str, style: str) -> None:
    """Add text to a line. What looks the same is one run, however many tokens it is: each costs at every paint."""
    if line and (line[-1].tone == style or text.isspace()):
        line[-1] = Run(line[-1].text + text, line[-1].tone)
    else:
        line.append(Run(text, style))
