"""One page of the memory: Markdown in, entries out, and changes of single entries. Pure.

The rule: a change touches the lines of its entry and no other byte. Headings, prose, code, front matter, blank lines,
line ends and the order of things are the person's.

Every list item is an entry, with what is indented below it. An item inside of another is an entry of its own when it
has a comment of kvchat's, and else belongs to the text around it. A line without a comment is the person's: its id
comes from page and text, and nothing is written into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvchat.memory.entry import PROFILE, Entry
from kvchat.memory.pages.lines import Reading, read
from kvchat.memory.pages.problem import PageProblem as PageProblem
from kvchat.memory.pages.writing import Writing

_BEGINNING = "# {title}\n\n{sentence} {freely}\n\n"
_FREELY = "Edit, move or delete lines as you like: what stands here is what kvchat knows."
_OF_PROFILE = "What kvchat remembers about you and tells the model at the beginning of every conversation."
_OF_TOPIC = "What kvchat remembers, one line each."


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of a page."""

    entry: Entry
    changed: bool
    """Whether kvchat wrote the line and its text is not what it wrote."""
    at: int
    """The number of its line, from 1."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it stands. Its changes give another page."""

    name: str
    text: str
    title: str
    entries: tuple[Line, ...]
    """In the order of the page, each id once."""
    when: float = 0.0
    """The `created` of lines that do not say it."""
    _reading: Reading = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def parse(cls, name: str, text: str, when: float = 0.0) -> Page:
        """Read a page. Raises PageProblem where it is broken, so that nobody takes its entries for deleted."""
        reading = read(name, text, when)
        lines = tuple(Line(block.entry, block.entry.edited, block.lines[0] + 1) for block in reading.blocks
                      if not block.copy)
        return cls(name, text, reading.title or title_of(name), lines, when, _reading=reading)

    def line(self, id: str) -> Line | None:
        """The line of an entry."""
        return next((line for line in self.entries if line.entry.id == id), None)

    def with_entry(self, entry: Entry) -> Page:
        """With the entry as one more line, below those that kvchat wrote; the same page when it is there already."""
        return self if self.line(entry.id) is not None else self._with([entry])

    def without(self, id: str) -> Page:
        """Without that entry; the same page when it is not there."""
        return self._changed({id: None})

    def replaced(self, entry: Entry) -> Page:
        """With the entry in the place of the one with its id; the same page when there is none."""
        return self._changed({entry.id: entry})

    def edited(self, edits: Mapping[str, Entry | None]) -> Page:
        """With all these entries, by their ids, as lines; without those that are None."""
        there = {line.entry.id for line in self.entries}
        new = [entry for id, entry in edits.items() if entry is not None and id not in there]
        page = self._changed({id: entry for id, entry in edits.items() if id in there})
        return page._with(new) if new else page

    def _with(self, entries: Sequence[Entry]) -> Page:
        """With entries that are not there."""
        text = self.text
        if not text.strip("\ufeff \t\r\n"):
            text = text.rstrip(" \t\r\n") + beginning(self.name)
        writing = Writing(read(self.name, text, self.when) if text != self.text else self._reading)
        writing.insert([replace(entry, page=self.name) for entry in entries])
        return self._as(writing)

    def _changed(self, edits: Mapping[str, Entry | None]) -> Page:
        """With these in the place of those that have their ids. A line that only one of them keeps from having its id
        gets a comment with the id it has."""
        if not any(block.entry.id in edits for block in self._reading.blocks):
            return self
        writing = Writing(self._reading)
        for block in self._reading.blocks:
            if block.entry.id not in edits:
                if not edits.keys().isdisjoint(block.barred):
                    writing.rewrite(block, block.entry)
            elif (entry := edits[block.entry.id]) is None:
                writing.take_out(block)
            else:
                writing.rewrite(block, replace(entry, page=self.name))
        return self._as(writing)

    def _as(self, writing: Writing) -> Page:
        return Page.parse(self.name, writing.text(), self.when)


def beginning(name: str) -> str:
    """The text of a page without entries."""
    return _BEGINNING.format(title=title_of(name), sentence=_OF_PROFILE if name == PROFILE else _OF_TOPIC,
                             freely=_FREELY)


def title_of(name: str) -> str:
    """What a page is called that does not say it: by its file's name."""
    if name == PROFILE:
        return "About you"
    words = " ".join(name.rpartition("/")[2].removesuffix(".md").replace("-", " ").replace("_", " ").split())
    return words[:1].upper() + words[1:]
