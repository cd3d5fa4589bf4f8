"""Acts on whole conversations: begin, walk, name, tag, keep, fork, delete, export, and undo."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kvchat.chat.errors import ChatError
from kvchat.commands.acts.options import tools_of
from kvchat.prompt.tags import ARCHIVE, FAVOURITE, written_tags
from kvchat.text.format import count, counted, spoken_title
from kvchat.text.imports import undone
from kvchat.text.options import changed_words
from kvchat.text.problems import ChatProblem
from kvchat.text.snapshots import KEPT, KEPT_HERE, RELEASED
from kvchat.transfer import format_by_suffix
from kvchat.transfer.formats import FileExists

if TYPE_CHECKING:
    from kvchat.chat.trunks import Trunks
    from kvchat.commands.acts.options import OptionActs
    from kvchat.commands.acts.surface import Surface


class Deleted(Struct, frozen=True):
    """A conversation was put into the trash."""

    id: str


class Imported(Struct, frozen=True):
    """Conversations were imported."""

    batch: str


class Tagged(Struct, frozen=True):
    """The tags of a conversation were changed."""

    id: str
    added: frozenset[str]
    removed: frozenset[str]


class Forked(Struct, frozen=True):
    """A conversation was forked from another one."""

    id: str
    origin: str
    was_trashed: bool
    """Whether the origin was in the trash then."""


class DoneAct(Struct, frozen=True):
    """What was done with conversations as wholes, which undo takes back."""

    act: Deleted | Imported | Tagged | Forked
    shown: str
    """The conversation that was open after it."""
    head: str | None
    """The last message of its branch."""


class ExportRequest(Struct, frozen=True):
    """What to export and where to."""

    format: str
    """A key of `FORMATS`."""
    path: Path
    all_branches: bool = False
    all_conversations: bool = False
    overwrite: bool = False
    """The user agreed to replace the existing file."""


class ConversationActs:
    """Acts on the open conversation, or on another one by its id."""

    def __init__(self, surface: Surface, options: OptionActs) -> None:
        self._surface = surface
        self._options = options
        self._service = surface.service
        self._conversations = surface.service.conversations
        self._done: list[DoneAct] = []
        """What is not undone yet, the newest first."""

    async def new(self, tools: str = "") -> None:
        """`tools`: names of those that the model may call; empty: the usual ones."""
        names = tools.replace(",", " ").split() or None
        mcp, create = self._service.mcp, self._service.new_conversations.create
        if names and mcp.behind(names) and not mcp.to_agree(names):  # a program may have to list them first
            await self._surface.open((await create()).id)
            await self._surface.later(partial(self._options.tools, tools))
            return
        await self._surface.open((await create(tools=names)).id)
        if names:
            self._surface.say(tools_of(self._surface))

    async def new_with_persona(self, name: str = "") -> None:
        """Begin a new conversation as a persona has it. Raises ChatError."""
        if not (name := name or await self._surface.pick("persona") or ""):
            return
        personas = self._surface.personas
        persona = personas.find(name).below(self._surface.layers().options)
        for problem in personas.problems(name):
            self._surface.say(problem, warning=True)
        await self._surface.open((await self._service.new_conversations.create(persona=persona)).id)
        if persona.first_message:
            self._surface.begin_message(persona.first_message)

    async def new_with_trunk(self, words: str = "") -> None:
        """Begin a new conversation with a trunk: one that is there, or `add NAME PATH ...`. Raises ChatError."""
        trunks = self._trunks()
        added = words.split()
        if added[:1] == ["add"]:
            words = await self._add_trunk(trunks, added[1:])
        if name := words or await self._surface.pick("trunk") or "":
            await self.begin_with_trunk(name)

    async def begin_with_trunk(self, name: str) -> None:
        """Begin a new conversation with the trunk of this name, whatever that is. Raises ChatError."""
        conversation, changed = await self._trunks().begin(name)
        await self._surface.open(conversation.id)
        if changed:
            self._surface.say(changed_words(name, changed), warning=True, bare=True)

    def _trunks(self) -> Trunks:
        """Raises ChatError where there can be none."""
        if self._service.trunks is None:
            raise ChatError(ChatProblem.NO_TRUNKS)
        return self._service.trunks

    async def _add_trunk(self, trunks: Trunks, words: Sequence[str]) -> str:
        """Make a trunk of `NAME PATH ...`, prefilled in spare time; its name."""
        if len(words) < 2:
            raise ChatError(ChatProblem.TRUNK_SYNTAX)
        name, *paths = words
        trunk, found = await trunks.add(name, paths)
        await trunks.prefill_soon(name)
        left_out = f", {count(len(found.skipped))} left out" if found.skipped else ""
        files = counted(len(trunk.files), "file")
        self._surface.say(f"{name}: {files}{left_out}. It is prefilled while nothing else uses the server.")
        return name

    async def next(self) -> None:
        await self._step(1, "This is the last conversation of the list")

    async def previous(self) -> None:
        await self._step(-1, "This is the first conversation of the list")

    async def _step(self, step: int, at_end: str) -> None:
        ids, here = [one.id for one in self._conversations.shown()], self._surface.conversation.id
        at = ids.index(here) + step if here in ids else 0
        if 0 <= at < len(ids):
            await self._surface.open(ids[at])
        else:
            self._surface.say(at_end)

    async def rename(self, title: str = "", id: str = "") -> None:
        id = id or self._surface.conversation.id
        title = title or await self._surface.pick("rename", id) or ""
        if title.strip():
            await self._conversations.rename(id, title)
            self._surface.say(f"Title: {spoken_title(self._conversations.find(id).title)}", shown=True)

    async def favourite(self, id: str = "") -> None:
        """Have a conversation first in the list, or no longer."""
        await self._toggle(id, FAVOURITE, "Favourite: first in the list.", "No longer a favourite.")

    async def archive(self, id: str = "") -> None:
        """Take a conversation out of the list, or back into it."""
        await self._toggle(id, ARCHIVE, "Archived: out of the list · a search finds it", "Back in the list.")

    async def _toggle(self, id: str, tag: str, on: str, off: str) -> None:
        id = id or self._surface.conversation.id
        there = tag in self._conversations.find(id).tags
        await self._retag(id, () if there else (tag,), (tag,) if there else ())
        self._surface.say(off if there else on)

    async def tag(self, names: str = "", id: str = "") -> None:
        """Put these tags on a conversation, and take off those with a minus in front. Raises TagError and ChatError."""
        id = id or self._surface.conversation.id
        if names := names or await self._surface.pick("tag", id) or "":
            changed = await self._retag(id, *written_tags(names))
            tags = self._conversations.find(id).tags
            words = f"Tags: {' '.join(f'#{tag}' for tag in tags)}" if tags else "No tags"
            self._surface.say(f"{words} · {self._surface.way_to('undo')} undoes it" if changed else words)

    async def _retag(self, id: str, add: Iterable[str], remove: Iterable[str]) -> bool:
        """Whether that changed any tag; else there is nothing to undo."""
        before = self._conversations.find(id)
        await self._conversations.tag(id, add, remove)
        was, now = set(before.tags), set(self._conversations.find(id).tags)
        if now != was:
            self.did(Tagged(id, frozenset(now - was), frozenset(was - now)))
        return now != was

    async def keep(self, argument: str = "", id: str = "") -> None:
        """Keep the state of a conversation, that of the open one up to the marked message; or keep it no longer, for
        `off` and the second time."""
        node = "" if id else self._surface.marked or ""
        id, states = id or self._surface.conversation.id, self._service.kept
        await (states.release(id) if argument.strip() == "off" else states.switch(id, node))
        now = self._service.claims.conversations().get(id)
        self._surface.say(RELEASED if now is None else KEPT_HERE if now.node else KEPT)

    async def fork(self, node: str) -> None:
        """Open a fork of the open conversation that ends at a message. Raises ChatError."""
        origin = self._surface.conversation.record
        fork = await self._service.branches.fork(origin.id, node)
        await self._surface.open(fork.id)
        self.did(Forked(fork.id, origin.id, origin.trashed is not None))

    async def delete(self, id: str = "") -> None:
        """Move a conversation to the trash; the next one of the list is open then."""
        here = self._surface.conversation
        if not id and not here.record.turns:
            self._surface.say("This conversation is empty: nothing to delete")
            return
        id = id or here.id
        ids = [one.id for one in self._conversations.shown()]
        at = ids.index(id) if id in ids else 0
        await self._conversations.delete(id)
        self._surface.say(f"Moved to trash · {self._surface.way_to('undo')} brings it back")
        if id == here.id:
            await self._open_another(at)
        self.did(Deleted(id))

    async def _open_another(self, at: int = 0) -> None:
        """The conversation at this place of the list; without any a new one."""
        left = self._conversations.shown()
        if left:
            await self._surface.open(left[min(at, len(left) - 1)].id)
        else:
            await self.new()

    async def export(self, path: str = "") -> None:
        """Write the open conversation to a file, in the format of its ending. Raises ChatError and TransferError."""
        if path:
            target = Path(path)
            await self.write(ExportRequest(format_by_suffix(target), target))
        else:
            await self._surface.pick("export")

    async def write(self, request: ExportRequest) -> None:
        """As `export`; asks before a file is replaced."""
        every = [one.id for one in self._conversations.all() if one.turns]
        ids = every if request.all_conversations else [self._surface.conversation.id]
        try:
            done = await self._service.exports.write(
                ids, request.format, request.path, all_branches=request.all_branches, overwrite=request.overwrite
            )
        except FileExists as there:
            if await self._surface.agreed("Replace it?", [str(there)], "Replace"):
                await self.write(replace(request, overwrite=True))
            return
        self._surface.say(f"Exported to {done}", bare=True)

    # -- undo

    def did(self, act: Deleted | Imported | Tagged | Forked) -> None:
        """An act was done that undo takes back, and its outcome is open."""
        here = self._surface.conversation
        self._done.insert(0, DoneAct(act, here.id, here.record.head))
        self._surface.act_done()

    async def undo(self) -> None:
        """Take back what is on the screen: the newest act with whole conversations that led to it as it is now; without
        one its last change of branch. Where it has none either, what was deleted or imported last."""
        self._surface.act_undone()
        here = self._surface.conversation.record
        done = next((one for one in self._done if (one.shown, one.head) == (here.id, here.head)), None)
        if done is None and await self._service.branches.undo(here.id):
            await self._surface.open(here.id)
            return
        done = done or next((one for one in self._done if isinstance(one.act, Deleted | Imported)), None)
        if done is None:
            self._surface.say("Nothing to undo in this conversation")
            return
        self._done.remove(done)
        match done.act:
            case Deleted(id):
                await self._conversations.restore(id)
                await self._surface.open(id)
            case Imported(batch):
                await self._undo_import(batch)
            case Tagged(id, added, removed):
                await self._conversations.tag(id, removed, added)
                self._surface.say("The tags are as they were")
            case Forked(id, origin, was_trashed):
                if not was_trashed:  # it may be by now
                    await self._conversations.restore(origin)
                await self._surface.open(origin)
                await self._conversations.delete(id)
                self._surface.say("Back where it was forked · the fork is in the trash")

    async def _undo_import(self, batch: str) -> None:
        done = await self._service.imports.undo(batch)
        if self._surface.conversation.record.trashed is not None:
            await self._open_another()
        self._surface.say(undone(done.trashed, done.kept, done.back))
