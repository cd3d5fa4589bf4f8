"""The Markdown parser, set up so that no text vanishes.

HTML is text, links are never followed or guessed, reference definitions stay where they are, and every construct
depends only on the text around it, so that finished blocks need not be parsed again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvchat.latex import keep_latex

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_NESTING = 60
"""Levels of nested blocks that are parsed; what is nested deeper is shown as plain text."""
MAX_TEXT = 256 * 1024
"""Characters that are parsed at once: 0.4 s. A longer text is shown as it was written."""
MAX_TOKENS = 40_000
"""Tokens of blocks that are drawn: 8,000 items of a list."""
MAX_INLINE = 64 * 1024
"""Characters of one paragraph whose emphasis and links are looked for."""
MAX_BRACKETS = 400
"""Opening brackets in one paragraph up to which links are looked for: beyond, it takes quadratic time."""


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # 30 ms: not before there is Markdown to draw

    parser = keep_latex(MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING}))
    parser.enable(["table", "strikethrough"])
    # `inline` is called per paragraph by `inline_tokens`; `text_join` would hide which characters were escaped.
    return parser.disable(["reference", "html_block", "html_inline", "inline", "text_join"])


def block_tokens(text: str) -> list[Token] | None:
    """The block tokens of clean `text`; None when it is too long, or nested too deeply, to be parsed whole."""
    if len(text) > MAX_TEXT:
        return None
    tokens = _parser().parse(text)
    too_many = len(tokens) > MAX_TOKENS
    return None if too_many or any(token.level >= MAX_NESTING - 1 for token in tokens) else tokens


def inline_tokens(text: str) -> list[Token] | None:
    """The inline tokens of one paragraph; None when it is to be shown as it is."""
    if len(text) > MAX_INLINE or text.count("[") > MAX_BRACKETS:
        return None
    parser = _parser()
    tokens: list[Token] = []
    parser.inline.parse(text, parser, {}, tokens)
    return tokens
