"""What the model may call in the open conversation, and the user's word on each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.chat.errors import ChatError
from kvchat.prompt.tools import Decision
from kvchat.sanitize import one_line
from kvchat.text.tools import (
    ASKS,
    FORGOTTEN,
    STARTS,
    TOOL_GROUPS,
    WAITS,
    answer_words,
    ask_words,
    program_lines,
    question_lines,
)
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.ui.controllers.costs import CostQuestions
    from kvchat.ui.controllers.questions import WaitingQuestion


class ToolController:
    """Chooses tools, and asks about calls."""

    def __init__(self, workspace: Workspace, costs: CostQuestions) -> None:
        self.workspace = workspace
        service = workspace.service
        self._service = service
        self._costs = costs
        self._asked: dict[str, WaitingQuestion] = {}
        """By conversation: the question about its call."""

    @in_worker("dialog")
    async def choose(self, words: str = "") -> None:
        """Choose what the model may call; with words that, or take back what was allowed."""
        workspace, id, branches = self.workspace, self.workspace.conversation.id, self._service.branches
        names: Sequence[str] | None = words.replace(",", " ").split()
        if names == ["forget"]:
            await self._service.tools.forget()
            await self._service.mcp.forget()
            workspace.say(FORGOTTEN)
            return
        try:
            if names != ["none"]:
                branches.must_take_tools(id)  # before anything is chosen, or started, for it
            names = [] if names == ["none"] else names or await self._chosen(id)
            if names is None or not await self.may_start(names):
                return
            if asked := ", ".join(self._service.mcp.behind(names)):
                workspace.say(ASKS.format(names=asked))
            await branches.can_have(id, names)
        except ChatError as error:
            workspace.say(str(error), "warning")
            return
        if await self._costs.agreed_to_tools(names) and await workspace.attempt(branches.set_tools(id, names)):
            left_out = self._service.mcp.left_out(names)
            workspace.say(" ".join([*left_out, workspace.tools_sentence()]), "warning" if left_out else "information")

    async def _chosen(self, id: str) -> tuple[str, ...] | None:
        from kvchat.prompt.offered_tools import GROUPS
        from kvchat.ui.screens.tools import ToolsScreen

        there, prices = self.workspace.conversation.tools, self._service.prices
        servers = self._service.mcp.known()
        chosen = [name for name, group in GROUPS.items() if any(one.name in there for one in group)]
        chosen += [name for name in servers if any(one.startswith(f"{name}__") for one in there)]
        groups = [(name, TOOL_GROUPS[name]) for name in GROUPS]
        groups += [(name, one_line(f"MCP: {server.shown}", 60)) for name, server in servers.items()]
        return await self.workspace.ask(ToolsScreen(groups, chosen, lambda names: prices.of_tools(id, names)))

    async def may_start(self, names: Sequence[str]) -> bool:
        """Whether the programs behind these names of tools may be started: each is asked for once. Raises ChatError."""
        mcp = self._service.mcp
        for name, server in mcp.to_agree(names).items():
            choices = [("y", "Start it, now and later", True), ("n", "No", False)]
            lines = program_lines(name, server.shown)
            if not await self.workspace.choose(STARTS, lines, choices, unasked=True, gist=lines[0]):
                return False
            await mcp.agree(server)
        return True

    def asked(self, id: str) -> None:
        """A call waits for the user's word, or waits no longer."""
        if id not in self._service.tools.waiting:
            if (asked := self._asked.get(id)) is not None:
                asked.settle(None)
        elif self.workspace.shows(id):
            self._ask(id)
        else:
            self.workspace.say(WAITS.format(title=self._service.conversations.title(id)))

    @in_worker("dialog")
    async def _ask(self, id: str) -> None:
        from kvchat.ui.screens.confirm import Choice, ConfirmScreen

        tools = self._service.tools
        question = tools.waiting.get(id)
        if question is None or id in self._asked:
            return
        keys = {Decision.ONCE: "y", Decision.CONVERSATION: "c", Decision.ALWAYS: "a", Decision.NO: "n"}
        choices: list[Choice[Decision]] = [(keys[one], answer_words(one, question), one) for one in tools.choices]

        def screen() -> ConfirmScreen[Decision]:
            lines = [*question_lines(question, tools.choices), ask_words(question)]
            dialog = ConfirmScreen("A call of the model", lines, choices)
            dialog.hints = (("rows.choose", "choose"), ("dialog.close", "stop the answer"))
            return dialog

        try:
            decision = await self.workspace.questions.ask(
                screen, stays=True, on=lambda one: self._asked.__setitem__(id, one)
            )
        finally:
            del self._asked[id]
        if tools.waiting.get(id) is not question:
            return
        if decision is None:
            await self._service.conversations.stop(id)
        else:
            tools.decide(id, decision, question)
