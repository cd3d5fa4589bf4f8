"""Foreign Markdown made harmless inside a larger Markdown file.

The rule: transform little, then check with a parser. What the check does not pass stands in a fence as plain text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_BACKTICKS = re.compile("`+")
_FENCE_RUNS = re.compile(r"`{3,}")
_SPECIAL = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])|(?<!\S)#")
# A code span of one line, or an image; the code span comes first, so an image in it is code already.
_SPAN_OR_IMAGE = re.compile(
    r"(?<!`)(?P<ticks>`+)(?!`)[^\n]{0,999}?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<image>!\[[^\]\n]{0,999}\](?:\([^)\n]{0,999}\)|\[[^\]\n]{0,999}\])?)"
    r"|(?P<tag><(?=[A-Za-z/!?]))"
    r"|(?P<other>!(?=\[))"
)
_SUSPECT = re.compile(r"<|!\[|`{3}|~{3}")
_LONGEST = 200_000
_MOST_BRACKETS = 3_000  # the parser looks for the partner of each
_END = "kvchat-end-of-message"


def is_heavy(text: str) -> bool:
    """Whether `text` is rather data than prose: parsing it as Markdown would take long and give nothing."""
    return len(text) > _LONGEST or text.count("[") > _MOST_BRACKETS


def escaped(line: str) -> str:
    """One line of plain text as Markdown that shows just that text."""
    return _SPECIAL.sub(lambda m: "\\" + m[0], line)


def quoted(text: str) -> str:
    """`text` as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def fenced(text: str, language: str = "") -> str:
    """`text` as a code block whose fence is longer than any inside."""
    longest = max((len(run) for run in _FENCE_RUNS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    body = text.strip("\n")
    return f"{fence}{language}\n{body}\n{fence}"


def code_span(text: str) -> str:
    """`text`, one line, as a code span."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def safe_markdown(text: str) -> str:
    """Clean Markdown `text` with images as code and HTML as text, closed at its end; code blocks stay as they are."""
    if not _SUSPECT.search(text):
        return text
    if is_heavy(text):
        return fenced(text, "text")
    lines = text.split("\n")
    for begin, end in _prose(lines):
        changed = _SPAN_OR_IMAGE.sub(_defused, "\n".join(lines[begin:end]))
        lines[begin:end] = changed.split("\n")
    result = _closed("\n".join(lines))
    return result if _harmless(result) else fenced(text, "markdown")


def _defused(match: re.Match[str]) -> str:
    if match["image"]:
        return code_span(match[0])
    return "\\" + match[0] if match["tag"] or match["other"] else match[0]


def _prose(lines: list[str]) -> list[tuple[int, int]]:
    """The line ranges outside code blocks."""
    code = [token.map for token in _parser().parse("\n".join(lines)) if token.type in ("fence", "code_block")
            and token.map]
    ranges, begin = [], 0
    for first, last in code:
        ranges.append((begin, first))
        begin = last
    return [(a, b) for a, b in [*ranges, (begin, len(lines))] if a < b]


def _closed(text: str) -> str:
    """`text` with its last fence closed, if an answer that was cut left it open."""
    if _ends(text):
        return text
    for mark in ("`", "~"):
        longest = max((len(run) for run in re.findall(f"{mark}{{3,}}", text)), default=3)
        for length in range(3, min(longest, 40) + 1):
            if _ends(closed := f"{text}\n{mark * length}"):
                return closed
    return text


def _ends(text: str) -> bool:
    """Whether what follows `text` after an empty line is a paragraph of its own."""
    tokens = _parser().parse(f"{text}\n\n{_END}\n")
    return len(tokens) >= 3 and tokens[-3].level == 0 and tokens[-2].type == "inline" and tokens[-2].content == _END


def _harmless(text: str) -> bool:
    return _ends(text) and not any(_live(token) for token in _parser().parse(text))


def _live(token: Token) -> bool:
    """Whether a viewer could fetch or run what `token` stands for."""
    return token.type in ("image", "html_block", "html_inline") or any(_live(t) for t in token.children or ())


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser
