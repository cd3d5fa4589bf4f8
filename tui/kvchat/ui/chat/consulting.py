"""Documents on the main screen while one writes: what is found for the message, files attached to it, files that have
changed since.

The rule: everything is looked up beside the typing; what comes too late for the text is dropped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work

from kvchat.chat.errors import ChatError
from kvchat.chat.mentioning import Meant
from kvchat.display import one_line
from kvchat.numbers import counted
from kvchat.prompt.context import rendered
from kvchat.text.cache import cost_words
from kvchat.ui.chat.base import ChatBase
from kvchat.ui.widgets.composer import Composer
from kvchat.ui.widgets.context_items import FILE, PASSAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvchat.chat.retrieval import Consulted
    from kvchat.prompt.context import ContextBlock

SLOW_S = 0.3
"""Seconds after which a search that still runs is worth a word."""
SUGGESTED = 50
"""Completions of a mention that are asked for."""
LISTED = 200
"""Files that the dialog to attach one lists at most."""


class ConsultingActs(ChatBase):
    """What the main screen does about documents while one writes."""

    _pasted: Composer.PathPasted | None = None
    """The path of a file that was pasted last."""
    _told_changed: frozenset[tuple[str, str]] = frozenset()
    """Conversations and their changed files that the person was told of."""

    def on_mount(self) -> None:
        self.composer.count = self._count
        self.watch(self.app, "app_focus", self._window_focused, init=False)

    # -- found for what is written

    def consult(self, text: str, typed: frozenset[int]) -> None:
        """Find what goes with this text, for the line over the composer. `typed`: which `@` in it count."""
        if self.current is not None and text:
            self._consult(self.current.id, text, typed, self.editing)

    @work(exclusive=True, group="consult")
    async def _consult(self, id: str, text: str, typed: frozenset[int], editing: str | None) -> None:
        slow = self.set_timer(SLOW_S, lambda: self.composer.set_searching(text))
        try:
            found = await self._consulted(id, text, Meant(typed), editing)
        finally:
            slow.stop()
        if self.current is None or self.current.id != id or self.editing != editing:
            return
        # An edit asks anew with what is found; nothing is offered for it.
        offers_none = editing is not None and not found.taken
        self.composer.set_passages(
            () if offers_none else found.passages, text, typed, taken=found.taken or offers_none, files=found.files,
            outside={file.ref: file.path for file in found.outside}, problems=found.problems, pasted=found.pasted,
            fixed=editing is not None)

    async def _consulted(self, id: str, text: str, meant: Meant, editing: str | None) -> Consulted:
        if editing is None:
            return await self.service.retrieval.consult(id, text, meant=meant)
        tree = self.conversation.tree
        return await self.service.retrieval.consult(id, text, tree.path(tree[editing].parent), meant=meant)

    @on(Composer.Mentioning)
    def _mentioning(self, event: Composer.Mentioning) -> None:
        event.stop()
        self._suggest(event.beginning)

    @work(exclusive=True, group="mention")
    async def _suggest(self, beginning: str) -> None:
        self.composer.set_completions(await self.service.retrieval.completions(beginning, SUGGESTED), beginning)

    @on(Composer.ContextChanged)
    def _context_changed(self, event: Composer.ContextChanged) -> None:
        event.stop()
        self.show_attached()

    def show_attached(self) -> None:
        """What goes with the message would have the server read, as well as it can be told before it is read."""
        composer = self.composer
        if self.current is None:
            composer.set_cost("")
            return
        blocks = composer.blocks
        self.service.warm_up.prepare(self.current.id, blocks)
        found = [item for kind in (FILE, PASSAGE) for item in composer.context.kept(kind)]
        sent = rendered(blocks, "") if blocks else ""
        tokens = (self._count(sent) if sent else 0) + sum(item.tokens for item in found)
        words = self._price(sent + "".join(item.sent for item in found), tokens)
        only_pasted = not found and not any(block.kind == FILE for block in blocks)
        composer.set_cost(f"pasted: {words}" if words and only_pasted else words, quietly=not blocks)

    def _count(self, text: str) -> int:
        return (self.service.prices.estimate(self.current.id, "attach", text=text).tokens or 0) if self.current else 0

    def _price(self, sent: str, tokens: int) -> str:
        """`~812 tokens, about 3 s`; empty where nothing is sent."""
        if not tokens:
            return ""
        return f"~{cost_words(tokens, self.service.prices.estimate(self.conversation.id, 'attach', text=sent).seconds)}"

    @on(Composer.Looked)
    def _looked(self, event: Composer.Looked) -> None:
        event.stop()
        self.look_at(event.id)

    @work(group="dialog")
    async def look_at(self, id: str) -> None:
        """Show what goes with the message, item by item, as it is sent."""
        from kvchat.ui.screens.context import ContextScreen

        context = self.composer.context
        every = context.all
        at = next((place for place, item in enumerate(every) if item.id == id), None)
        if at is None:
            return
        out = {item.id for item in every if context.is_out(item)}
        left_out = await self.ask(ContextScreen(
            every, at, out, lambda item: self._price(item.sent, item.tokens), self.composer.agree))
        if left_out is not None:
            self.composer.leave_out(left_out, {item.id for item in every} - left_out)

    # -- attaching

    @on(Composer.PathPasted)
    def _path_pasted(self, event: Composer.PathPasted) -> None:
        event.stop()
        self._offer_to_attach(event)

    @work(exclusive=True, group="pasted path")
    async def _offer_to_attach(self, event: Composer.PathPasted) -> None:
        import asyncio

        if await asyncio.to_thread(_is_file, event.path):
            self._pasted = event
            name = one_line(Path(event.path).name, 60)
            self.say(f"That is the path of a file; {self.app.key_of('attach')} attaches {name}.")

    async def action_attach(self, path: str = "") -> None:
        """Attach the file at this path; without one the file whose path was just pasted, else ask for it."""
        pasted, self._pasted = self._pasted, None
        if self.editing is not None:
            self.say("A file goes with a new message. Esc leaves the editing.", "warning")
        elif path.strip():
            self._capture(path.strip())
        elif pasted is not None and pasted.pasted in self.composer.text:
            self._capture(pasted.path, pasted.pasted)
        else:
            self.open_attach()

    @work(group="attach")
    async def _capture(self, path: str, instead_of: str = "") -> None:
        id = self.conversation.id
        try:
            block = await self.service.retrieval.attach(id, path)
        except ChatError as error:
            self.say(str(error), "warning")
            if not instead_of and not self.composer.text and self.conversation.id == id:
                self.composer.replace_text(f"/attach {path}")
            return
        self._put_attached(id, block, instead_of)

    def _put_attached(self, id: str, block: ContextBlock, instead_of: str = "") -> None:
        if self.current is not None and self.current.id == id and self.editing is None:
            self.composer.attach(block, instead_of)
            self.composer.focus()

    @work(group="dialog")
    async def open_attach(self) -> None:
        """Ask for a file, and attach it."""
        from kvchat.ui.screens.context import AttachScreen

        id = self.conversation.id
        block = await self.ask(AttachScreen(
            lambda beginning: self.service.retrieval.completions(beginning, LISTED),
            lambda path: self.service.retrieval.attach(id, path)))
        if block is not None:
            self._put_attached(id, block)

    # -- files that have changed since

    def _window_focused(self, focused: bool) -> None:
        if focused:
            self.look_for_changes()

    @on(Composer.Loaded)
    def _loaded(self, event: Composer.Loaded) -> None:
        event.stop()
        self.look_for_changes()

    @work(exclusive=True, group="changed files")
    async def look_for_changes(self) -> None:
        """Tell of attached files that say something else now, once for each."""
        if self.current is None:
            return
        id = self.current.id
        changed = await self.service.retrieval.changed_files(id)
        news = [path for path in changed if (id, path) not in self._told_changed]
        elsewhere = {told for told in self._told_changed if told[0] != id}
        self._told_changed = frozenset(elsewhere | {(id, path) for path in changed})
        if news and self.current is not None and self.current.id == id:
            self.say(changed_words(news))


def changed_words(paths: Sequence[str]) -> str:
    """That these files have changed, and what can be done about the first."""
    others = len(paths) - 1
    more = f" and {counted(others, 'other file')}" if others else ""
    return (f"{one_line(Path(paths[0]).name, 60)}{more} {'have' if others else 'has'} changed since "
            f"{'they were' if others else 'it was'} attached; /attach {one_line(short_path(paths[0]))} appends the "
            "change.")


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
