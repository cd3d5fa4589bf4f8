"""Definitions of links and of footnotes in a file of several messages.

Markdown has one list of definitions for a whole file: where two answers number their links from [1], all of them lead
to the first one's address, and a [1] that is only text becomes a link. So a label that one message defines and another
one has too is given the message's number: `[the manual][1]` becomes `[the manual][1-2]`. Code stays as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_BRACKETS = r"\[((?:[^\[\]\\\n]|\\.)+)\]"
_LABEL = re.compile(_BRACKETS)
_FOOTNOTE = re.compile(r"^[ >]{0,9}\[(\^[^\]\s]+)\]:", re.MULTILINE)
_PLACE = re.compile(
    r"\\.|(?<!`)(?P<ticks>`+)(?!`)[\s\S]{0,999}?(?<!`)(?P=ticks)(?!`)"
    rf"|(?P<label>{_BRACKETS})(?P<behind>\[\]|(?={_BRACKETS})|\(|:)?"
)
"""A label where one can be, and what follows: nothing of a collapsed link, another label, an address, a definition."""

Shared = Callable[[str], bool]
"""Whether a normal form of a label is of several messages."""


def _normal(label: str) -> str:
    """The form in which CommonMark compares labels."""
    return " ".join(label.split()).lower().upper()


def shared_labels(texts: Iterable[str]) -> Collection[str]:
    """The normal forms of the labels that several of these texts have."""
    found = Counter(label for text in texts for label in {_normal(one[1]) for one in _LABEL.finditer(text)})
    return {label for label, times in found.items() if times > 1}


def defines(text: str) -> bool:
    """Whether a text may have a definition; most have none."""
    return "]:" in text


def with_own_labels(
    text: str, number: int, shared: Shared, parser: MarkdownIt, prose: Iterable[tuple[int, int]]
) -> str:
    """Markdown `text` with `number` behind each shared label that it defines. `prose`: its line ranges outside code."""
    env: dict[str, Any] = {}
    parser.parse(text, env)
    places = [(label, one["map"][0]) for label, one in env.get("references", {}).items()]
    places += [(one["label"], one["map"][0]) for one in env.get("duplicate_refs", [])]
    notes = {_normal(label) for label in _FOOTNOTE.findall(text)}
    own = {label for label in (*dict(places), *notes) if shared(label)}
    if not own:
        return text
    lines = text.split("\n")
    for begin, end in prose:
        starts = {at - begin for label, at in places if label in own}
        lines[begin:end] = _renamed("\n".join(lines[begin:end]), number, own, notes, starts).split("\n")
    return "\n".join(lines)


def _renamed(text: str, number: int, own: Collection[str], notes: Collection[str], definitions: Collection[int]) -> str:
    """`definitions`: the lines in which one of `own` is defined."""
    label_ended = 0

    def put(found: re.Match[str]) -> str:
        nonlocal label_ended
        label, behind = found["label"], found["behind"]
        if label is None or (name := _normal(label[1:-1])) not in own:
            return found[0]
        named = f"{label[:-1]}-{number}]"
        if name in notes:
            return named + (behind or "")
        if behind == ":" and text.count("\n", 0, found.start()) in definitions:
            return f"{named}:"
        if text[found.start() - 1 : found.start()] == "]" and found.start() != label_ended:
            label_ended = found.start() + len(label)
            return named + (behind or "")
        if behind in ("(", ""):  # the text of a link
            return found[0]
        return f"{label}{named}{':' if behind == ':' else ''}"

    return _PLACE.sub(put, text)
