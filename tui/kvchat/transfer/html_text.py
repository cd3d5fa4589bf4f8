"""Markdown from outside as HTML that can do nothing: no raw HTML, no image, no link but http, https and mailto.

The rule: the result holds only the elements and attributes that the functions here write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvchat.sanitize import clean
from kvchat.transfer.highlight import highlighted
from kvchat.transfer.markdown_text import is_heavy

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LINK_SCHEMES = frozenset({"http", "https", "mailto"})
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_LANGUAGE_LENGTH = 24


def to_html(text: str) -> str:
    """Markdown `text` as HTML. A line end is a line end, as in the chat it comes from."""
    text = clean(text).strip("\n")
    if is_heavy(text):
        return code_block(text)
    parser = _parser()
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"  # below the headings of the page
        elif token.type in ("th_open", "td_open"):
            align = str(token.attrs.pop("style", "")).removeprefix("text-align:")
            if align in ("right", "center"):
                token.attrs["class"] = align
    return str(parser.renderer.render(tokens, parser.options, {}))


def code_block(code: str, language: str = "") -> str:
    """`code` as a block, with the language's name if there is one."""
    label = f'<span class="lang">{escape(language)}</span>' if language else ""
    return f'<div class="code">{label}<pre><code>{highlighted(code, language)}</code></pre></div>\n'


def link_allowed(url: str) -> bool:
    """Whether a link may stand in the page: a scheme that only opens a page or a letter, and no disguised host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme not in LINK_SCHEMES or not all("!" <= char <= "~" for char in url):
        return False
    return parts.scheme == "mailto" or _HOST.fullmatch(parts.netloc) is not None


Tokens = Sequence["Token"]


def _fence(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    language = tokens[index].info.strip().split(" ", 1)[0]
    return code_block(tokens[index].content.removesuffix("\n"), language[:_LANGUAGE_LENGTH])


def _image(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    source = f"![{tokens[index].content}]({tokens[index].attrs.get('src', '')})"
    return f'<code class="image">{escape(source)}</code>'


def _link_open(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    url = str(tokens[index].attrs.get("href", ""))
    if not link_allowed(url):  # the parser checks every address but an empty one
        return "<span>"
    return f'<a href="{escape(url)}" rel="noreferrer noopener">'


def _link_close(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    opened = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
    return "</a>" if link_allowed(str(opened.attrs.get("href", ""))) else "</span>"


def _table_open(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    return '<div class="table"><table>\n'


def _table_close(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    return "</table></div>\n"


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.validateLink = link_allowed  # type: ignore[method-assign]
    rules: dict[str, Any] = {
        "fence": _fence, "code_block": _fence, "image": _image, "link_open": _link_open,
        "link_close": _link_close, "table_open": _table_open, "table_close": _table_close,
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser
