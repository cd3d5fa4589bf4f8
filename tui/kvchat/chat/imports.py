"""Conversations out of files: read off the loop, stored some at a time, taken back as one act.

An import speaks to no server, and brings no work for one: what comes in is never extracted for memories, unless the
user asked for that. What is done when it is stopped or fails is kept, and can be taken back.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.server.link import normal
from kvchat.config import Settings
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import OFF, Conversation
from kvchat.prompt.images import images_in, sha256_of
from kvchat.prompt.mending import mended
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS, Node, NoteKind, Role, State, new_id, settled
from kvchat.prompt.tools import INTERRUPTED
from kvchat.prompt.tree import Tree
from kvchat.store import Store, StoreError
from kvchat.store.covering import mark
from kvchat.store.images import Image
from kvchat.store.imports import Arrival, ImportBatch, Undone
from kvchat.store.presence.locks import locked_within
from kvchat.transfer.formats import Source
from kvchat.transfer.importing.files import FoundConversation, ImportProgress, Missed
from kvchat.transfer.importing.import_process import FilesApart
from kvchat.transfer.importing.report import ImportReport
from kvchat.transfer.importing.thread import ImportRefusal, Loss, NotTaken, Picture
from kvchat.transfer.importing.tree import conversation_id, grown
from kvchat.values import said

if TYPE_CHECKING:
    from kvchat.documents.reading.sandbox import Readers

log = logging.getLogger(__name__)

PART_CONVERSATIONS, PART_OCTETS = 25, 2**20
"""Stored at once, at most: the store is busy for some hundredths of a second."""

EVERY_S = 0.1
"""Seconds between two looks at how far it has come, and whether it is stopped."""

LOCK = "import.lock"
"""The lock file in the folder of the database: one import at a time."""

PART_ITEMS = 100
"""Conversations that were found, stored or not, between two reports of progress."""


class Imports:
    """Takes conversations in, and back."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def run(
        self,
        paths: Sequence[Path],
        *,
        dry_run: bool = False,
        memory: bool = False,
        on_progress: Callable[[ImportProgress, ImportReport], None] = lambda progress, report: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> ImportReport:
        """Take in what is in files, folders and archives. `dry_run`: only find out what that would be. `memory`: have
        memories extracted from the conversations. `on_progress` is called after each part; True of `stopped` ends it.
        Raises ChatError."""
        report = ImportReport(dry_run)
        batch = ImportBatch(new_id()[:8], self._core.timestamp())
        instructions = self._core.settings.system_prompt or DEFAULT_INSTRUCTIONS
        files = FilesApart(paths)
        arrivals = _Arrivals(
            self._core.store, files, report, instructions, memory, batch.at, _set_up(self._core.settings)
        )
        parts, number = arrivals.parts(), 0

        def look() -> bool:
            if stopped():
                report.stopped = True
                arrivals.stop()
            else:
                on_progress(files.progress, report)
            return report.stopped

        try:
            async with self._turn(look):
                while (part := await _next(parts, arrivals, look)) is not None:
                    if part and not dry_run:
                        report.batch = batch.id
                        batch = replace(batch, conversations=batch.conversations + len(part))
                        await self._core.writer.call(
                            partial(self._core.store.imports.take_in, batch, number, tuple(part))
                        )
                        number += 1
                    on_progress(files.progress, report)
        except StoreError as error:
            raise ChatError.of(error) from None
        finally:
            parts.close()
            arrivals.close()
            self._show(arrivals.planned)
        report.passed_over = files.passed_over
        return report

    @asynccontextmanager
    async def _turn(self, look: Callable[[], bool]) -> AsyncIterator[None]:
        """Wait until no other import into this store runs: what is there already is looked up before it is stored.
        `look` is called now and then meanwhile, and says whether that is to end."""
        database, handle = self._core.store.database.path, -1
        with suppress(OSError):  # without a file there nothing can be stored either, and that is reported
            if database is not None:
                handle = os.open(database.with_name(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while handle >= 0 and not await asyncio.to_thread(locked_within, handle, EVERY_S) and not look():
                pass
            yield
        finally:
            if handle >= 0:
                os.close(handle)

    async def undo(self, id: str = "") -> Undone:
        """Take an import back, the last one without an `id`. Raises ChatError."""
        now = self._core.timestamp()
        try:
            undone = await self._core.writer.call(lambda: self._core.store.imports.undo(id, now))
        except StoreError as error:
            raise ChatError.of(error) from None
        self._show(undone.touched)
        return undone

    def _show(self, touched: Iterable[str]) -> None:
        """The list is another one, and open conversations may have grown or gone."""
        self._core.conversations.list_changed()
        loaded = self._core.conversations.loaded
        self._core.conversations.shared.reload([loaded[id] for id in touched if id in loaded])


async def _next(parts: Iterator[list[Arrival]], arrivals: _Arrivals, look: Callable[[], bool]) -> list[Arrival] | None:
    """The next part, made on a thread; None: there is none. `look` is called now and then meanwhile. Who is cancelled
    waits for the thread, which comes to its end then."""
    step = asyncio.ensure_future(asyncio.to_thread(next, parts, None))
    try:
        while not step.done():
            await asyncio.wait([step], timeout=EVERY_S)
            look()
        return step.result()
    finally:
        if not step.done():
            arrivals.stop()
        while not step.done():
            with suppress(asyncio.CancelledError):  # once more, as the app ends: the thread still uses `parts`
                await asyncio.wait([step])


class _New(Struct, frozen=True):
    """A conversation of which something is to be stored."""

    arrival: Arrival
    losses: Counter[Loss]


class _Same(Struct, frozen=True):
    """One of which all is stored."""

    losses: Counter[Loss] = field(default_factory=Counter)


_Outcome: TypeAlias = _New | _Same | Missed


def _set_up(settings: Settings) -> frozenset[str]:
    """The servers that the settings name, by their profiles and addresses."""
    addresses = (server.base_url for server in (settings.server, *settings.profiles.values()))
    return frozenset((*settings.profiles, *map(normal, filter(None, addresses))))


class _Arrivals:
    """What of the files is to be stored. Gone through on a thread."""

    def __init__(
        self,
        store: Store,
        files: FilesApart,
        report: ImportReport,
        instructions: str,
        memory: bool,
        now: float,
        servers: frozenset[str],
    ) -> None:
        self._store = store
        self._files = files
        self._report = report
        self._instructions = instructions
        self._memory = memory
        self._now = now
        self._servers = servers
        self._collections = {one.name for one in store.collections.all()}
        self._undone = {batch.undone for batch in store.imports.all() if batch.undone is not None}
        self._readers: Readers | None = None
        self.planned: set[str] = set()
        """The ids of what is stored."""
        self._digests: dict[str, bytes] = {}
        """Of kvchat's own messages in these files: what is planned is not stored yet."""

    def stop(self) -> None:
        """Come to the end at once: what is not whole by then is left out. On any thread."""
        self._files.stop()
        self.close()

    def close(self) -> None:
        if self._readers is not None:
            self._readers.close()

    def parts(self) -> Generator[list[Arrival], None, None]:
        """The conversations, some at a time; now and then none, where there is only something to tell."""
        part, octets = list[Arrival](), 0
        for number, item in enumerate(self._files, 1):
            outcome = self._outcome(item)
            if self._files.is_stopped:
                break  # an image of it may be missing
            if isinstance(outcome, _New) and outcome.arrival.conversation.id in self.planned:
                yield part  # what comes twice is compared with what is stored
                part, octets = [], 0
                outcome = _Same() if self._report.dry_run else self._outcome(item)
            self._count(item, outcome)
            if isinstance(outcome, _New):
                self.planned.add(outcome.arrival.conversation.id)
                part.append(outcome.arrival)
                octets += sum(len(node.wire) for node in outcome.arrival.nodes)
                octets += sum(len(image.url) for image in outcome.arrival.images)
            if len(part) >= PART_CONVERSATIONS or octets >= PART_OCTETS or number % PART_ITEMS == 0:
                yield part
                part, octets = [], 0
        yield part

    def _count(self, item: FoundConversation | Missed, outcome: _Outcome) -> None:
        report = self._report
        if isinstance(outcome, Missed):
            report.skip(outcome)
            return
        if isinstance(item, FoundConversation):
            report.programs[item.program] += 1
        report.losses += outcome.losses
        if isinstance(outcome, _Same):
            report.unchanged += 1
            return
        before, nodes = outcome.arrival.before, outcome.arrival.nodes
        report.made += before is None
        report.tags.update(outcome.arrival.conversation.tags if before is None else ())
        report.restored += before is not None and before.trashed is not None
        report.grown += before is not None and before.trashed is None
        report.messages += sum(_is_said(node) for node in nodes)

    # -- one conversation ---------------------------------------------------------------------------------------------

    def _outcome(self, found: FoundConversation | Missed) -> _Outcome:
        if isinstance(found, Missed):
            return found
        try:
            return self._planned_for(found)
        except NotTaken as error:
            return Missed(found.file, error.why)
        except (StoreError, MemoryError):
            raise
        except Exception:
            log.exception("a conversation could not be taken in")
            return Missed(found.file, said(ImportRefusal.FAULTY))

    def _planned_for(self, found: FoundConversation) -> _New | _Same:
        """What is to be stored of a conversation. Raises NotTaken."""
        item, losses = found.item, Counter[Loss]()
        id = item.conversation.id if isinstance(item, Source) else conversation_id(item)
        before = self._store.known(id)
        if before is not None and before.trashed is not None and before.trashed not in self._undone:
            raise NotTaken(ImportRefusal.IN_TRASH)
        known = self._store.tree(id) if before is not None else None
        images: dict[str, Image] = {}
        if isinstance(item, Source):
            source, new = self._exact(item, known)
            images = _images_of(source)
            losses[Loss.IMAGES] += len(_names(new) - images.keys() - self._kept(new))
            shared = [node.id for node in source.tree if node.parent is not None]
        else:
            made = grown(item, known, self._instructions, found.at, partial(self._image, images))
            source, new, shared = made.source, made.new, []
            losses = made.losses
        head = _followed(before, source)
        if before is not None and before.trashed is None and not any(map(_is_said, new)) and head == before.head:
            return _Same(Counter({kind: number for kind, number in losses.items() if kind is Loss.EDITED}))
        new_ones = _names(new)
        record = replace(self._own(source.conversation), head=head)
        marks = (
            {}
            if self._memory
            else {node.id: mark(node.role.value, float(node.created), node.text) for node in new if _is_said(node)}
        )
        carried = tuple(image for name, image in images.items() if name in new_ones)
        return _New(Arrival(record, new, before, shared, marks, source.draft, carried), +losses)

    def _own(self, record: Conversation) -> Conversation:
        """A conversation as it begins here. A file names no destination: it goes to the server in use, unless it was
        answered by one that the settings name, with the model there; and it searches those of its collections that the
        user has. No field of a request comes along that could lead elsewhere, as a provider's or models' names, and no
        time from the future, which would make it the latest for good."""
        collections = tuple(name for name in record.collections if name in self._collections)
        known = not self._servers.isdisjoint((record.server, normal(record.server)))
        numbers = {name: value for name, value in record.parameters.extra.items() if isinstance(value, (int, float))}
        return replace(
            record,
            created=min(record.created, self._now),
            updated=min(record.updated, self._now),
            trashed=None,
            server=record.server if known else "",
            model=record.model if known else "",
            collections=collections,
            retrieval=record.retrieval if collections else OFF,
            parameters=replace(record.parameters, extra=numbers),
        )

    def _image(self, images: dict[str, Image], picture: Picture) -> ContextBlock | None:
        """The block of an image in a file, which goes to `images`; None: it cannot be read."""
        from kvchat.documents.errors import FileUnreadableError
        from kvchat.documents.images import block_of, image_in
        from kvchat.documents.reading.sandbox import Readers

        self._readers = self._readers or Readers()
        try:
            image = image_in(picture.data, self._readers)
        except FileUnreadableError:
            return None
        images[image.sha256] = image
        return block_of(image, picture.name)

    def _kept(self, nodes: Sequence[Node]) -> set[str]:
        """The images of these messages that are stored already."""
        return {name for name in _names(nodes) if self._store.images.get(name) is not None}

    def _exact(self, source: Source, known: Tree | None) -> tuple[Source, tuple[Node, ...]]:
        """A conversation of kvchat's own, and the messages of it that are not stored. Raises NotTaken."""
        if fault := next((call.fault for node in source.tree for call in node.message.calls if call.fault), ""):
            raise NotTaken(ImportRefusal.INVALID, why=f"A call in it cannot be sent to a model: {fault}.")
        nodes = list(_as_it_begins_here(source.tree))
        stored = self._store.imports.digests([node.id for node in nodes])
        here = {**self._digests, **stored}
        named: dict[str | None, str] = {}
        for node in nodes:
            if here.get(node.id, node.digest) != node.digest:
                if known is None or node.id not in known or known[node.id].state is not State.INTERRUPTED:
                    raise NotTaken(ImportRefusal.DIFFERS)
                named[node.id] = _id_of_copy(node)
        nodes = [
            replace(node, id=named.get(node.id, node.id), parent=named.get(node.parent, node.parent)) for node in nodes
        ]
        self._digests.update((node.id, node.digest) for node in nodes)
        tree = Tree([*(known or ()), *nodes])
        new = tuple(node for node in nodes if known is None or node.id not in known)
        head = source.conversation.head
        return replace(source, tree=tree, conversation=replace(source.conversation, head=named.get(head, head))), new


def _id_of_copy(node: Node) -> str:
    """The id of a message whose own is taken by what a kvchat that ended had stored of it. What it wrote to a file, for
    want of room, is another version of that. Each time the same."""
    return hashlib.sha256(node.id.encode() + node.digest).hexdigest()[:32]


def _names(nodes: Iterable[Node]) -> set[str]:
    """The images of messages."""
    return {sha256_of(block) for node in nodes for block in images_in(node.message.blocks)}


def _images_of(source: Source) -> dict[str, Image]:
    """The images of a conversation of kvchat's own, with the sizes that its messages tell."""
    sizes = {sha256_of(block): block.text for node in source.tree for block in images_in(node.message.blocks)}
    found: dict[str, Image] = {}
    for name, url in source.images.items():
        width, _, height = sizes.get(name, "").partition("x")
        if width.isdecimal() and height.isdecimal():
            found[name] = Image(url, int(width), int(height))
    return found


def _is_said(node: Node) -> bool:
    return node.role is not Role.SYSTEM


def _as_it_begins_here(tree: Tree) -> Iterator[Node]:
    """The messages of a file, each after its parent, with what a history lacks to be sent."""

    def children(of: Node) -> list[Node]:
        return [_settled(node, tree) for node in tree.children(of.id)]

    for root in tree.children(None):
        for _, node in mended(_settled(root, tree), children):
            yield node


def _settled(node: Node, tree: Tree) -> Node:
    """A reply that streamed when it was written to the file has ended, and so has a call that was carried out."""
    if node.state is not State.STREAMING:
        return node
    ended = said(NoteKind.KVCHAT_ENDED)
    if node.role is Role.TOOL and node.parent is not None:
        return settled(node, tree[node.parent], INTERRUPTED, "", State.INTERRUPTED, note=ended)
    return replace(node, state=State.INTERRUPTED, note=ended)


def _followed(before: Conversation | None, source: Source) -> str | None:
    """Where the branch in use ends then: as in the file, where that goes on from where it ended; else as it was."""
    target, tree = source.conversation.head, source.tree
    if before is None or before.head is None:
        return target
    above = {node.id for node in tree.path(target)}
    ends = tree[before.head]
    is_cut = ends.state is State.INTERRUPTED or (ends.state is State.EMPTY and not ends.text)
    if is_cut and ends.id not in above and ends.parent not in (None, target):
        ends = tree[ends.parent]  # what it replied to may have its reply now
    return target if ends.id in above else before.head
