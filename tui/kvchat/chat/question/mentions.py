"""Which mentions of a question count, which files need the user's word before they are sent, and which files the
branch has already.

Pasted text mentions nothing; a file from outside of the working folder and the collections, or one that looks
secret, goes to no server before the user, who has seen where it really is, said yes; and what the branch has of a file,
under whatever path, is not sent again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.errors import ChatError
from kvchat.prompt.context import FILE, IMAGE, PASSAGE, STDIN, ContextBlock
from kvchat.prompt.drafts import MENTION, PASTE, Draft, Span, Spans, draft_of, pasted_of, plain_paste
from kvchat.prompt.images import sha256_of
from kvchat.prompt.message import Message, Node
from kvchat.sanitize import exact
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.documents.mentions import WrittenMention


class MentionScope(Struct, frozen=True):
    """What the user means by the mentions of a text."""

    spans: Spans = ()
    """What of it was pasted, attached or mentioned; the rest was typed."""
    agreed: frozenset[str] = frozenset()
    """The real paths of the files from outside that may go."""

    def counted(self, mentions: Iterable[WrittenMention]) -> list[WrittenMention]:
        """Those of the mentions in the text that count: not those that came with a paste."""
        pasted, picked = pasted_of(self.spans), {span.start for span in self.spans if span.kind == MENTION}
        return [
            replace(one, is_picked=one.start in picked)
            for one in mentions
            if not any(start <= one.start < end for start, end in pasted)
        ]


ALL, NOTHING = MentionScope(), MentionScope((Span(0, sys.maxsize, PASTE),))


class OutsideFile(Struct, frozen=True):
    """A file from outside of the working folder and the collections, or one that looks secret."""

    ref: str
    """Of its block."""
    path: str
    """Where it really is: absolute, links followed."""
    is_secret: bool = False

    @property
    def sentence(self) -> str:
        """Why it needs a yes."""
        why = ChatProblem.SECRET if self.is_secret else ChatProblem.OUTSIDE
        return why.format(path=exact(self.path))


class OutsideError(ChatError):
    """Nothing was sent: these files need the user's yes."""

    def __init__(self, files: Sequence[OutsideFile]) -> None:
        self.paths = tuple(dict.fromkeys(file.path for file in files))
        self.sentences = tuple(dict.fromkeys(file.sentence for file in files))
        self.is_secret = any(file.is_secret for file in files)
        super().__init__(ChatProblem.NEEDS_YES, files=" ".join(self.sentences))


def outside(
    files: Sequence[ContextBlock], roots: Iterable[str], given: Iterable[ContextBlock]
) -> tuple[OutsideFile, ...]:
    """Of files those that need a yes: what looks secret, and what is below none of the folders `roots` (or is none of
    these files) nor below the working folder. What the conversation was `given` before needs none. It looks at the
    disk: not for the loop."""
    if not files:
        return ()
    folders = [folder for root in (os.curdir, *roots) if (folder := _real(root))]
    found = [
        OutsideFile(block.ref, str(path), secret)
        for block in files
        if (path := _real(path_of(block)))
        and ((secret := _is_secret(path, block)) or not any(_is_within(path, folder) for folder in folders))
    ]
    known = {str(_real(path)) for path in {path_of(block) for block in given}} if found else set()
    return tuple(file for file in found if file.path not in known)


def _is_secret(path: Path, block: ContextBlock) -> bool:
    """Whether a file needs a yes of its own, by the name that it was mentioned by or by what that leads to."""
    from kvchat.documents.kept_out import is_secret_path, looks_secret

    return looks_secret(str(path), block.text) or is_secret_path(path_of(block))


def _real(path: str | Path) -> Path | None:
    """Where a path really leads. None: unknown, as for the working folder when it was deleted."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return None


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a file belongs to a folder. Of the home folder, or one above it, neither hidden files such as keys are
    part, nor what is outside the home folder."""
    if not path.is_relative_to(folder):
        return False
    try:
        home = _real(Path.home())
    except RuntimeError:
        home = None
    if home is None or not home.is_relative_to(folder):
        return True
    return path.is_relative_to(home) and not any(part.startswith(".") for part in path.relative_to(home).parts)


def question_draft(question: Node, *, is_edit: bool = False) -> Draft:
    """A question that was sent, as a draft. `is_edit`: what was piped in stays with it by itself."""
    text, blocks = plain_paste(question.text), question.message.blocks
    return draft_of(text, [one for one in blocks if not is_edit or one.kind != STDIN], spans_in(question.message))


def spans_in(sent: Message) -> list[Span]:
    """What in the text of a question that was sent was pasted, and what it mentioned."""
    pasted = [Span(start, end, PASTE) for start, end in sent.pasted]
    return [*pasted, *mentioned_in(plain_paste(sent.text), sent.blocks)]


def mentioned_in(text: str, blocks: Sequence[ContextBlock]) -> list[Span]:
    """What a question that was sent mentioned, as far as its blocks tell: what brought one."""
    brought = [block for block in blocks if block.kind in (FILE, IMAGE, PASSAGE)]
    if "@" not in text or not brought:
        return []
    from kvchat.documents.attachments import plain_name
    from kvchat.documents.collection import place_of
    from kvchat.documents.mentions import is_of_disk, written

    paths = {path_of(block) for block in brought if block.kind != PASSAGE}
    names = {plain_name(block).casefold() for block in brought if block.kind != PASSAGE}
    searched = [place_of(block.ref) for block in brought if block.kind == PASSAGE]
    places = {f"{one.collection}/{one.path}".casefold() for one in searched}

    def brought_by(name: str) -> bool:
        if _absolute(name) in paths:
            return True
        if is_of_disk(name):
            return False
        place = name.casefold().rstrip("/")
        return place in names or any(f"{one}/".startswith(f"{place}/") for one in places)

    return [
        Span(one.start, one.end_of(name), MENTION)
        for one in written(text)
        if (name := next(filter(brought_by, one.names), None)) is not None
    ]


def _absolute(name: str) -> str:
    """The path of a mention as an attached file has it."""
    try:
        return os.path.normpath(Path(name).expanduser().absolute())
    except (OSError, RuntimeError, ValueError):
        return ""


def files_of(path: Sequence[Node]) -> dict[str, list[ContextBlock]]:
    """The attached files of a branch by their paths, each as it was attached, oldest first."""
    found: dict[str, list[ContextBlock]] = {}
    for node in path:
        for block in node.message.blocks:
            if block.kind == FILE:
                found.setdefault(path_of(block), []).append(block)
    return found


def unsaid(path: Sequence[Node], files: Sequence[ContextBlock]) -> tuple[ContextBlock, ...]:
    """Of files as they are now what the branch does not have yet: the whole of a new one, the change of one that was
    attached before, under whatever path; an image that it does not have. It takes a while: not for the loop."""
    images = {sha256_of(block) for node in path for block in node.message.blocks if block.kind == IMAGE}
    there: dict[str, list[ContextBlock]] = {}
    for block in [block for node in path for block in node.message.blocks if block.kind == FILE] if files else ():
        there.setdefault(realpath(path_of(block)), []).append(block)
    fresh: dict[str, ContextBlock] = {}
    for file in files:
        real = realpath(path_of(file))
        if file.kind == IMAGE:
            newer = file if sha256_of(file) not in images else None
        else:
            newer = _newer(there[real], file) if real in there else file
        if newer is not None:
            fresh.setdefault(real, newer)
    return tuple(fresh.values())


def _newer(known: Sequence[ContextBlock], file: ContextBlock) -> ContextBlock | None:
    from kvchat.documents.attachments import change, whole_of

    return change(known[-1], file, whole_of(known))


async def with_files(blocks: Sequence[ContextBlock], files: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
    """The blocks, and the files that are not among them."""
    captured = [path_of(block) for block in blocks if block.kind in (FILE, IMAGE)]
    if not files or not captured:
        return (*blocks, *files)

    def others() -> list[ContextBlock]:
        there = {realpath(path) for path in captured}
        return [file for file in files if realpath(path_of(file)) not in there]

    return (*blocks, *await asyncio.to_thread(others))


def path_of(block: ContextBlock) -> str:
    return block.ref.rpartition("#")[0]
