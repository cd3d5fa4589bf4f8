"""One page of the memory: Markdown in, entries out, and changes of single entries. Pure.

A change touches the lines of its entry and no other byte. Headings, prose, code, front matter, blank lines, line ends
and the order of things are the user's; a text that stays is kept as they wrote it, with its indentation, its bullet and
its check box.

Every list item is an entry, with what is indented below it. An item inside of another is an entry of its own when it
has a comment of kvchat's, and else belongs to the text around it. A line without a comment is the user's: its id comes
from page and text, and nothing is written into it. Every id names one entry: the same line twice is one; a line that
was copied and then changed has the id of another one in its comment, and is an entry by hand.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvchat.memory.entry import BY_HAND, PROFILE, Entry, Kind
from kvchat.memory.pages.comment import Comment, comments, derived_id, entry_of, kind, mark, rendered
from kvchat.memory.pages.markdown import (
    MarkdownItem,
    PageProblem,
    blank,
    blocks,
    decoded,
    encoded,
    ending,
    goes_on,
    split,
)

# Front matter: the lines between two `---`, as note-taking programs write them; two keys of it are read


VERSION = 1
"""The form of pages that this kvchat knows."""
_KNOWN = ("kvchat", "kind")
_LINE = re.compile(r"[ \t].*|[]}#].*|-(?: .*)?|[^\s:#-][^:]*:(?:[ \t].*)?")
_UNCLOSED = re.compile(r"\"(?:[^\"\\]|\\.)*|'[^']*|\[[^]]*|\{[^}]*")


class Front(Struct, frozen=True):
    """What the front matter of a page says."""

    end: int = 0
    """The number of lines that it takes."""
    kind: Kind = Kind.FACT
    """Of lines without a comment."""


def front(lines: Sequence[str]) -> Front:
    """The front matter of a page. Raises PageProblem where it is broken."""
    if not lines or lines[0].rstrip() != "---":
        return Front()
    known: dict[str, object] = {}
    unclosed: tuple[int, str] | None = None
    for at, raw in enumerate(lines[1:], start=2):
        line = raw.rstrip()
        if unclosed is not None and not line.startswith((" ", "\t", "]", "}")):
            raise PageProblem(unclosed[0], f"The value of `{unclosed[1]}` is not closed. Close its quotes or brackets.")
        if line in ("---", "..."):
            return _front(at, known)
        if comments(line):
            raise PageProblem(at, "Here is a memory, but the front matter above it has no closing `---`. Add it.")
        if line and not _LINE.fullmatch(line):
            raise PageProblem(at, f"This is no front matter: {line[:40]!r}. Write `name: value`, or take the line out.")
        name, _, value = line.partition(":")
        unclosed = (at, name) if _UNCLOSED.fullmatch(value.strip()) else None
        if name in _KNOWN:
            known[name] = _value(value.strip())
    raise PageProblem(1, "The front matter that begins here has no closing `---`. Add it.")


def _front(end: int, known: dict[str, object]) -> Front:
    version = known.get("kvchat", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise PageProblem(1, f"This page has form {version}, which a newer kvchat wrote. Update kvchat to use it.")
    return Front(end, kind(str(known.get("kind", ""))) or Kind.FACT)


def _value(value: str) -> object:
    """A JSON literal, or plain words."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        quoted = len(value) > 1 and value[0] == value[-1] == "'"
        return value[1:-1].replace("''", "'") if quoted else value


# The entries of a text


BYTE_ORDER_MARK = "\ufeff"


class Block(Struct, frozen=True):
    """The lines of one entry."""

    entry: Entry
    item: MarkdownItem
    lines: tuple[int, ...]
    """Its own, counted from 0; items in it that are entries themselves are not among them."""
    comment: Comment | None
    """Its comment, where there is only one and it is on one line."""
    commented: bool
    copy: bool
    """Whether a block before it is the same entry."""
    barred: tuple[str, ...]
    """Ids that it would have if no other entry had them."""


class Reading(Struct, frozen=True):
    """A page, read."""

    mark: str
    """The byte order mark at its beginning, if there is one."""
    lines: tuple[str, ...]
    items: tuple[MarkdownItem, ...]
    blocks: tuple[Block, ...]


class _Draft(Struct, frozen=True):
    """An entry before it is known which ids are taken."""

    item: MarkdownItem
    lines: tuple[int, ...]
    text: str
    comments: tuple[Comment, ...]
    id: str
    whole: bool
    """Whether its text is the one that kvchat wrote."""
    wrapped: bool


def read(name: str, text: str, when: float) -> Reading:
    """Read a page. Raises PageProblem."""
    order = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    lines = split(text[len(order) :])
    matter = front(lines)
    items = blocks(lines, matter.end)
    drafts = _drafts(name, items)
    read_blocks = _Naming(name, matter.kind, float(math.floor(when)), drafts).blocks()
    return Reading(order, tuple(lines), items, tuple(read_blocks))


def _drafts(name: str, items: Sequence[MarkdownItem]) -> list[_Draft]:
    """The items that are entries. One without a comment inside of another is part of that one's text."""
    owners: dict[MarkdownItem, MarkdownItem] = {}
    members: dict[MarkdownItem, list[MarkdownItem]] = {}
    noted: dict[MarkdownItem, list[Comment]] = {}
    for item in items:
        noted[item] = comments("\n".join(item.contents)) if any("<!--" in line for line in item.contents) else []
        owner = item if item.parent is None or noted[item] else owners[item.parent]
        owners[item] = owner
        members.setdefault(owner, []).append(item)
    return [
        draft for item, parts in members.items() if (draft := _draft(name, item, parts, tuple(noted[item]))) is not None
    ]


def _draft(name: str, item: MarkdownItem, parts: Sequence[MarkdownItem], found: tuple[Comment, ...]) -> _Draft | None:
    """None when no text is left."""
    joined = "\n".join(item.contents)
    wrapped = any("\n" in joined[one.start : one.end] for one in found)
    pieces = list(zip(item.lines, _without(joined, found).split("\n"), strict=True))
    for part in parts[1:]:
        pieces.append((part.lines[0], f"{part.marker} {part.box}{part.contents[0]}"))
        pieces += zip(part.lines[1:], part.contents[1:], strict=True)
    pieces.sort()
    raw = [line for _, content in pieces if (line := content.strip(" \t"))]
    if not raw:
        return None
    text = "\n".join(map(decoded, raw))
    id = found[0].id if found else derived_id(name, text)
    whole = bool(found) and found[0].values.get("h") == mark(text)
    return _Draft(item, tuple(at for at, _ in pieces), text, found, id, whole, wrapped)


def _without(text: str, found: Sequence[Comment]) -> str:
    """The text without its comments, in as many lines."""
    for comment in reversed(found):
        before, after = text[: comment.start].rstrip(" \t"), text[comment.end :].lstrip(" \t")
        breaks = "\n" * text.count("\n", comment.start, comment.end)
        inside = before and after and not before.endswith("\n") and not after.startswith("\n")
        text = before + (breaks or (" " if inside else "")) + after
    return text


class _Naming:
    """Gives each draft its id."""

    def __init__(self, name: str, kind: Kind, when: float, drafts: Sequence[_Draft]) -> None:
        self._name = name
        self._kind = kind
        self._when = when
        self._drafts = drafts
        self._first: dict[str, _Draft] = {}
        """By id, the draft that has it by right: a line that is as kvchat wrote it, else the first with the comment."""
        for draft in drafts:
            rival = self._first.get(draft.id)
            if rival is None or self._rank(draft) > self._rank(rival):
                self._first[draft.id] = draft
        self._others: dict[str, _Draft] = {}
        self._seen: set[str] = set()

    def blocks(self) -> list[Block]:
        return [self._block(draft) for draft in self._drafts]

    @staticmethod
    def _rank(draft: _Draft) -> int:
        return draft.whole + bool(draft.comments)

    def _block(self, draft: _Draft) -> Block:
        barred: list[str] = []
        id, number = draft.id, 0
        while (holder := self._first.get(id) or self._others.setdefault(id, draft)).text != draft.text:
            barred.append(id)
            id, number = derived_id(self._name, draft.text, number), number + 1
        again = id in self._seen
        self._seen.add(id)
        comment = draft.comments[0] if len(draft.comments) == 1 and not draft.wrapped else None
        return Block(
            self._entry(holder, id), draft.item, draft.lines, comment, bool(draft.comments), again, tuple(barred)
        )

    def _entry(self, draft: _Draft, id: str) -> Entry:
        if not draft.comments:
            return Entry(id, self._kind, draft.text, self._name, self._when, by=BY_HAND)
        entry = entry_of(draft.comments[0], draft.text, self._name, self._when)
        if id == draft.id:
            return entry
        return replace(entry, id=id, by=BY_HAND, conversation="", nodes=(), confidence=None, edited=True)


# Entries put in, changed and taken out


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
        before += ending(before) if below is None and not blank(before) else ""
        indent, marker = (below.indent, below.marker) if below is not None else ("", "-")
        marker = marker if marker in BULLETS else "-"
        written = [line for entry in entries for line in _item(entry, indent, marker, "")]
        lines[last] = before + "".join(line + self._end for line in written)
        self._made.add(last)

    def take_out(self, block: Block) -> None:
        """Take out the lines of an entry, and the blank ones between them."""
        before = block.lines[0] - 1
        for at in block.lines:
            own = range(before + 1 if all(map(blank, self._lines[before + 1 : at])) else at, at + 1)
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
            self._replace_comment(block.item, rendered(entry))
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
            if (
                made
                and at not in self._made
                and (goes_on(line) if not blank(last) else not last and line.rstrip() == "---")
            ):
                done.append(ending(last) or self._end)
            done.append(line)
            made = at in self._made
            last = line or last
        return "".join(done)

    def _replace_comment(self, item: MarkdownItem, comment: str) -> None:
        """Replace the block's only comment."""
        for at in item.lines:
            line = self._lines[at]
            if found := comments(line.rstrip("\r\n")):
                self._lines[at] = line[: found[0].start] + comment + line[found[0].end :]


def _item(entry: Entry, indent: str, marker: str, box: str) -> list[str]:
    """The lines of an entry without their ends: the comment closes the first one."""
    first, *more = _markdown(entry.text) if entry.by == BY_HAND or entry.edited else encoded(entry.text)
    box = f"{box.rstrip()} " if box else ""
    margin = indent + " " * (len(marker) + 1)
    return [f"{indent}{marker} {box}{first} {rendered(entry)}", *(margin + line for line in more)]


def _markdown(text: str) -> list[str]:
    """The lines of a text that the user wrote in a file: links in it are links."""
    lines = encoded(text)
    linked = [_LINK.sub(lambda found: "[[" if found[1] else "[", line) for line in lines]
    return linked if "\n".join(map(decoded, linked)) == text else lines


def _root(item: MarkdownItem) -> MarkdownItem:
    while item.parent is not None:
        item = item.parent
    return item


# The page


_BEGINNING = "# {title}\n\n{sentence} {freely}\n\n"
_FREELY = "Edit, move or delete lines as you like: what stands here is what kvchat knows."
_OF_PROFILE = "What kvchat remembers about you and tells the model at the beginning of every conversation."
_OF_TOPIC = "What kvchat remembers, one line each."


class PageLine(Struct, frozen=True):
    """One entry of a page."""

    entry: Entry
    changed: bool
    """Whether kvchat wrote the line and its text is not what it wrote."""
    at: int
    """The number of its line, from 1."""


class MemoryPage(Struct, frozen=True):
    """A page as it is. Its changes give another page."""

    name: str
    text: str
    entries: tuple[PageLine, ...]
    """In the order of the page, each id once."""
    _reading: Reading
    when: float = 0.0
    """The `created` of lines that do not say it."""

    @classmethod
    def parse(cls, name: str, text: str, when: float = 0.0) -> MemoryPage:
        """Read a page. Raises PageProblem where it is broken, so that its entries are not taken for deleted."""
        reading = read(name, text, when)
        lines = tuple(
            PageLine(block.entry, block.entry.edited, block.lines[0] + 1) for block in reading.blocks if not block.copy
        )
        return cls(name, text, lines, reading, when)

    def edited(self, edits: Mapping[str, Entry | None]) -> MemoryPage:
        """With all these entries, by their ids, as lines; without those that are None."""
        there = {line.entry.id for line in self.entries}
        new = [entry for id, entry in edits.items() if entry is not None and id not in there]
        page = self._changed({id: entry for id, entry in edits.items() if id in there})
        return page.extended(new) if new else page

    def extended(self, entries: Sequence[Entry]) -> MemoryPage:
        """With entries that are not there."""
        text = self.text
        if not text.strip("\ufeff \t\r\n"):
            text = text.rstrip(" \t\r\n") + beginning(self.name)
        writing = Writing(read(self.name, text, self.when) if text != self.text else self._reading)
        writing.insert([replace(entry, page=self.name) for entry in entries])
        return self._as(writing)

    def _changed(self, edits: Mapping[str, Entry | None]) -> MemoryPage:
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

    def _as(self, writing: Writing) -> MemoryPage:
        return MemoryPage.parse(self.name, writing.text(), self.when)


def beginning(name: str) -> str:
    """The text of a page without entries."""
    return _BEGINNING.format(
        title=title_of(name), sentence=_OF_PROFILE if name == PROFILE else _OF_TOPIC, freely=_FREELY
    )


def title_of(name: str) -> str:
    """What a page is called: by its file's name."""
    if name == PROFILE:
        return "About you"
    words = " ".join(name.rpartition("/")[2].removesuffix(".md").replace("-", " ").replace("_", " ").split())
    return words[:1].upper() + words[1:]
