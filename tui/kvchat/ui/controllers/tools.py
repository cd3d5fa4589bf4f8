"""What the model may call in the open conversation, and the user's word on each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.prompt.tools import Decision
from kvchat.text.tools import (
    WAITS,
    answer_words,
    ask_words,
    question_lines,
)
from kvchat.ui.controllers.workspace import Workspace, in_worker

if TYPE_CHECKING:
    from kvchat.ui.controllers.questions import WaitingQuestion


class ToolController:
    """Chooses tools, and asks about calls."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        service = workspace.service
        self._service = service
        self._asked: dict[str, WaitingQuestion] = {}
        """By conversation: the question about its call."""

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
        from kvchat.ui.screens.kit import Choice, ConfirmScreen

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
