"""Source code with its words coloured, as HTML.

The rule: the text of the result is exactly the code that was given; what no highlighter knows stands plain.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pygments.lexer import Lexer

LONGEST = 100_000
"""Characters of code that are worth colouring; longer blocks stay plain."""

# The class of a span, by the kind of token; a kind without an entry takes that of its parent kind.
_CLASSES = {
    "Comment": "c",
    "Keyword": "k", "Operator.Word": "k", "Comment.Preproc": "k",
    "Literal.String": "s", "Literal.String.Escape": "n", "Literal.String.Interpol": "",
    "Literal.Number": "n", "Keyword.Constant": "n", "Name.Constant": "n",
    "Name.Function": "f", "Name.Class": "f", "Name.Namespace": "f",
    "Name.Builtin": "b", "Name.Tag": "b", "Name.Decorator": "b", "Name.Attribute": "b", "Name.Exception": "b",
    "Generic.Inserted": "i", "Generic.Deleted": "d", "Generic.Heading": "k", "Generic.Subheading": "f",
    "Generic.Prompt": "c", "Generic.Output": "c",
}


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _class(kind: str) -> str:
    while kind:
        if kind in _CLASSES:
            return _CLASSES[kind]
        kind = kind.rpartition(".")[0]
    return ""


def highlighted(code: str, language: str) -> str:
    """`code` as escaped HTML with `<span class=...>` around what is not plain."""
    lexer = _lexer(language.lower()) if language and len(code) <= LONGEST else None
    if lexer is None:
        return escape(code)
    try:
        # Many lexers know a line only by its end.
        tokens = [(str(kind).removeprefix("Token."), text) for kind, text in lexer.get_tokens(code + "\n")]
    except Exception:  # a highlighter's own defect on odd code must not cost the export
        return escape(code)
    if "".join(text for _, text in tokens) != code + "\n":
        return escape(code)
    tokens[-1] = (tokens[-1][0], tokens[-1][1][:-1])
    return "".join(_span(_class(kind), text) for kind, text in tokens)


def _span(name: str, text: str) -> str:
    return f'<span class="{name}">{escape(text)}</span>' if name and text.strip() else escape(text)
