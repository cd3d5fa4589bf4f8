"""Look up what goes with the message while the user writes it: memories, passages, attached files, files that have
changed since.

Look-ups never delay the typing; a result that comes too late for the text is dropped.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual.worker import Worker, WorkerCancelled

from kvchat.chat.errors import ChatError
from kvchat.chat.question.mentions import MentionScope
from kvchat.prompt.context import rendered
from kvchat.prompt.drafts import PASTE, Spans
from kvchat.prompt.images import MOST_TOKENS, images_in
from kvchat.sanitize import one_line
from kvchat.text.cache import cost_words
from kvchat.text.format import counted
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.key_queue import idle
from kvchat.ui.widgets.composer.context_items import FILE, PASSAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvchat.chat.question.retrieval import RetrievalResult
    from kvchat.prompt.context import ContextBlock
    from kvchat.ui.widgets.composer.widget import Composer

SLOW_S = 0.3
"""Seconds after which a search that still runs is worth a word."""
SUGGESTED = 50
"""Completions of a mention that are asked for."""
LISTED = 200
"""Files that the dialog to attach one lists at most."""


class ContextController:
    """Looks up what goes with the message, and shows it over the composer."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._memory = service.memory
        self._retrieval = service.retrieval
        self._warm_up = service.warm_up
        self._composer = screen.composer
        self._look_up: Worker[None] | None = None
        """The last one for what is written."""
        self._pasted: Composer.PathPasted | None = None
        """The path of a file that was pasted last."""
        self._told_changed: frozenset[tuple[str, str]] = frozenset()
        """Conversations and their changed files that the user was notified of."""
        self._composer.context.count = self._count

    # -- found for what is written

    def typing_rests(self, event: Composer.Rested) -> None:
        """Show what would be recalled for what was written, and what is found in the documents."""
        self._look_up = self._looked_up(event)
        self.look_for_changes()

    @in_worker("look up", exclusive=True)
    async def _looked_up(self, event: Composer.Rested) -> None:
        await asyncio.gather(self._recall(event.key, event.text), self._find(event.text, event.spans))

    async def _recall(self, key: str, text: str) -> None:
        found = await self._memory.recall(key, text) if key and text else ()
        if self.workspace.shows(key):
            # The profile comes first in the question; what belongs to the question itself is shown first.
            self._composer.context.set_memories(
                [entry for recalled in reversed(found) for entry in recalled.entries], text
            )

    @in_worker("dialog")
    async def choose(self) -> None:
        """Take the passages that are offered; else have the user choose, item by item, what goes with the message. What
        is not looked up yet is waited for, unless the user writes on meanwhile: then the line shows it."""
        from kvchat.ui.screens.context import ContextScreen

        self._composer.rest()
        with self.workspace.key_queue.coming() as dialog:
            await idle(self._composer.ancestors_with_self)
            while self._look_up is not None and not self._look_up.is_finished:
                with suppress(WorkerCancelled):  # for a newer one
                    await self._look_up.wait()
        items = self._composer.context.items
        if dialog.is_given_up or dialog.is_late:
            return
        if not items.all:
            self.workspace.say("Nothing extra goes with this message")
        elif items.is_offer:
            items.take_all()
            self._composer.context.decided()
        else:
            await self.workspace.ask(
                ContextScreen(
                    items,
                    lambda item: self._price(item.sent, item.tokens, item.is_image),
                    self._composer.context.decided,
                )
            )

    async def _find(self, text: str, spans: Spans) -> None:
        id, editing = self.workspace.open_id, self.workspace.editing
        if not id or not text:
            return
        slow = self.workspace.screen.set_timer(SLOW_S, lambda: self._composer.context.set_searching(text))
        try:
            found = await self.retrieve(id, text, MentionScope(spans), editing)
        finally:
            slow.stop()
        if not self.workspace.shows(id) or self.workspace.editing != editing:
            return
        # An edit asks again with what is found; nothing is offered for it.
        offers_none = editing is not None and not found.taken
        self._composer.context.set_passages(
            () if offers_none else found.passages,
            text,
            spans,
            taken=found.taken or offers_none,
            files=found.files,
            outside={file.ref: file.path for file in found.outside},
            problems=found.problems,
            mentions=found.mentions,
            pasted=found.pasted,
            nothing=found.nothing,
            fixed=editing is not None,
        )

    async def retrieve(self, id: str, text: str, meant: MentionScope, editing: str | None) -> RetrievalResult:
        if editing is None:
            return await self._retrieval.retrieve(id, text, meant=meant)
        tree = self.workspace.service.conversations.load(id).tree
        return await self._retrieval.retrieve(id, text, tree.path(tree[editing].parent), meant=meant)

    @in_worker("mention", exclusive=True)
    async def suggest(self, beginning: str) -> None:
        """Completions of a mention that begins like this."""
        self._composer.mentions.set_completions(await self._retrieval.completions(beginning, SUGGESTED), beginning)

    def show_attached(self) -> None:
        """Show the estimated prefill of what goes with the message."""
        composer = self._composer
        if self.workspace.current is None:
            composer.set_cost("")
            return
        blocks = composer.blocks
        self._warm_up.prepare(self.workspace.current.id, blocks)
        found = [item for kind in (FILE, PASSAGE) for item in composer.context.items.kept(kind)]
        sent = rendered(blocks, "") if blocks else ""
        attached = len(images_in(blocks))
        tokens = (self._count(sent) if sent else 0) + attached * MOST_TOKENS + sum(item.tokens for item in found)
        words = self._price(
            sent + "".join(item.sent for item in found), tokens, attached + sum(item.is_image for item in found)
        )
        only_pasted = not found and not any(block.kind != PASTE for block in blocks)
        composer.set_cost(f"pasted: {words}" if words and only_pasted else words, quietly=not blocks)

    def _count(self, text: str) -> int:
        current = self.workspace.current
        return (self.workspace.service.prices.estimate(current.id, "attach", text=text).tokens or 0) if current else 0

    def _price(self, sent: str, tokens: int, images: int = 0) -> str:
        """`~812 tokens, about 3 s`; with images `at most`; empty where nothing is sent."""
        if not tokens:
            return ""
        prices, id = self.workspace.service.prices, self.workspace.conversation.id
        price = prices.estimate(id, "attach", text=sent, images=images)
        return f"{'at most ' if images else '~'}{cost_words(tokens, price.seconds)}"

    # -- attaching

    @in_worker("pasted path", exclusive=True)
    async def offer_to_attach(self, event: Composer.PathPasted) -> None:
        """The path of a file was pasted: an image is attached in its place, and keys wait for it; of another file say
        how it is attached."""
        from kvchat.documents.images import ENDINGS

        if Path(event.path).suffix.lower() in ENDINGS and self.workspace.editing is None:
            with self.workspace.key_queue.hold():
                if await asyncio.to_thread(_is_file, event.path):
                    await self._put(event.path, event.pasted)
        elif await asyncio.to_thread(_is_file, event.path):
            self._pasted = event
            name = one_line(Path(event.path).name, 60)
            self.workspace.say(f"That is a file's path · {self.workspace.key_of('attach')} attaches {name}")

    @in_worker("paste")
    async def paste(self, text: str) -> None:
        """Attach the image in the system's clipboard; without one put this text in. Keys wait for it."""
        from kvchat.ui.terminal import ClipboardError, image

        problem = "There is no image in the clipboard; text comes with the terminal's own key to paste."
        id = self.workspace.conversation.id
        with self.workspace.key_queue.hold():
            if self.workspace.editing is None:
                try:
                    if data := await asyncio.to_thread(image):
                        self._put_attached(id, await self._retrieval.attach_image(data))
                        return
                except (ClipboardError, ChatError) as error:
                    problem = str(error)
            if text:
                self._composer.paste(text)
            else:
                self.workspace.say(problem, "warning")

    async def attach(self, path: str = "") -> None:
        """Attach the file at this path; without one the file whose path was just pasted, else ask for it."""
        pasted, self._pasted = self._pasted, None
        if self.workspace.editing is not None:
            self.workspace.say(f"Files go with new messages · {self.workspace.key_of('stop')} stops editing", "warning")
        elif path.strip():
            self._capture(path.strip())
        elif pasted is not None and pasted.pasted in self._composer.text:
            self._capture(pasted.path, pasted.pasted)
        else:
            self._open_attach()

    @in_worker("attach")
    async def _capture(self, path: str, instead_of: str = "") -> None:
        await self._put(path, instead_of)

    async def _put(self, path: str, instead_of: str) -> None:
        id = self.workspace.conversation.id
        try:
            block = await self._retrieval.attach(id, path)
        except ChatError as error:
            self.workspace.say(str(error), "warning")
            if not instead_of and not self._composer.text and self.workspace.conversation.id == id:
                self._composer.replace_text(f"/attach {path}")
            return
        self._put_attached(id, block, instead_of)

    def _put_attached(self, id: str, block: ContextBlock, instead_of: str = "") -> None:
        if self.workspace.shows(id) and self.workspace.editing is None:
            self._composer.attach(block, instead_of)
            self._composer.focus()

    @in_worker("dialog")
    async def _open_attach(self) -> None:
        """Ask for a file, and attach it."""
        from kvchat.ui.screens.context import AttachScreen

        id = self.workspace.conversation.id
        block = await self.workspace.ask(
            AttachScreen(
                lambda beginning: self._retrieval.completions(beginning, LISTED),
                lambda path: self._retrieval.attach(id, path),
            )
        )
        if block is not None:
            self._put_attached(id, block)

    # -- files that have changed since

    @in_worker("changed files", exclusive=True)
    async def look_for_changes(self) -> None:
        """Tell of attached files that say something else now, once for each."""
        if self.workspace.current is None:
            return
        id = self.workspace.current.id
        changed = await self._retrieval.changed_files(id)
        news = [path for path in changed if (id, path) not in self._told_changed]
        elsewhere = {other for other in self._told_changed if other[0] != id}
        self._told_changed = frozenset(elsewhere | {(id, path) for path in changed})
        if news and self.workspace.shows(id):
            self.workspace.say(changed_words(news))


def changed_words(paths: Sequence[str]) -> str:
    """That these files have changed, and what can be done about the first."""
    others = len(paths) - 1
    more = f" and {counted(others, 'other file')} have" if others else " has"
    name, path = one_line(Path(paths[0]).name, 24), one_line(short_path(paths[0]))
    return f"{name}{more} changed · /attach {path} sends the change"


def short_path(path: str) -> str:
    """A path as short as it can be given: below the working folder without that, else with ~ for the home folder."""
    for folder, sign in ((Path.cwd, "."), (Path.home, "~")):
        try:
            return str(Path(sign) / Path(path).relative_to(folder()))
        except (ValueError, RuntimeError, OSError):
            continue
    return path


def _is_file(path: str) -> bool:
    try:
        return Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False
