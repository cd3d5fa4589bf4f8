"""The Markdown parser, set up so that no text vanishes.

HTML is text but for a few tags (`kvchat.markup`), links are never followed or guessed, reference definitions stay where
they are, and every construct depends only on the text around it, so that finished blocks need not be parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from kvchat.latex import keep_latex
from kvchat.sanitize import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline.state_inline import StateInline
    from markdown_it.token import Token

References: TypeAlias = "tuple[tuple[str, str], ...]"
"""The labels that a text defines, folded, and the address of each."""

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
_DEFINITION = re.compile(
    r"^[ >]*\[(?!\^)([^\[\]\n]+)\]:[ \t]*<?([^\s<>]+)>?(?:[ \t]+(?:\".*\"|'.*'|\(.*\)))?[ \t]*$", re.MULTILINE
)
_LABEL = re.compile(r"\[([^\[\]]*)\]")
_FOOTNOTE = re.compile(r"\[\^(\d{1,3})\]")
_FENCED = re.compile(
    r"^(?P<indent> {0,3})(?P<fence>(?P<mark>[`~])(?P=mark){2,})(?P<info>[^`\n]*)\n"
    r"(?P<code>.*?)(?:^ {0,3}(?P=fence)(?P=mark)*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # 30 ms: not before there is Markdown to draw

    from kvchat.markup import as_models_write

    parser = keep_latex(as_models_write(MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})))
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("link", "footnote", _footnote)
    parser.inline.ruler.after("link", "reference_link", _reference)
    # `inline` is called per paragraph by `inline_tokens`; `text_join` would hide which characters were escaped.
    return parser.disable(["reference", "html_block", "html_inline", "inline", "text_join"])


def block_tokens(text: str) -> list[Token] | None:
    """The block tokens of clean `text`; None when it is too long, or nested too deeply, to be parsed whole."""
    if len(text) > MAX_TEXT:
        return None
    tokens = _parser().parse(text)
    too_many = len(tokens) > MAX_TOKENS
    return None if too_many or any(token.level >= MAX_NESTING - 1 for token in tokens) else tokens


def code_blocks(text: str) -> list[str]:
    """The contents of the code blocks of a text, in the order of their numbers."""
    tokens = block_tokens(text := clean(text))
    if tokens is None:
        return fenced_blocks(text)
    return [token.content.removesuffix("\n") for token in tokens if token.type in ("fence", "code_block")]


def fenced_blocks(text: str) -> list[str]:
    """The contents of the fences of a clean text that cannot be parsed whole, those within lists and quotations left
    out."""
    return [
        re.sub(rf"^ {{0,{len(found['indent'])}}}", "", found["code"], flags=re.MULTILINE).removesuffix("\n")
        for found in _FENCED.finditer(text)
    ]


def references_in(texts: Iterable[str]) -> References:
    """What the paragraphs `texts` define for links to refer to."""
    found: dict[str, str] = {}
    for text in texts:
        if "]:" in text:
            for label, address in _DEFINITION.findall(text):
                found.setdefault(_folded(label), address)
    return tuple(found.items())


def _folded(label: str) -> str:
    return " ".join(label.casefold().split())


def _footnote(state: StateInline, silent: bool) -> bool:
    found = _FOOTNOTE.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        token = state.push("footnote", "", 0)
        token.content, token.markup = found[1], found[0]
    state.pos = found.end()
    return True


def _reference(state: StateInline, silent: bool) -> bool:
    """`[text][label]`, `[label][]` and `[label]`, where the text defines that."""
    references = state.env.get("of_text")
    start = state.pos
    if not references or state.src[start] != "[":
        return False
    stop = state.md.helpers.parseLinkLabel(state, start, True)
    if stop < 0:
        return False
    text = state.src[start + 1 : stop]
    second = _LABEL.match(state.src, stop + 1, state.posMax)
    address = references.get(_folded(second[1] if second and second[1] else text))
    end = second.end() if second else stop + 1
    if address is None or (state.src[end : end + 1] == ":" and not second):
        return False
    if not silent:
        if not second and text.isdecimal():  # a number leads to the definition, which is shown
            token = state.push("reference", "", 0)
            token.content = f"[{text}]"
        else:
            limit = state.posMax
            state.pos, state.posMax = start + 1, stop
            token = state.push("link_open", "a", 1)
            token.attrs, token.info, token.markup = {"href": address}, "reference", state.src[stop + 1 : end]
            state.md.inline.tokenize(state)
            state.push("link_close", "a", -1)
            state.posMax = limit
    state.pos = end
    return True


def inline_tokens(text: str, references: References = ()) -> list[Token] | None:
    """The inline tokens of one paragraph; None when it is to be shown as it is."""
    if len(text) > MAX_INLINE or text.count("[") > MAX_BRACKETS:
        return None
    parser = _parser()
    tokens: list[Token] = []
    parser.inline.parse(text, parser, {"of_text": dict(references)} if references else {}, tokens)
    return tokens
