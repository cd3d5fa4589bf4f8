"""Entries put into the lines of a page, changed and taken out. Pure.

The rule: only the lines of the entry are touched, and of these only as much as has to be: a text that stays is kept as
the person wrote it, with its indentation, its bullet and its check box.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvchat.memory.entry import BY_HAND, Entry
from kvchat.memory.pages.blocks import Item, blank, ending, goes_on
from kvchat.memory.pages.comment import comments, rendered
from kvchat.memory.pages.escape import decoded, encoded
from kvchat.memory.pages.lines import Block, Reading

BULLETS = ("-", "*", "+")

_LINK = re.compile(r"(?<!\\)\\\[(?:(\\\[)|(?=[^\[\]\\\n]+\]\([^()\s]*\)))")
"""An escaped bracket that begins a link: of two brackets, or with its address behind it."""


class Writing:
    """The lines of a page while they are changed."""

    def __init__(self, page: Reading) -> None:
        self._page = page
        self._lines = list(page.lines)
        """As many as there were; taken out ones are empty, new ones stand with the one before them."""
        self._end = next((end for line in page.lines if (end := ending(line))), "\n")
        self._made: set[int] = set()
        """Where the lines are others than before."""

    def insert(self, entries: Sequence[Entry]) -> None:
        """Put entries below the last list that kvchat wrote into, else below the last, else at the end."""
        page, lines = self._page, self._lines
        commented = [block.item for block in page.blocks if block.commented]
        below = _root((commented or page.items)[-1]) if page.items else None
        last = len(lines) - 1
        if below is not None:
            last = max(item.lines[-1] for item in page.items if _root(item) is below)
        before = lines[last]
        before += "" if ending(before) else self._end
        before += self._end if below is None and not blank(before) else ""
        indent, marker = (below.indent, below.marker) if below is not None else ("", "-")
        marker = marker if marker in BULLETS else "-"
        written = [line for entry in entries for line in _item(entry, indent, marker, "")]
        lines[last] = before + "".join(line + self._end for line in written)
        self._made.add(last)

    def take_out(self, block: Block) -> None:
        """Take out the lines of an entry, and the blank ones between them."""
        before = block.lines[0] - 1
        for at in block.lines:
            own = range(before + 1 if all(map(blank, self._lines[before + 1:at])) else at, at + 1)
            for line in own:
                self._lines[line] = ""
            self._made.update(own)
            before = at

    def rewrite(self, block: Block, entry: Entry) -> None:
        """Put `entry` where `block` is."""
        lines, first = self._lines, block.item.lines[0]
        last = ending(lines[first])
        if entry.text == block.entry.text and not block.commented:
            lines[first] = lines[first].rstrip(" \t\r\n") + " " + rendered(entry) + last
        elif entry.text == block.entry.text and block.comment is not None:
            self._comment_anew(block.item, rendered(entry))
        else:
            self.take_out(block)
            written = _item(entry, block.item.indent, block.item.marker, block.item.box)
            lines[first] = self._end.join(written) + last

    def text(self) -> str:
        """The page as it is now. Where what followed other lines would go on with new ones, a blank line keeps it
        apart; and a rule that comes to stand first must not begin a front matter."""
        done = [self._page.mark]
        last, made = "", False
        for at, line in enumerate(self._lines):
            if made and at not in self._made and (goes_on(line) if not blank(last) else
                                                  not last and line.rstrip() == "---"):
                done.append(self._end)
            done.append(line)
            made = at in self._made
            last = line or last
        return "".join(done)

    def _comment_anew(self, item: Item, comment: str) -> None:
        """Another comment where the only one stands."""
        for at in item.lines:
            line = self._lines[at]
            if found := comments(line.rstrip("\r\n")):
                self._lines[at] = line[:found[0].start] + comment + line[found[0].end:]


def _item(entry: Entry, indent: str, marker: str, box: str) -> list[str]:
    """The lines of an entry without their ends: the comment closes the first one."""
    first, *more = _markdown(entry.text) if entry.by == BY_HAND or entry.edited else encoded(entry.text)
    box = f"{box.rstrip()} " if box else ""
    margin = indent + " " * (len(marker) + 1)
    return [f"{indent}{marker} {box}{first} {rendered(entry)}", *(margin + line for line in more)]


def _markdown(text: str) -> list[str]:
    """The lines of a text that the person wrote in a file: links in it are links."""
    lines = encoded(text)
    linked = [_LINK.sub(lambda found: "[[" if found[1] else "[", line) for line in lines]
    return linked if "\n".join(map(decoded, linked)) == text else lines


def _root(item: Item) -> Item:
    while item.parent is not None:
        item = item.parent
    return item
