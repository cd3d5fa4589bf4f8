"""The values of documents: collections, the files in them, and the place of a chunk.

A document's name in the index says where it is from, and its stamp says of what state of the file its chunks are. So
the index alone knows what is left to do, and nothing can be out of step with it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kvchat.prompt.context import PASSAGE, ContextBlock

if TYPE_CHECKING:
    from kvchat.config.settings import DocumentSettings

PREFIX = "docs/"
"""How the names of all documents in the index begin."""
READER = 5
"""Raised when reading or chunking changes what comes of a file: files read by an older one are indexed again."""

_AROUND = 10
"""Tokens of the wrapping around a passage in a question."""
_LETTERS = re.compile(r"[^\x00-\x7f]")
_WIDE = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00010000-\U0010ffff]"
)
"""Of the scripts in which a character is about a token: of China, Japan, Korea, Thailand, Burma and Cambodia."""
_LONGEST_NAME = 40
_NAME = re.compile(rf"[\w.-]{{1,{_LONGEST_NAME}}}")
_REF = re.compile(r"(?P<doc>.*)#(?P<where>[^#]*)", re.DOTALL)


class Collection(Struct, frozen=True):
    """A folder, or a single file, that is indexed under a name."""

    name: str
    """Letters, digits, `-`, `_` and `.`; unique: `@name` in a message means it."""
    root: str
    """The absolute path of the folder or file."""
    created: float
    indexed: float | None = None
    """When it was last indexed to the end; None: never."""

    @property
    def scope(self) -> str:
        """How the names of its documents begin."""
        return f"{PREFIX}{self.name}/"


class ChunkPlace(Struct, frozen=True):
    """The place of a chunk, as a reference gives it."""

    collection: str
    """Empty for a file that is in no collection; `path` is absolute then."""
    path: str
    """Below the collection's root, with `/`."""
    where: str = ""
    """`12-40`: lines; `p3`: a page; `¶4-9`: paragraphs; empty: the whole file."""

    @property
    def title(self) -> str:
        """As the user and the model read it: `handbook/guide/setup.md:12-40`, `handbook/paper.pdf p. 3`."""
        name = f"{self.collection}/{self.path}" if self.collection else self.path
        where = self.where.partition("~")[0]
        if where.startswith("p"):
            return f"{name} p. {where[1:]}"
        return f"{name}:{where}" if where else name

    @property
    def line(self) -> int:
        """Its first line, from 1; 1 where it has no lines."""
        found = re.match(r"\d+", self.where)
        return int(found[0]) if found else 1


def tokens_of(text: str) -> int:
    """About how many tokens a text has: four characters of ASCII are one, two and a half of other alphabets, one of
    those in which a character is a syllable or a word."""
    other = 0 if text.isascii() else len(_LETTERS.findall(text))
    wide = len(_WIDE.findall(text)) if other else 0
    return -(-(5 * (len(text) - other) + 8 * (other - wide) + 20 * wide) // 20)


def is_name(text: str) -> bool:
    """Whether a collection may be called that."""
    return bool(_NAME.fullmatch(text)) and text.strip(".") != ""


def named(root: Path) -> str:
    """A name for the collection of a folder or file, made of its own: `My Notes (old)` is `my-notes-old`."""
    plain = unicodedata.normalize("NFKC", root.stem if root.is_file() else root.name)
    name = re.sub(r"[^\w.]+", "-", plain).strip("-._").lower()[:_LONGEST_NAME]
    return name or "documents"


def unused(name: str, taken: Container[str]) -> str:
    """The name, with a number where it is taken; `taken` holds folded names."""
    number, chosen = 1, name
    while chosen.casefold() in taken:
        number += 1
        chosen = f"{name[: _LONGEST_NAME - 5]}-{number}"
    return chosen


def doc_of(collection: str, path: str) -> str:
    """The name of a document in the index."""
    return f"{PREFIX}{collection}/{path}"


def ref_of(doc: str, where: str) -> str:
    """The reference to a chunk: its document and its key there."""
    return f"{doc}#{where}"


def place_of(ref: str) -> ChunkPlace:
    """What a reference says. Any text gives a place."""
    found = _REF.fullmatch(ref)
    doc, where = (found["doc"], found["where"]) if found else (ref, "")
    if not doc.startswith(PREFIX):
        return ChunkPlace("", doc, where)
    collection, _, path = doc.removeprefix(PREFIX).partition("/")
    return ChunkPlace(collection, path, where)


class Skipped(Struct, frozen=True):
    """A file that is not indexed, and why."""

    path: str
    """Below the collection's root; safe to show only after `display.one_line`."""
    reason: str
    """As it follows the name: `is a symbolic link`, `is larger than 20 MB`."""


class IndexingProgress(Struct, frozen=True):
    """How far indexing has come."""

    collection: str
    files: int
    """Files that are done, also those that had not changed."""
    all_files: int
    bytes: int
    all_bytes: int
    chunks: int
    """Chunks in the collection by now."""
    seconds: float
    path: str = ""
    """What is being read."""
    counting: bool = False
    """Whether the files are still being looked for: `all_files` grows."""
    bytes_skipped: int = 0
    """Of `bytes`, those of files that had not changed: they took no time."""

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1."""
        return min(1.0, self.bytes / self.all_bytes) if self.all_bytes else float(self.files >= self.all_files)

    @property
    def seconds_left(self) -> float | None:
        """None: not known yet."""
        read = self.bytes - self.bytes_skipped
        if self.counting or self.seconds < 1 or read <= 0:
            return None
        return self.seconds * (self.all_bytes - self.bytes) / read


class IndexingReport(Struct, frozen=True):
    """What going through a collection gave."""

    collection: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    """Files that are gone."""
    chunks: int = 0
    """In the collection now."""
    bytes: int = 0
    """Of the files that are indexed."""
    seconds: float = 0.0
    skipped: tuple[Skipped, ...] = ()
    trouble: str = ""
    """Why it could not be indexed to the end; empty: it was."""
    is_elsewhere: bool = False
    """Whether that is only because another kvchat is at it: it can be tried again."""


class CollectionStatus(Struct, frozen=True):
    """What is in the index of a collection."""

    collection: Collection
    files: int
    chunks: int
    bytes: int
    skipped: tuple[Skipped, ...] = field(default=())
    trouble: str = ""
    """A sentence where its folder is missing or cannot be read."""


class Passage(Struct, frozen=True):
    """A chunk that was found for a question."""

    ref: str
    head: str
    """The headings above it; may be empty."""
    text: str
    score: float
    matched: int
    """How many of the question's words stand in it."""

    @property
    def place(self) -> ChunkPlace:
        return place_of(self.ref)

    @property
    def title(self) -> str:
        return self.place.title

    @property
    def block(self) -> ContextBlock:
        """As a question carries it, before it gets its number (see `prompt.citations`)."""
        return ContextBlock(PASSAGE, f"{self.title}, {self.head}" if self.head else self.title, self.text, self.ref)

    @property
    def tokens(self) -> int:
        """About how many tokens it has in a question."""
        block = self.block
        return tokens_of(block.text) + tokens_of(block.source) + _AROUND


class IndexingOptions(Struct, frozen=True):
    """Part of the settings, as the indexing process gets them."""

    largest: int = 20_000_000
    """Larger files are skipped. Bytes."""
    hidden: bool = False
    """Whether names that begin with a dot are indexed too."""

    @classmethod
    def of(cls, settings: DocumentSettings) -> IndexingOptions:
        return cls(settings.largest_file_mb * 1_000_000, settings.hidden)
