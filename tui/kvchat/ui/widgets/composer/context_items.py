"""What goes with a message in addition to its text: memories, files and passages, and which the user left out.

What was left out stays out, and what is only offered stays an offer, until the message is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.prompt.context import IMAGE, ContextBlock, rendered
from kvchat.prompt.images import MOST_TOKENS

if TYPE_CHECKING:
    from kvchat.documents.collection import Passage
    from kvchat.memory.entry import Entry

Count = Callable[[str], int]
"""About how many tokens a text has."""
MEMORY, FILE, PASSAGE = "memory", "file", "passage"
_ORDER = (FILE, PASSAGE, MEMORY)
"""The order in which items are named: what costs most comes first."""


class Item(Struct, frozen=True):
    """One thing that goes with a message."""

    kind: str
    """`MEMORY`, `FILE` or `PASSAGE`."""
    id: str
    """A memory's id, a passage's or file's reference."""
    text: str
    title: str
    """Its name: the page of a memory, the source of a passage or file."""
    head: str = ""
    """The headings above a passage; where a file from outside really is."""
    sent: str = ""
    """As the server gets it, where it is counted."""
    tokens: int = 0
    """About how many these are, of an image at most; 0: it is not counted."""

    is_fixed: bool = False
    """Whether it goes in any case: it is mentioned in the text."""
    outside: str = ""
    """The real path of a file from outside, which goes only with the user's consent. Empty: none is needed."""
    is_image: bool = False


class Picked(Struct, frozen=True):
    """What the user decided about passages: of what is found for a text, these go or do not."""

    dropped: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.dropped or self.taken)


def memory_item(entry: Entry) -> Item:
    return Item(MEMORY, entry.id, entry.text, entry.page)


def passage_item(passage: Passage, count: Count, fixed: bool = False) -> Item:
    """A passage, named by its file and place there."""
    return _counted(PASSAGE, passage.block, passage.title, passage.head, count, fixed)


def file_item(block: ContextBlock, count: Count, outside: str = "") -> Item:
    """A file that is mentioned and sent whole; one from `outside` shows where it really is."""
    item = replace(_counted(FILE, block, block.source, outside, count, True), outside=outside)
    return replace(item, tokens=MOST_TOKENS, is_image=True) if block.kind == IMAGE else item


def _counted(kind: str, block: ContextBlock, title: str, head: str, count: Count, fixed: bool) -> Item:
    sent = rendered((block,), "")
    return Item(kind, block.ref or block.source, block.text, title, head, sent, count(sent), fixed)


class ContextItems:
    """The items of the message that is being written, and what is decided about them."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Item, ...]] = {}
        self.offers = False
        """Whether passages go only when the user takes them."""
        self.dropped: set[str] = set()
        self.taken: set[str] = set()
        """The passages that the user took, offered or left out before."""
        self.none: set[str] = set()
        """The kinds of which nothing is to go, whatever is found."""
        self.agreed: set[str] = set()
        """The real paths of the files from outside that may go."""

    def reset(
        self,
        dropped: Iterable[str] = (),
        none: Iterable[str] = (),
        taken: Iterable[str] = (),
        agreed: Iterable[str] = (),
    ) -> None:
        """Another message: nothing is found for it yet."""
        self._found, self.offers = {}, False
        self.dropped, self.none, self.taken, self.agreed = set(dropped), set(none), set(taken), set(agreed)

    def put(self, kind: str, items: Sequence[Item]) -> bool:
        """These are the items of a kind now. Whether that changed anything."""
        changed = self.of(kind) != tuple(items)
        self._found[kind] = tuple(items)
        return changed

    def of(self, kind: str) -> tuple[Item, ...]:
        return self._found.get(kind, ())

    @property
    def all(self) -> tuple[Item, ...]:
        """In the order in which they are named, with those that are left out."""
        return tuple(item for kind in _ORDER for item in self.of(kind))

    def needs_yes(self, item: Item) -> bool:
        """Whether it is a file from outside that the user has not agreed to yet."""
        return bool(item.outside) and item.outside not in self.agreed

    def is_out(self, item: Item) -> bool:
        if item.is_fixed:
            return self.needs_yes(item)
        if item.kind in self.none or item.id in self.dropped:
            return True
        return item.kind == PASSAGE and self.offers and item.id not in self.taken

    def kept(self, kind: str) -> tuple[Item, ...]:
        return tuple(item for item in self.of(kind) if not self.is_out(item))

    @property
    def is_offer(self) -> bool:
        """Whether passages are offered about which nothing was decided yet."""
        passages = self.of(PASSAGE)
        return (
            bool(self.offers and passages)
            and PASSAGE not in self.none
            and not any(item.id in self.taken or item.id in self.dropped for item in passages)
        )

    def take_all(self) -> None:
        """Take the passages that are offered."""
        self.taken |= {item.id for item in self.of(PASSAGE)}

    def toggle(self, item: Item) -> None:
        """Leave out an item, or take it along again."""
        if item.is_fixed:
            return
        if item.kind in self.none:
            self.none.discard(item.kind)
            self.dropped |= {one.id for one in self.of(item.kind)}
            self.taken -= self.dropped
        if self.is_out(item):
            self.dropped.discard(item.id)
            self.taken |= {item.id} if item.kind == PASSAGE else set()
        else:
            self.dropped.add(item.id)
            self.taken.discard(item.id)

    def toggle_all(self, kinds: Sequence[str] = (MEMORY, PASSAGE)) -> None:
        """Leave out all of these kinds, also what would be found while one goes on writing, or take all along again."""
        if any(self.kept(kind) for kind in kinds):
            self.none |= set(kinds)
            return
        self.none -= set(kinds)
        here = {item.id for kind in kinds for item in self.of(kind)}
        self.dropped -= here
        if PASSAGE in kinds:
            self.take_all()

    @property
    def picked(self) -> Picked:
        return Picked(frozenset(self.dropped), frozenset(self.taken))
