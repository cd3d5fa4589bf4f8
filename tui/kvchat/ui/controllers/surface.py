"""The main screen as the surface of acts: toasts, dialogs, the conversation that it shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kvchat.chat.conversations.drafts import SYSTEM_TYPED
from kvchat.commands.actions import BY_ID
from kvchat.sanitize import one_line
from kvchat.text.tools import TOOL_GROUPS
from kvchat.ui.controllers.workspace import Workspace

if TYPE_CHECKING:
    from kvchat.cache import Act
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.conversations.personas import Personas
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers
    from kvchat.ui.controllers.conversations import ConversationController
    from kvchat.ui.controllers.costs import CostQuestions
    from kvchat.ui.controllers.memory import MemoryController
    from kvchat.ui.controllers.server import ServerController


T = TypeVar("T")


class ScreenSurface:
    """As `commands.acts.surface.Surface`. What asks runs in a worker."""

    def __init__(
        self,
        workspace: Workspace,
        personas: Personas,
        costs: CostQuestions,
        conversations: ConversationController,
        memory: MemoryController,
        server: ServerController,
    ) -> None:
        self.personas = personas
        self._costs = costs
        self._memory = memory
        self._server = server
        self._workspace = workspace
        self._conversations = conversations
        self._transcript = workspace.screen.transcript
        self._composer = workspace.screen.composer

    @property
    def service(self) -> ChatService:
        return self._workspace.service

    def layers(self) -> Layers:
        return self._workspace.host.layers()

    @property
    def conversation(self) -> OpenConversation:
        return self._workspace.conversation

    @property
    def marked(self) -> str | None:
        return self._transcript.marked

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False, bare: bool = False) -> None:
        if not shown:
            self._workspace.say(sentence, "warning" if warning else "information")

    def cut(self, text: str, room: int) -> str:
        return one_line(text, room)

    def way_to(self, action: str) -> str:
        keys = ["memory", action] if action.startswith("memory.") else [action]
        return ", ".join(self._workspace.key_of(id) or f"/{BY_ID[id].slash}" for id in keys)

    async def open(self, id: str, node: str | None = None) -> None:
        """The one that is open shows what changed by itself, and what is being written there stays."""
        if node is not None or not self._workspace.shows(id):
            await self._conversations.open(id, node)

    async def pick(self, action: str, about: str = "") -> str | None:
        picks: Mapping[str, Callable[[str], Awaitable[str | None]]] = {
            "rename": self._title,
            "tag": self._tags,
            "persona": self._persona,
            "trunk": self._trunk,
            "tools": self._tools,
            "system": self._system,
        }
        match action:
            case "export":
                await self._conversations.export()
            case "memory" | "forget":
                await self._memory.open(query=about)
            case "model":
                await self._server.choose(about)
            case "pull":
                await self._server.pull(about)
            case "remember":
                await self._memory.open(add=True)
            case _:
                return await picks[action](about)
        return None

    async def agreed(
        self, title: str, lines: Sequence[str], yes: str, no: str = "Cancel", *, unasked: bool = False
    ) -> bool:
        choices = [("y", yes, True), ("n", no, False)]
        return bool(
            await self._workspace.choose(title, lines, choices, unasked=unasked, gist=lines[0] if unasked else "")
        )

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
        match await self._costs.decided(
            act, node, title=title, text=text, instead=bool(instead), options=options, unasked=unasked
        ):
            case "go":
                return "go"
            case "instead":
                self._composer.begin(instead)
                return "instead"
            case _:
                return None

    async def waited(self, work: Coroutine[Any, Any, T], *, is_long: bool = False) -> T | None:
        with self._workspace.key_queue.coming(holds_keys=not is_long) as dialog:
            return await dialog.found(work)

    async def later(self, act: Callable[[], Awaitable[None]]) -> None:
        async def done() -> None:
            await self._workspace.attempt(act())

        self._workspace.screen.run_worker(done, group="dialog")

    async def connected(self, id: str) -> bool:
        servers = self.service.servers
        if not servers.may_meet(id):
            await servers.connect(id)  # it was not connected to ahead
        return True

    async def attempt(self, act: Awaitable[object]) -> None:
        id = self.conversation.id
        await act
        if self._workspace.shows(id):
            self._transcript.follow()

    def begin_message(self, text: str) -> None:
        self._composer.fill(text)

    async def _title(self, id: str) -> str | None:
        from kvchat.ui.screens.conversations import rename_screen

        return await self._workspace.ask(rename_screen(self.service.conversations.find(id).title))

    async def _tags(self, id: str) -> str | None:
        from kvchat.ui.screens.conversations import tags_screen

        record = self.service.conversations.find(id)
        if record.turns == 0:
            self.say("This conversation is empty; there is nothing to tag.", warning=True)
            return None
        changes = await self._workspace.ask(tags_screen(record.title, record.tags, self._conversations.known_tags()))
        added, removed = changes or ((), ())
        return " ".join([*added, *(f"-{tag}" for tag in removed)])

    async def _persona(self, _: str) -> str | None:
        from kvchat.ui.screens.beginnings import persona_screen

        return await self._workspace.ask(persona_screen(self.personas.all(), str(self.personas.folder)))

    async def _trunk(self, _: str) -> str | None:
        from kvchat.ui.screens.beginnings import trunk_screen

        trunks = self.service.trunks
        found = await self.waited(trunks.all()) if trunks is not None else None
        if found is None:
            return None
        return await self._workspace.ask(trunk_screen(found))

    async def _tools(self, _: str) -> str | None:
        from kvchat.prompt.offered_tools import GROUPS
        from kvchat.ui.screens.tools import ToolsScreen

        there, prices, id = self.conversation.tools, self.service.prices, self.conversation.id
        self.service.branches.must_take_tools(id)  # before any is chosen
        servers = self.service.mcp.known()
        chosen = [name for name, group in GROUPS.items() if any(one.name in there for one in group)]
        chosen += [name for name in servers if any(one.startswith(f"{name}__") for one in there)]
        groups = [(name, TOOL_GROUPS[name]) for name in GROUPS]
        groups += [(name, one_line(f"MCP: {server.shown}", 60)) for name, server in servers.items()]
        names = await self._workspace.ask(ToolsScreen(groups, chosen, lambda names: prices.of_tools(id, names)))
        return None if names is None else " ".join(names) or "none"

    async def _system(self, _: str) -> str | None:
        from kvchat.ui.screens.options import SystemPromptScreen

        id, drafts = self.conversation.id, self.service.drafts
        price = self.service.prices.estimate(id, "system")
        return await self._workspace.ask(
            SystemPromptScreen(self.conversation.instructions, price, self.personas, drafts, SYSTEM_TYPED + id)
        )

    def act_done(self) -> None:
        self._composer.act_done()

    def act_undone(self) -> None:
        self._composer.act_undone()
