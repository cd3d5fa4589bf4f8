"""Plain mode as the surface of acts: sentences, questions, what there is to choose from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kvchat.chat.conversations.personas import Personas
from kvchat.chat.events import MemoriesChanged
from kvchat.commands.actions import BY_ID
from kvchat.commands.acts import tools_of
from kvchat.commands.command import SlashParser, TextTable
from kvchat.memory.place import index_path
from kvchat.prompt.offered_tools import GROUPS
from kvchat.sanitize import one_line
from kvchat.store.stats import side_work
from kvchat.text.cache import side_work_words
from kvchat.text.memory import WHY_OFF

if TYPE_CHECKING:
    from kvchat.cache import Act
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers
    from kvchat.paths import Paths
    from kvchat.plain.chat import PlainChat

T = TypeVar("T")
WAYS: Mapping[str, str] = {
    "memory": "/memory list",
    "memory.undo": "/memory restore with its number in /memory log",
    "stop": "Ctrl+C",
}
"""By action: how it is done here, where that is not by the app's slash command."""
SHOWN = 20
"""Memories that are listed at once."""


class PlainSurface:
    """As `commands.acts.surface.Surface`. Where nothing follows a command it names what there is to choose from."""

    marked = None
    """There is no cursor to mark a message with."""

    def __init__(self, chat: PlainChat, paths: Paths, layers: Callable[[], Layers]) -> None:
        self._chat = chat
        self._paths = paths
        self.layers = layers
        self.personas = Personas(paths.personas, chat.service.options)

    @property
    def service(self) -> ChatService:
        return self._chat.service

    @property
    def conversation(self) -> OpenConversation:
        return self._chat.conversation

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False, bare: bool = False) -> None:
        self._chat.speaker.say(sentence if bare or sentence[-1:] in ".?!:" else f"{sentence}.")

    def cut(self, text: str, room: int) -> str:
        return one_line(text, 200)

    def way_to(self, action: str) -> str:
        return WAYS.get(action) or f"/{BY_ID[action].slash}"

    async def pick(self, action: str, about: str = "") -> str | None:
        picks: Mapping[str, Callable[[str], Awaitable[str | None]]] = {
            "rename": self._title,
            "tag": self._tags,
            "persona": self._persona_names,
            "trunk": self._trunk_names,
            "tools": self._tool_names,
            "system": self._system_prompt,
            "model": self._models,
            "pull": self._pull,
            "memory": self._memory,
            "forget": self._forget,
        }
        if action in picks:
            return await picks[action](about)
        self.say(MISSING[action])
        return None

    async def agreed(
        self, title: str, lines: Sequence[str], yes: str, no: str = "Cancel", *, unasked: bool = False
    ) -> bool:
        return await self._chat.speaker.agreed(f"{yes}?" if unasked else title, lines)

    async def decided(
        self,
        act: Act,
        node: str | None = None,
        *,
        title: str = "",
        text: str = "",
        instead: str = "",
        options: Mapping[str, object] | None = None,
        unasked: bool = False,
    ) -> Literal["go", "instead"] | None:
        return "go" if await self._chat.agreed(act, node, title=title, text=text, options=options) else None

    async def waited(self, work: Coroutine[Any, Any, T], *, is_long: bool = False) -> T | None:
        return await self._chat.answers.awaited(work, goes_on=False)

    async def later(self, act: Callable[[], Awaitable[None]]) -> None:
        await act()

    async def connected(self, id: str) -> bool:
        servers = self.service.servers

        async def known() -> bool:
            await servers.connect(id)
            return True

        is_known = servers.link(id).info is not None or await self._chat.answers.awaited(
            known(), lambda: servers.connection.sentence or "Connecting."
        )
        if not is_known:
            self.say("Not done.")
        return bool(is_known)

    async def attempt(self, act: Awaitable[object]) -> None:
        await self._chat.answers.carry_out(self._chat.id, act)

    async def open(self, id: str, node: str | None = None) -> None:
        await self._chat.open(id, node)

    def begin_message(self, text: str) -> None:
        self._chat.beginning = text
        self.say(f"Your first message will begin with: {one_line(text, 200)}", bare=True)

    def act_done(self) -> None:
        """What is typed is taken back at the prompt, never by /undo."""

    def act_undone(self) -> None: ...

    # -- what there is to choose from

    async def _title(self, id: str) -> str | None:
        return await self._chat.speaker.asked("Title: ", self.service.conversations.find(id).title)

    async def _tags(self, id: str) -> None:
        tags = self.service.conversations.find(id).tags
        self.say(f"Tags: {', '.join(tags)}" if tags else "No tags. /tag NAME puts one on this conversation.")

    async def _persona_names(self, _: str) -> None:
        known = self.personas.all()
        self._chat.speaker.say(
            *(f"{one.name}{f': {one_line(one.about, 100)}' if one.about else ''}" for one in known),
            "/persona NAME begins a conversation with one."
            if known
            else f"There are no personas yet. They are TOML files in {self.personas.folder}.",
        )

    async def _trunk_names(self, _: str) -> None:
        trunks = self.service.trunks
        names = trunks.names() if trunks else []
        self._chat.speaker.say(
            *names,
            "/trunk NAME begins a conversation with one."
            if names
            else "There are no trunks yet. /trunk add NAME PATH makes one of files.",
        )

    async def _tool_names(self, _: str) -> None:
        known = ", ".join([*GROUPS, *self.service.mcp.known()])
        self.say(tools_of(self))
        self.say(f"/tools NAMES changes them: {known}, none. /tools forget takes back what you allowed.")

    async def _system_prompt(self, _: str) -> None:
        self.say("The system prompt of this conversation:")
        self._chat.speaker.output.line(self.conversation.instructions)
        self.say("/system TEXT changes it.")

    async def _models(self, written: str) -> None:
        """The model files at a path that is written, else the models and servers."""
        service, servers, speaker = self.service, self.service.servers, self._chat.speaker
        if written:
            found = await service.chooser.files_at(Path(written))
            speaker.say(*(one_line(str(file.path), 200) for file in found))
            return
        server, profiles = servers.info, service.settings.profiles
        model = one_line(servers.asked_model(self._chat.id) or "The server’s own model", 80)
        others = [one_line(name, 80) for name in (server.models if server is not None else ())]
        speaker.say(
            f"{model} on {servers.title() or 'the server'}, {servers.name or 'built in'}."
            if server is not None
            else f"{servers.connection.sentence or 'Not connected yet.'}",
            *([f"Models: {', '.join(others)}."] if len(others) > 1 else []),
            *([f"Servers of the settings: {', '.join(profiles)}."] if profiles else []),
            "/model NAME changes to one.",
        )

    async def _pull(self, name: str) -> None:
        self._chat.speaker.say(f"To fetch it first: kvchat pull {one_line(name, 200)}")

    async def _memory(self, words: str) -> None:
        """What `kvchat memory` does with these words; without any how it is in this conversation."""
        from kvchat.commands.memory import MemoryDesk, add_arguments, carried_out

        service, memory, speaker = self.service, self.service.memory, self._chat.speaker
        if not words.strip():
            speaker.say(
                WHY_OFF[memory.why_off(self.conversation.id)],
                f"{side_work_words(side_work(service.store, service.clock().timestamp()))}.",
                "/memory list shows what is remembered. /memory on and off switch it in this conversation.",
            )
            return
        add_arguments(parser := SlashParser("/memory"))
        args, index = parser.parse_args(words.split()), index_path(self._paths)
        outcome = await memory.with_memories(lambda found: carried_out(MemoryDesk(args, service.store, found, index)))
        for one in (*outcome.words, outcome.failed):
            self._rows(*(one.rows if isinstance(one, TextTable) else [[one]]))
        service.events.tell(MemoriesChanged())

    def _rows(self, *rows: Sequence[str]) -> None:
        self._chat.speaker.say(*filter(None, (", ".join(one_line(cell) for cell in row if cell) for row in rows)))

    async def _forget(self, words: str) -> None:
        from kvchat.commands.memory import entry_cells

        found = await self.service.memory.having(words) if words.strip() else []
        self._rows(*map(entry_cells, found[:SHOWN]))
        if len(found) > SHOWN:
            self.say(f"{len(found):,} memories have these words. Give more of them.")
        self.say("Which one? /forget WORDS deletes the memory that has these words.")


MISSING: Mapping[str, str] = {
    "export": "Where to? /export chat.md; the ending names the format: md, json, jsonl or html.",
    "remember": "What? /remember I prefer metric units.",
}
"""By action: what is said where nothing follows its command."""
