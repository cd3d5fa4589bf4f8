"""Markup: HTML as a stream of tags and text, whatever its state.

The rule: the time it takes grows with the length of the text and with nothing else. So it reads as browsers do: what
is never closed ends with the file. (`html.parser` takes minutes for 100 kB of unclosed tags.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape

RAW = frozenset(("script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext", "noscript"))
"""Elements whose content is no markup; it is passed over, as it is never seen."""
ESCAPABLE = frozenset(("title", "textarea"))
"""Elements whose content is text with entities, but no tags."""
LONGEST_VALUE = 10_000
"""Characters of an attribute's value that are looked at."""

_TAG = re.compile(r"<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>\x00]*+)")
_ATTRIBUTE = re.compile(
    r"""[\s/]*+(?:(?P<close>>)|(?P<name>[^\s/>][^\s/>=]*+)"""
    r"""(?:\s*+=\s*+(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^\s>]*+)))?+)"""
)


@dataclass(frozen=True, slots=True)
class Text:
    """Text between tags, its entities decoded."""

    text: str
    at: int
    """Where it begins in the source, in characters."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A start tag or an end tag."""

    name: str
    at: int
    end: bool = False
    empty: bool = False
    """Whether it is written `<x/>`; only in XML this closes it."""
    attributes: Mapping[str, str] = field(default_factory=dict)


def tokens(source: str) -> Iterator[Tag | Text]:
    """The tags and texts of `source`, in order. Comments, declarations and the content of `RAW` elements are left
    out; of these elements the tags come."""
    at = text_from = 0
    xml = source.lstrip("\ufeff \t\r\n").startswith("<?xml")
    while (at := source.find("<", at)) >= 0:
        end = _skipped(source, at)
        found = None if end else _TAG.match(source, at)
        if not end and not found:
            at += 1
            continue
        if at > text_from:
            yield Text(unescape(source[text_from:at]), text_from)
        if found:
            tag, end = _tag(source, found)
            if tag is None:
                return
            yield tag
            if xml and tag.empty:
                yield Tag(tag.name, tag.at, end=True)
            elif not tag.end and tag.name in RAW | ESCAPABLE:
                closed = _closing(source, tag.name, end)
                if tag.name in ESCAPABLE:
                    yield Text(unescape(source[end:closed]), end)
                end = closed
        at = text_from = end
    if text_from < len(source):
        yield Text(unescape(source[text_from:]), text_from)


def _skipped(source: str, at: int) -> int:
    """Where the comment, declaration or instruction at `at` ends; 0 where there is none."""
    if source.startswith("<!--", at):
        if source.startswith((">", "->"), at + 4):
            return source.index(">", at) + 1
        return _after(source, "-->", at + 4)
    if source.startswith("<![CDATA[", at):
        return _after(source, "]]>", at)
    return _after(source, ">", at) if source.startswith(("<!", "<?"), at) else 0


def _after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return found + len(mark) if found >= 0 else len(source)


def _tag(source: str, opening: re.Match[str]) -> tuple[Tag | None, int]:
    """The tag that begins with `opening`, and where it ends; None where the file ends within it."""
    attributes: dict[str, str] = {}
    at = opening.end()
    while found := _ATTRIBUTE.match(source, at):
        at = found.end()
        if found["close"]:
            name = opening["name"].lower()
            return Tag(name, opening.start(), bool(opening["end"]), source[at - 2] == "/", attributes), at
        start, end = found.span("double")
        if start < 0:
            start, end = found.span("single") if found.start("single") >= 0 else found.span("bare")
        value = unescape(source[start : min(end, start + LONGEST_VALUE)]) if start >= 0 else ""
        attributes.setdefault(found["name"].lower(), value)
    return None, len(source)


def _closing(source: str, name: str, at: int) -> int:
    """Where the end tag of a `RAW` or `ESCAPABLE` element begins."""
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, at)
    return found.start() if found else len(source)
