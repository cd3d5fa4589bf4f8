"""The main screen as the surface of acts: toasts, dialogs, the conversation that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.commands.actions import BY_ID
from kvchat.ui.controllers.workspace import Workspace

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.ui.controllers.conversations import ConversationController
    from kvchat.ui.widgets.composer.widget import Composer
    from kvchat.ui.widgets.transcript.widget import Transcript


class ScreenSurface:
    """As `commands.acts.surface.Surface`. What asks runs in a worker."""

    def __init__(
        self,
        workspace: Workspace,
        conversations: ConversationController,
        transcript: Transcript,
        composer: Composer,
    ) -> None:
        self._workspace = workspace
        self._conversations = conversations
        self._transcript = transcript
        self._composer = composer

    @property
    def service(self) -> ChatService:
        return self._workspace.service

    @property
    def conversation(self) -> OpenConversation:
        return self._workspace.conversation

    @property
    def marked(self) -> str | None:
        return self._transcript.marked

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False) -> None:
        if not shown:
            self._workspace.say(sentence, "warning" if warning else "information")

    def way_to(self, action: str) -> str:
        return self._workspace.key_of(action) or f"/{BY_ID[action].slash}"

    async def open(self, id: str, node: str | None = None) -> None:
        """The one that is open shows what changed by itself, and what is being written there stays."""
        if node is not None or not self._workspace.shows(id):
            await self._conversations.open(id, node)

    async def pick(self, action: str, about: str = "") -> str | None:
        picks = {"rename": self._title, "tag": self._tags}
        return await picks[action](about)

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

    def act_done(self) -> None:
        self._composer.act_done()

    def act_undone(self) -> None:
        self._composer.act_undone()
