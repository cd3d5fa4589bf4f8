"""The Markdown mirror: a file of every conversation in a folder of the user's own, where the settings name one.

It is derived from the store and never read back. It is written in quiet moments, on a thread of its own, one
conversation in memory at a time; a failure is shown once and holds nothing up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kvchat.chat.background.worker import Worker
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.core import Core
from kvchat.chat.events import AnswerEnded, ConversationChanged, ConversationsChanged, Noticed, ServiceEvent
from kvchat.chat.ground import QUIT_S
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import State
from kvchat.store import StoreError

if TYPE_CHECKING:
    from kvchat.transfer.mirror import MirrorFolder

SETTLE_S = 0.5
"""Seconds: a change within this time of another one is written with it."""
TYPING_S = 1.0
"""Seconds after the last key in which nothing is written."""
SLICE_S = 0.03
"""Seconds that the thread works before it rests for as long."""
MOST_AT_END = 20
"""Conversations that are written when kvchat ends; the next start writes what is left."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class Mirror(ConversationObserver):
    """Keeps the files as the conversations are. An incognito run has none."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._worker = Worker("kvchat-mirror")
        self._stir = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._of = ""
        """The folder that `_written` is about, as the settings name it."""
        self._written: dict[str, tuple[object, ...]] = {}
        """By conversation: the facts that its file was made from."""
        self._changed: set[str] = set()
        """What was changed here since the files were brought up to date."""
        self._typed = 0.0
        self._told = False
        """Whether it was shown that the files cannot be written."""
        if not core.incognito:
            core.events.subscribe(self._heard)
            core.conversations.observers.append(self)

    def begin(self) -> None:
        """Keep the files from now on, until `aclose`."""
        if not self._core.incognito and self._task is None:
            self._task = asyncio.create_task(self._run())

    def look_again(self) -> None:
        """The settings may name another folder."""
        self._told = False
        self._stir.set()

    async def forget_trash(self) -> None:
        """Remove the files of what is in the trash: it is about to be emptied."""
        if self._wanted:
            await self._attempt(self._remove_trashed)

    async def aclose(self) -> None:
        """Write what was changed last."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._wanted and (last := list(self._changed)[:MOST_AT_END]):
            with suppress(TimeoutError):
                async with asyncio.timeout(QUIT_S):
                    await self._attempt(lambda: self._bring(self._folder(), last, slice_s=QUIT_S))
        self._worker.end()

    @property
    def _wanted(self) -> str:
        """The folder that the settings name."""
        return "" if self._core.incognito else self._core.settings.export.mirror_folder.strip()

    def typed(self, id: str) -> None:
        self._typed = time.monotonic()

    def _heard(self, event: ServiceEvent) -> None:
        if self._wanted and isinstance(event, ConversationChanged | AnswerEnded):
            self._changed.add(event.conversation)
        if isinstance(event, ConversationChanged | ConversationsChanged | AnswerEnded):
            self._stir.set()

    # -- when

    async def _run(self) -> None:
        while True:
            self._stir.clear()
            await self._catch_up()
            await self._stir.wait()
            await asyncio.sleep(SETTLE_S)

    async def _rest(self) -> None:
        """Return when no answer runs here and the user does not type."""
        while True:
            if running := self._core.conversations.streaming():
                await self._core.conversations.wait(next(iter(running)))
            elif (pause := self._typed + TYPING_S - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            else:
                return

    async def _catch_up(self) -> None:
        """Bring every file up to date."""
        if self._of != self._wanted:
            self._of, self._written = self._wanted, {}
        if not self._of:
            self._changed.clear()
            return
        await self._rest()
        changed, self._changed = self._changed, set()
        if not await self._brought_all():
            self._changed |= changed

    async def _brought_all(self) -> bool:
        """Whether every file is as its conversation was when this began."""
        try:
            records = self._core.conversations.all()
        except StoreError as error:
            log.info("the mirror could not read the store: %s", error)
            return False
        begun = await self._attempt(partial(self._begun, records))
        if begun is None:
            return False
        folder, ids = begun
        while ids:
            await self._rest()
            if self._of != self._wanted:
                return False
            began = time.monotonic()
            done = await self._attempt(partial(self._bring, folder, ids))
            if done is None:
                return False
            ids = ids[done:]
            await asyncio.sleep(time.monotonic() - began if ids else 0.0)
        self._told = False
        return True

    async def _attempt(self, work: Callable[[], T]) -> T | None:
        """What `work` gives, on the thread; None where it failed, which is shown once until it succeeds again."""
        from kvchat.transfer.formats import TransferError

        try:
            return await self._worker.do(work)
        except StoreError as error:
            log.info("the mirror could not read the store: %s", error)
        except TransferError as error:
            if not self._told:
                self._told = True
                self._core.events.tell(Noticed(f"Conversations are not mirrored: {error}", "warning"))
        return None

    # -- on the thread

    def _folder(self) -> MirrorFolder:
        from kvchat.transfer.mirror import MirrorFolder

        assert self._core.store.database.path is not None
        return MirrorFolder(self._core.store.database.path.parent, self._wanted)

    def _begun(self, records: Sequence[Conversation]) -> tuple[MirrorFolder, list[str]]:
        """The folder, and what is to be looked at: what is in the trash, and those of the list that have changed."""
        from kvchat.transfer.mirror import facts

        behind = [one.id for one in records if one.turns and self._written.get(one.id) != facts(one)]
        return self._folder(), [*self._trashed(), *behind]

    def _trashed(self) -> list[str]:
        return [one.id for one in self._core.store.conversations(trashed=True)]

    def _remove_trashed(self) -> None:
        self._bring(self._folder(), self._trashed(), slice_s=QUIT_S)

    def _bring(self, folder: MirrorFolder, ids: Sequence[str], *, slice_s: float = SLICE_S) -> int:
        """Bring the files of some of these conversations up to date; how many. Raises TransferError."""
        end = time.monotonic() + slice_s
        for done, id in enumerate(ids, 1):
            try:
                self._bring_one(folder, id)
            except StoreError as error:
                log.info("a conversation could not be mirrored: %s", error)
            if time.monotonic() >= end:
                return done
        return len(ids)

    def _bring_one(self, folder: MirrorFolder, id: str) -> None:
        from kvchat.transfer.formats import Source
        from kvchat.transfer.mirror import facts, state_of

        store = self._core.store
        record = store.known(id)
        if record is None or record.trashed is not None:
            self._written.pop(id, None)
            folder.remove(id)
            return
        if record.turns and folder.state(id) != state_of(record):
            tree, head = store.tree(id), record.head or ""
            if head not in tree or tree[head].state is State.STREAMING:
                return  # the end of the answer stirs this again
            folder.put(Source(record, tree))
        self._written[id] = facts(record)
