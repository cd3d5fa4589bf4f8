"""Documents in a turn: what a question mentions or searches, put in front of it and frozen with it.

What was shown is what is sent, and nothing that is on the branch is sent again. A document is data: it
goes into the question's context, fenced and numbered, never into the system message.

In the order in which they are called:

1. `completions`, `attach`: while the question is written.
2. `resolved`: when it is sent, the question with its files and passages; `_resolved_edit` for an edit.
3. `retrieve`: what goes with a text, for the composer too. `_mentioned` finds the mentions, `_follow_mentions` reads.
4. `_plan`: which files, and in which collections to search (`documents.retrieval_plan`).
5. `_passages_for`: the passages (`documents.retriever`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import Noticed
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import (
    ALL,
    MentionScope,
    OutsideError,
    OutsideFile,
    files_of,
    outside,
    path_of,
    unsaid,
)
from kvchat.prompt.citations import name_of
from kvchat.prompt.context import FILE, IMAGE, MEMORY, NOTE, PASSAGE, TIME, ContextBlock
from kvchat.prompt.conversation import ALWAYS, ASK, OFF
from kvchat.prompt.drafts import PASTE, chips_of, label_of
from kvchat.prompt.message import Node
from kvchat.sanitize import one_line
from kvchat.store import StoreError
from kvchat.text.messages import nothing_found
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.chat.background.document_service import DocumentService
    from kvchat.chat.background.vectors import Vectors
    from kvchat.documents.collection import Passage
    from kvchat.documents.library import Library
    from kvchat.documents.mentions import Mention, WrittenMention
    from kvchat.documents.retrieval_plan import RetrievalPlan
    from kvchat.store.images import Image

UNKNOWN_WINDOW = 4096
"""Tokens of a window whose size no server has reported."""
SEARCH_S, READ_S = 5.0, 30.0
"""How long a question waits for its passages, and for the files it mentions."""

log = logging.getLogger(__name__)


class RetrievalResult(Struct, frozen=True):
    """What was found for a text."""

    passages: tuple[Passage, ...] = ()
    taken: bool = True
    """False: they are offered, and go only if the user takes them."""
    files: tuple[ContextBlock, ...] = ()
    """The files that it mentions, captured now."""
    outside: tuple[OutsideFile, ...] = ()
    """Those of `files` that go only with the user's yes."""
    problems: tuple[str, ...] = ()
    """Sentences about mentions that could not be followed."""
    mentions: tuple[tuple[int, int], ...] = ()
    """Where in the text those stand that could be."""
    pasted: tuple[str, ...] = ()
    """What it would mention if the user had typed it: plain text."""
    nothing: str = ""
    """A sentence where a mention brings nothing: what it names has nothing new."""

    def picked(self, question: Question) -> tuple[ContextBlock, ...]:
        """The passages that go with a question, as the user decided about them."""
        return tuple(
            one.block
            for one in self.passages
            if one.ref in question.taken or (self.taken and one.ref not in question.without)
        )


class Retrieval:
    """Passages and files for questions."""

    def __init__(
        self,
        core: Core,
        documents: DocumentService,
        vectors: Vectors,
    ) -> None:
        self._core = core
        self._documents = documents
        self._vectors = vectors

    async def set_retrieval(self, id: str, mode: str, collections: Sequence[str]) -> None:
        """Have a conversation search in these collections: `off`, `ask` or `always`."""
        await self._core.conversations.update(
            self._core.conversations.load(id),
            retrieval=mode if collections else OFF,
            collections=tuple(dict.fromkeys(collections)),
        )

    async def completions(self, beginning: str, most: int = 20) -> list[Mention]:
        """What a mention that begins like this can become."""
        from kvchat.documents.mentions import in_folder, is_of_disk, on_disk

        if is_of_disk(beginning):
            return await asyncio.to_thread(on_disk, beginning, most)
        found: list[Mention] = []
        if self._documents.has_collections:
            with suppress(ChatError, StoreError):
                found = await self._documents.look_up(
                    lambda library: library.completions(beginning, most) if library is not None else []
                )
        known = [name for name, _ in self._documents.roots()]
        return [*found, *await asyncio.to_thread(in_folder, beginning, known, most)][:most]

    # -- for a question

    async def retrieve(
        self, id: str, text: str, after: Sequence[Node] | None = None, *, search: bool = True, meant: MentionScope = ALL
    ) -> RetrievalResult:
        """What goes with this question: the files and passages that it mentions, else what is found in the
        conversation's collections. `after`: the branch it goes on from; None: the one in use. `search` False: only
        the files."""
        conversation = self._core.conversations.loaded.get(id)
        if conversation is None or not text.strip():
            return RetrievalResult()
        record = conversation.record
        mentions, pasted = await self._mentioned(text, meant) if "@" in text else ([], ())
        chosen = record.collections if record.retrieval != OFF and self._documents.has_collections else ()
        if not mentions and not (chosen and search):
            return RetrievalResult(pasted=pasted)
        path = conversation.path() if after is None else after
        found = await self._found(conversation, text, mentions, chosen, path, search)
        return replace(found, pasted=pasted)

    async def _mentioned(self, text: str, meant: MentionScope) -> tuple[list[WrittenMention], tuple[str, ...]]:
        """The mentions that count and may mean something; and what mentions something by its form and does not count:
        the disk is not asked for that, since others chose these names. The documents' thread is not needed."""
        known = {name.casefold() for name, _ in self._documents.roots()}

        def look() -> tuple[list[WrittenMention], tuple[str, ...]]:
            from kvchat.documents.mentions import is_of_disk, written
            from kvchat.documents.retrieval_plan import is_here, may_mean

            every = list(written(text))
            counted = meant.counted(every)
            found = [
                one
                for one in counted
                if one.is_picked or any(may_mean(name, known) or is_here(name) for name in one.names)
            ]
            starts = {one.start for one in counted}
            left = (one.names[-1] for one in every if one.start not in starts)
            shown = (name for name in left if is_of_disk(name) or name.partition("/")[0].casefold() in known)
            return found, tuple(dict.fromkeys(shown))

        return await asyncio.to_thread(look)

    async def _found(
        self,
        conversation: OpenConversation,
        text: str,
        mentions: Sequence[WrittenMention],
        chosen: Sequence[str],
        path: Sequence[Node],
        search: bool,
    ) -> RetrievalResult:
        """What goes with a text: of the places that it mentions, or else of the collections `chosen`. What fails is a
        problem only where the user named a place."""
        try:
            async with asyncio.timeout(READ_S if mentions else SEARCH_S):
                plan, from_outside, known = await self._plan(conversation, text, mentions, chosen, path)
        except (ChatError, StoreError, TimeoutError) as error:
            log.info("the documents were not looked into: %s", error or "it took too long")
            return RetrievalResult(problems=(ChatProblem.NOT_SEARCHED,) if mentions else ())
        named = plan.scopes if plan.named else ()
        passages: tuple[Passage, ...] = ()
        problems, nothing = plan.problems, known
        if search:
            try:
                async with asyncio.timeout(SEARCH_S):
                    passages = await self._passages_for(conversation.id, plan, path)
            except (ChatError, StoreError, TimeoutError) as error:
                log.info("the documents were not searched: %s", error or "it took too long")
                problems = (*problems, *((ChatProblem.NOT_SEARCHED,) if named else ()))
            else:
                begun = [
                    name for name in self._documents.indexing if any(one.startswith(f"docs/{name}/") for one in named)
                ]
                if begun and plan.query and not passages:
                    from kvchat.documents.retrieval_plan import still_indexed

                    problems = (*problems, still_indexed(begun[0]))
            if named and not passages and not problems:
                places = [one.removeprefix("docs/").rstrip("/") for one in named]
                nothing = nothing_found(places, is_blank=not plan.query)
        taken = plan.named or conversation.record.retrieval == ALWAYS
        return RetrievalResult(passages, taken, plan.files, from_outside, problems, plan.mentions, nothing=nothing)

    async def _plan(
        self,
        conversation: OpenConversation,
        text: str,
        mentions: Sequence[WrittenMention],
        chosen: Sequence[str],
        path: Sequence[Node],
    ) -> tuple[RetrievalPlan, tuple[OutsideFile, ...], str]:
        """What the text mentions, of files what the branch does not have yet, which of these are from outside, and a
        sentence where it has one already; or the collections to search in, where it mentions none. Raises ChatError and
        StoreError."""
        window = self._core.servers.window(conversation.id) or UNKNOWN_WINDOW
        most = window * self._core.settings.documents.attach_percent // 100 * 4
        roots, indexing = [root for _, root in self._documents.roots()], frozenset(self._documents.indexing)
        given = _given(conversation)

        def look(library: Library | None) -> tuple[RetrievalPlan, tuple[OutsideFile, ...], str]:
            from kvchat.documents.retrieval_plan import plan_retrieval

            plan = plan_retrieval(library, text, mentions, chosen, most, indexing, self._keep)
            new = unsaid(path, plan.files)
            left = {os.path.realpath(path_of(block)) for block in new}
            known = next((block.source for block in plan.files if os.path.realpath(path_of(block)) not in left), "")
            unchanged = ChatProblem.UNCHANGED.format(file=one_line(known, 60)) if known else ""
            return replace(plan, files=new), outside(new, roots, given), unchanged

        return await self._documents.look_up(look)

    async def _passages_for(self, id: str, plan: RetrievalPlan, path: Sequence[Node]) -> tuple[Passage, ...]:
        """The passages for a question. Raises ChatError and StoreError."""
        if not plan.scopes or not plan.query:
            return ()
        vector, model = await self._vectors.of(plan.query), self._vectors.model
        settings, window = self._core.settings.documents, self._core.servers.window(id) or UNKNOWN_WINDOW
        there = [*(block for node in path for block in node.message.blocks), *plan.files]

        def find(library: Library | None) -> tuple[Passage, ...]:
            from kvchat.documents.retriever import found

            if library is None:
                return ()
            library.vector_model = model
            passages = found(
                library,
                plan.query,
                plan.scopes,
                there,
                most=settings.passages,
                tokens=window * settings.budget_percent // 100,
                named=plan.named,
                vector=vector,
            )
            if not passages and not library.index.names("docs/", "", 1):
                raise ChatError(ChatProblem.NOT_SEARCHED)
            return tuple(passages)

        return await self._documents.look_up(find)

    async def attach(self, id: str, path: str) -> ContextBlock:
        """A file as a block, captured now; of one that is on the branch already, what has changed in it. Raises
        ChatError."""
        conversation = self._core.conversations.load(id)
        most = (
            (self._core.servers.window(id) or UNKNOWN_WINDOW) * self._core.settings.documents.attach_percent // 100 * 4
        )
        path_there = conversation.path()

        def capture() -> ContextBlock:
            from kvchat.documents.attachments import attached
            from kvchat.documents.errors import DocumentError
            from kvchat.documents.loading import path_meant

            try:
                whole = path_meant(path.strip())
                newer = attached(whole, whole.name, most, self._keep)
            except (DocumentError, OSError, RuntimeError, ValueError, StoreError) as error:
                raise ChatError.of(error) from None
            if changed := unsaid(path_there, (newer,)):
                return changed[0]
            raise ChatError(ChatProblem.UNCHANGED, file=newer.source)

        return await asyncio.to_thread(capture)

    async def attach_image(self, data: bytes) -> ContextBlock:
        """The image of the clipboard, as its file would be, as a block. Raises ChatError."""

        def capture() -> ContextBlock:
            from kvchat.documents.errors import FileUnreadableError
            from kvchat.documents.images import block_of, image_in
            from kvchat.documents.reading.sandbox import Readers

            try:
                with Readers() as readers:
                    image = image_in(data, readers)
                self._keep(image)
            except FileUnreadableError as error:
                raise ChatError.of(f"The image in the clipboard cannot be attached: it {error}.") from None
            except StoreError as error:
                raise ChatError.of(error) from None
            return block_of(image, "clipboard")

        return await asyncio.to_thread(capture)

    def _keep(self, image: Image) -> None:
        self._core.store.images.put([image])

    async def changed_files(self, id: str) -> list[str]:
        """The attached files of the branch in use that say something else on the disk now, by their paths."""
        conversation = self._core.conversations.loaded.get(id)
        there = files_of(conversation.path()) if conversation is not None else {}
        if not there:
            return []

        def look() -> list[str]:
            from kvchat.documents.attachments import has_changed

            return [path for path, blocks in there.items() if has_changed(blocks[-1])]

        return await asyncio.to_thread(look)

    # -- with a question

    async def resolved(self, conversation: OpenConversation, path: Sequence[Node], question: Question) -> Question:
        """The question with its passages and files: those that it has, else what is found for it. Raises ChatError,
        also where a mention that is looked up here cannot be followed, and OutsideError."""
        if question.again is not None:
            return await self._resolved_edit(conversation, path, question, question.again)
        passages, files, found = question.passages, question.files, RetrievalResult()
        if passages is None or files is None:
            found = await self.retrieve(
                conversation.id, question.text, path, search=passages is None, meant=question.meant
            )
        if found.problems:
            raise ChatError.of(found.problems[0])
        _all_agreed(found.outside if files is None else await self._from_outside(conversation, files), question.meant)
        attached = await self._from_outside(conversation, [one for one in question.blocks if one.kind == FILE])
        _all_agreed([file for file in attached if file.is_secret], question.meant)
        if found.nothing:
            self._core.events.tell(Noticed(found.nothing))
        if passages is None:
            passages = found.picked(question)
        text, blocks = await self._with_bases(conversation, question.text, question.blocks)
        if files is not None:
            files = tuple((await self._with_bases(conversation, "", files))[1])
        if text != question.text:
            question = replace(question, meant=replace(question.meant, spans=question.draft.rewritten(text).spans))
        return replace(
            question, text=text, blocks=tuple(blocks), passages=passages, files=found.files if files is None else files
        )

    async def _resolved_edit(
        self, conversation: OpenConversation, path: Sequence[Node], question: Question, before: Node
    ) -> Question:
        """A question that asks `before` differently, with what is found for it now, and of what went with that one
        what its text keeps."""
        found = await self.retrieve(conversation.id, question.text, path, meant=question.meant)
        if found.problems:
            raise ChatError.of(found.problems[0])
        _all_agreed(found.outside, question.meant)
        kept = [
            replace(block, source=name_of(block)) if block.kind != PASSAGE else block
            for block in _kept(before, question.text)
        ]
        passages = [one.block for one in found.passages] if found.taken else []
        if conversation.record.retrieval == ASK and not passages:  # those it has are the user's choice
            now = {one.ref: one.block for one in found.passages}
            passages = [
                now.get(block.ref, replace(block, source=name_of(block))) for block in kept if block.kind == PASSAGE
            ]
        return replace(
            question,
            blocks=tuple(block for block in kept if block.kind != PASSAGE),
            passages=tuple(passages),
            files=found.files,
        )

    async def _from_outside(
        self, conversation: OpenConversation, files: Sequence[ContextBlock]
    ) -> tuple[OutsideFile, ...]:
        if not files:
            return ()
        roots, given = [root for _, root in self._documents.roots()], _given(conversation)
        return await asyncio.to_thread(lambda: outside(files, roots, given))

    async def _with_bases(
        self, conversation: OpenConversation, text: str, blocks: Sequence[ContextBlock]
    ) -> tuple[str, Sequence[ContextBlock]]:
        """The question with the whole file in place of a change whose file is no longer on the branch. Raises ChatError
        where the file says something else by now."""
        if not any(block.kind == FILE and ".." in block.ref.rpartition("#")[2] for block in blocks):
            return text, blocks
        from kvchat.documents.attachments import has_base, is_same_state

        there = [block for known in files_of(conversation.path()).values() for block in known]
        sent = []
        for block in blocks:
            if block.kind == FILE and not has_base(block, there):
                newer = await self.attach(conversation.id, path_of(block))
                if not is_same_state(block, newer):
                    raise ChatError(ChatProblem.BASE_GONE, file=name_of(block))
                for label in chips_of(text, [block]):
                    text = text.replace(label, label_of(newer))
                block = newer
            sent.append(block)
        return text, sent


def _kept(question: Node, text: str) -> list[ContextBlock]:
    """The blocks of a question that stay when its text becomes `text`: pastes and files whose labels stay, and passages
    unless a mention is gone, which may have brought them."""
    labelled = [block for label, block in chips_of(text, question.message.blocks).items() if label in text]
    passages = _mentions(question.text) <= _mentions(text)
    return [
        block
        for block in question.message.blocks
        if block.kind not in (TIME, MEMORY, NOTE)
        and (block.kind not in (PASTE, FILE, IMAGE) or block in labelled)
        and (block.kind != PASSAGE or passages)
    ]


def _mentions(text: str) -> set[str]:
    return {word for word in text.split() if "@" in word}


def _given(conversation: OpenConversation) -> list[ContextBlock]:
    """The files that went with questions of this conversation, on whatever branch."""
    return [block for node in conversation.tree for block in node.message.blocks if block.kind in (FILE, IMAGE)]


def _all_agreed(files: Sequence[OutsideFile], meant: MentionScope) -> None:
    """Raises OutsideError where one of these files needs a yes that was not given."""
    if missing := [file for file in files if file.path not in meant.agreed]:
        raise OutsideError(missing)
