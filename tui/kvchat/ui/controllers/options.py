"""Set options of the conversation and the app: parameters, system prompt, thinking, colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.chat.conversations.drafts import SYSTEM_TYPED
from kvchat.chat.errors import ChatError
from kvchat.config.themes import AUTOMATIC
from kvchat.text.options import THINKING, thinking_words
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.chat.conversations.personas import Personas
    from kvchat.ui.controllers.costs import CostQuestions, Decision


class OptionController:
    """Changes options, with their price where they change what the server has cached."""

    def __init__(self, workspace: Workspace, costs: CostQuestions, personas: Personas) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._personas = personas
        self._options = service.options
        self._drafts = service.drafts
        self._branches = service.branches
        self._tracker = service.tracker
        self._costs = costs
        self._composer = screen.composer

    @in_worker("dialog")
    async def parameters(self) -> None:
        from kvchat.ui.screens.options import ParametersScreen

        conversation = self.workspace.conversation
        chosen = await self.workspace.ask(ParametersScreen(conversation.record.parameters))
        if chosen is not None:
            await self._options.set_parameters(conversation.id, chosen)

    @in_worker("dialog")
    async def system_prompt(self, text: str = "") -> None:
        from kvchat.ui.screens.options import SystemPromptScreen

        conversation = self.workspace.conversation
        price, key = self.workspace.service.prices.estimate(conversation.id, "system"), SYSTEM_TYPED + conversation.id
        chosen: str | None = text
        if text:
            self._drafts.leave(key, text)
        else:
            screen = SystemPromptScreen(conversation.instructions, price, self._personas, self._drafts, key)
            chosen = await self.workspace.ask(screen)
        if chosen is None:
            return
        # The screen has shown the price; a cheaper way, or words given with the command, are still asked about.
        decision: Decision | None = "go"
        if text or price.alternative is not None:
            decision = await self._costs.decided("system", text=chosen, instead=True)
        if decision == "instead":
            self._composer.begin(f"From now on: {chosen}")
        elif decision is None or not await self.workspace.attempt(
            self._branches.set_instructions(conversation.id, chosen)
        ):
            return
        self._drafts.saved(key)

    @in_worker("dialog")
    async def thinking(self, word: str = "") -> None:
        """On, off, or as the server has it: the next of the three; with a word that, or an effort."""
        workspace, conversation = self.workspace, self.workspace.conversation
        try:
            with workspace.key_queue.coming() as dialog:
                change = await self._options.thinking(conversation.id, word)
        except ChatError as error:
            workspace.say(str(error), "warning")
            return
        if dialog.is_given_up:
            return
        if change.lacks:
            workspace.say(change.lacks)
            return
        if change.options == conversation.record.template_options or not await self._costs.agreed(
            "template", title=f"{THINKING[change.word]} in this conversation?", options=change.options
        ):
            return
        await self._options.set_template_options(conversation.id, change.options)
        workspace.say(thinking_words(change.word, known=bool(change.is_known)))

    @in_worker("dialog")
    async def theme(self, name: str = "") -> None:
        from kvchat.ui.screens.themes import ThemeScreen

        app, host = self.workspace.app, self.workspace.host
        if app.no_color:
            self.workspace.say("NO_COLOR is set: no theme has colours.")
            return
        if not name:
            names = sorted(app.available_themes, key=lambda one: (not one.startswith("kvchat"), one))
            used = AUTOMATIC if host.follows_terminal else app.theme
            name = await self.workspace.ask(ThemeScreen([AUTOMATIC, *names], used, app.theme)) or ""
        if name == AUTOMATIC or name in app.available_themes:
            host.choose_theme(name)
        elif name:
            self.workspace.say(f"There is no theme {name}. /theme shows them all.", "warning")
