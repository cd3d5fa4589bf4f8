"""Documents in a turn: what a question mentions or searches, put in front of it and frozen with it.

The rule: what was shown is what is sent, and nothing that stands on the branch is sent again. A document is data: it
goes into the question's context, fenced and numbered, never into the system message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.embedding import Embedding
from kvchat.chat.errors import ChatError
from kvchat.chat.live import OpenConversation
from kvchat.prompt.citing import name_of, numbered
from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.conversation import ALWAYS, OFF
from kvchat.prompt.message import Node
from kvchat.prompt.request import Parameters
from kvchat.store import StoreError

if TYPE_CHECKING:
    from kvchat.documents.collection import Passage
    from kvchat.documents.consultation import Consultation
    from kvchat.documents.library import Library
    from kvchat.documents.mentions import Mention

UNKNOWN_WINDOW = 4096
"""Tokens of a window whose size no server has told."""
SEARCH_S, READ_S = 5.0, 30.0
"""How long a question waits for its passages, and for the files it mentions."""

NOT_SEARCHED = "The documents could not be searched; send it again, or without the mention."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Consulted:
    """What was found for a text."""

    passages: tuple[Passage, ...] = ()
    taken: bool = True
    """False: they are offered, and go only if the person takes them."""
    files: tuple[ContextBlock, ...] = ()
    """The files that it mentions, captured now."""
    problems: tuple[str, ...] = ()
    """Sentences about mentions that could not be followed."""


class Consulting(Embedding):
    """Passages and files for questions."""

    async def set_searching(self, id: str, mode: str, collections: Sequence[str]) -> None:
        """Have a conversation search in these collections: `off`, `ask` or `always`."""
        await self._update(await self._opened(id), searching=mode if collections else OFF,
                           collections=tuple(dict.fromkeys(collections)))

    async def completions(self, beginning: str, most: int = 20) -> list[Mention]:
        """What a mention that begins like this can become."""
        from kvchat.documents.completing import on_disk
        from kvchat.documents.mentions import is_of_disk

        if is_of_disk(beginning):
            return await asyncio.to_thread(on_disk, beginning, most)
        if not self.has_documents:
            return []
        try:
            return await self.with_documents(lambda library: library.completions(beginning, most))
        except ChatError:
            return []

    # -- for a question

    async def consult(self, id: str, text: str, after: Sequence[Node] | None = None, *,
                      search: bool = True) -> Consulted:
        """What goes with this question: the files and passages that it mentions, else what is found in the
        conversation's collections. `after`: the branch it goes on from; None: the one in use. `search` False: only
        the files."""
        conversation = self._open.get(id)
        if conversation is None or not text.strip():
            return Consulted()
        record = conversation.record
        searches = record.searching != OFF and bool(record.collections) and self.has_documents
        if not searches and "@" not in text:
            return Consulted()
        path = conversation.path() if after is None else after
        window = self._window(id) or UNKNOWN_WINDOW
        plan = await self._asked_for(text, record.collections if searches else (), window)
        plan = replace(plan, files=_unsaid(path, plan.files))
        if not search or not plan.scopes or not plan.query:
            return Consulted(files=plan.files, problems=plan.problems)
        vector, model = await self._vector_of(plan.query), self.vector_model
        settings = self.settings.documents
        there = [block for node in path for block in node.message.blocks]

        def find(library: Library) -> list[Passage]:
            from kvchat.documents.finding import found

            library.vector_model = model
            return found(library, plan.query, plan.scopes, [*there, *plan.files], most=settings.passages,
                         tokens=window * settings.budget_percent // 100, named=plan.named, vector=vector)

        try:
            async with asyncio.timeout(SEARCH_S):
                passages = await self.with_documents(find)
        except (ChatError, TimeoutError) as error:
            log.info("the documents were not searched: %s", error or "it took too long")
            return Consulted(files=plan.files, problems=(*plan.problems, *((NOT_SEARCHED,) if plan.named else ())))
        return Consulted(tuple(passages), plan.named or record.searching == ALWAYS, plan.files, plan.problems)

    async def _asked_for(self, text: str, collections: Sequence[str], window: int) -> Consultation:
        """What the text mentions, or the collections to search in, where it mentions none."""
        from kvchat.documents.consultation import consultation

        most = window * self.settings.documents.attach_percent // 100 * 4
        library = self.has_documents

        def look() -> Consultation:
            return consultation(self._opened_library() if library else None, text, collections, most)

        try:
            async with asyncio.timeout(READ_S):
                return await self._reader.do(look)
        except (StoreError, TimeoutError) as error:
            from kvchat.documents.consultation import Consultation

            log.info("a mention was not followed: %s", error or "it took too long")
            return Consultation(problems=(NOT_SEARCHED,) if "@" in text else ())

    async def attach(self, id: str, path: str) -> ContextBlock:
        """A file as a block, captured now; of one that stands on the branch already, what has changed in it. Raises
        ChatError."""
        conversation = await self._opened(id)
        most = (self._window(id) or UNKNOWN_WINDOW) * self.settings.documents.attach_percent // 100 * 4
        path_there = conversation.path()

        def capture() -> ContextBlock:
            from kvchat.documents.attaching import attached
            from kvchat.documents.errors import DocumentError

            try:
                whole = Path(path.strip()).expanduser().absolute()
                newer = attached(whole, whole.name, most)
            except (DocumentError, OSError, RuntimeError, ValueError) as error:
                raise ChatError(str(error)) from None
            if (changed := _unsaid(path_there, (newer,))):
                return changed[0]
            raise ChatError(f"{newer.source} stands in this conversation already and has not changed since.")

        return await asyncio.to_thread(capture)

    async def changed_files(self, id: str) -> list[str]:
        """The attached files of the branch in use that say something else on the disk now, by their paths."""
        conversation = self._open.get(id)
        there = _files(conversation.path()) if conversation is not None else {}
        if not there:
            return []

        def look() -> list[str]:
            from kvchat.documents.attaching import has_changed

            return [path for path, blocks in there.items() if has_changed(blocks[-1])]

        return await asyncio.to_thread(look)

    # -- with a question

    async def send(self, id: str, text: str, blocks: Sequence[ContextBlock] = (), *,
                   parameters: Parameters | None = None, without: frozenset[str] = frozenset(), recalls: bool = True,
                   passages: Sequence[Passage] | None = None) -> None:
        """Store the question with what goes in front of it, then let the answer stream in its own task. `passages`:
        exactly these; None: what is found for the text. Raises ChatError."""
        conversation = await self._free(id)
        found = await self.consult(id, text, search=passages is None)
        if found.problems:
            raise ChatError(found.problems[0])
        if passages is None:
            passages = found.passages if found.taken else ()
        captured = {_path_of(block) for block in blocks if block.kind == FILE}
        blocks = (*blocks, *(block for block in found.files if _path_of(block) not in captured))
        await super().send(id, text, await self._as_sent(conversation, conversation.path(), (
            *blocks, *(passage.block for passage in passages))), parameters=parameters, without=without,
            recalls=recalls)

    async def _with_memories(self, conversation: OpenConversation, path: Sequence[Node], text: str,
                             blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        found = await self.consult(conversation.id, text, path)
        if found.problems:
            raise ChatError(found.problems[0])
        kept = [replace(block, source=name_of(block)) for block in blocks]
        passages = found.passages if found.taken else ()
        sent = await self._as_sent(conversation, path, (*kept, *found.files, *(one.block for one in passages)))
        return await super()._with_memories(conversation, path, text, sent)

    async def _as_sent(self, conversation: OpenConversation, path: Sequence[Node],
                       blocks: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
        return numbered(await super()._as_sent(conversation, path, blocks), path)


def _files(path: Sequence[Node]) -> dict[str, list[ContextBlock]]:
    """The attached files of a branch by their paths, each as it was attached, oldest first."""
    found: dict[str, list[ContextBlock]] = {}
    for node in path:
        for block in node.message.blocks:
            if block.kind == FILE:
                found.setdefault(_path_of(block), []).append(block)
    return found


def _unsaid(path: Sequence[Node], files: Sequence[ContextBlock]) -> tuple[ContextBlock, ...]:
    """Of files as they are now what the branch does not have yet: the whole of a new one, the change of one that was
    attached before."""
    there = _files(path)
    if not any(_path_of(file) in there for file in files):
        return tuple(files)
    from kvchat.documents.attaching import change, whole_of

    fresh = []
    for file in files:
        known = there.get(_path_of(file))
        newer = change(known[-1], file, whole_of(known)) if known else file
        if newer is not None:
            fresh.append(newer)
    return tuple(fresh)


def _path_of(block: ContextBlock) -> str:
    return block.ref.rpartition("#")[0]
