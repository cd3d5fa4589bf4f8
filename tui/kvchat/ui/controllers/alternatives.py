"""Several answers to what is written in the composer, or to the last question again, and the choice among them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.turns.alternatives import AlternativesRequest, parse_alternatives
from kvchat.prompt.drafts import Draft
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.widgets.composer.widget import Composer

if TYPE_CHECKING:
    from kvchat.ui.controllers.costs import CostQuestions
    from kvchat.ui.controllers.drafts import DraftController
    from kvchat.ui.controllers.sending import SendingController


class AlternativesController:
    """Asks for several answers, and has one chosen."""

    def __init__(
        self, workspace: Workspace, costs: CostQuestions, drafts: DraftController, sending: SendingController
    ) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._turns = service.turns
        self._costs = costs
        self._drafts = drafts
        self._sending = sending
        self._composer = screen.composer
        self._transcript = screen.transcript

    @in_worker("dialog")
    async def ask(self, argument: str = "") -> None:
        """`3`, the names of models, or nothing, and a question behind that; without one it is what is written, else the
        last question again."""
        workspace, id = self.workspace, self.workspace.open_id
        commanded = self._composer.commanded if argument else None
        try:
            info = self._service.servers.link(id).info or await self._service.servers.reach(id)
            wanted, rest = parse_alternatives(commanded.text if commanded is not None else "", info)
        except ChatError as error:
            workspace.say(str(error), "warning")
            await self._put_back(id, commanded)
            return
        if not workspace.shows(id):
            workspace.say("Not asked: another conversation is open", "warning")
            await self._put_back(id, commanded)
            return
        if workspace.editing is not None:
            workspace.say(f"Send the edited message first, or leave it with {workspace.key_of('stop')}")
            await self._put_back(id, commanded)
            return
        if commanded is not None and rest:
            submitted: Composer.Submitted | None = Composer.Submitted(commanded.ending(rest), id)
        else:
            submitted = self._composer.take()
        if submitted is not None:
            sent = await self._sending.send_several(submitted, wanted, partial(self._agreed, id))
        else:
            sent = await self._again(wanted)
        if sent:
            await self._choose(id, wanted)
        elif commanded is not None and rest and self._composer.text == rest:
            self._composer.take()  # the question is back without its command
            await self._put_back(id, commanded)

    async def _put_back(self, id: str, commanded: Question | None) -> None:
        """What was written behind the command, which was not done, and the command."""
        if commanded is None:
            return
        await self._drafts.editor_closed()
        draft, drafts = Draft("/alternatives ").then(commanded.draft), self._service.drafts
        if not self.workspace.shows(id):
            unsent = drafts.of(self._service.conversations.load(id))
            await drafts.put(id, replace(unsent, draft=draft.before(unsent.draft)))
        else:
            self._composer.restore(draft, agreed=commanded.meant.agreed)

    async def _agreed(self, id: str, wanted: AlternativesRequest, question: Question) -> bool:
        price = self._service.prices.of_several(id, wanted, question)
        return await self._costs.agreed_to(price, "alternatives", self._words(id, wanted))

    async def _again(self, wanted: AlternativesRequest) -> bool:
        """Ask the last question again; whether that was done."""
        workspace, node = self.workspace, self.workspace.target()
        if node is None:
            workspace.say("Write a question first")
            return False
        id, prices = workspace.conversation.id, self._service.prices
        return (
            await self._costs.agreed_to(
                prices.of_several(id, wanted, None, node), "alternatives", self._words(id, wanted), node
            )
            and await workspace.acts.messages.may_leave_this_machine(id)
            and await workspace.attempt(self._turns.ask_again_for(id, wanted, node))
        )

    def _words(self, id: str, wanted: AlternativesRequest) -> list[str]:
        """How the answers come, and what stays cached of them."""
        from kvchat.text.prices import several_lines

        most = self._service.tracker.most_answers(id)
        return several_lines([count for count, _ in wanted.requests(most)], wanted.models)

    async def _choose(self, id: str, wanted: AlternativesRequest) -> None:
        from kvchat.ui.screens.alternatives import AlternativesScreen

        workspace, prices = self.workspace, self._service.prices
        conversation = self._service.conversations.load(id)
        chosen = await workspace.ask(
            AlternativesScreen(
                self._service,
                conversation,
                wanted.count,
                self._composer,
                cost=lambda node: prices.exact(id, "alternatives", node),
                draft=workspace.questions,
                written_at=workspace.questions.typed_at,
            )
        )
        await workspace.attempt(self._turns.choose(id, chosen))
        if workspace.shows(id):
            self._transcript.follow()
