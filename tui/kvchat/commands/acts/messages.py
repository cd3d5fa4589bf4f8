"""Acts on messages of the open conversation: another answer, the rest of a cut one, fork, delete, compact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.prompt.message import Node, Role
from kvchat.text.prices import compaction_lines
from kvchat.text.servers import leaving_lines

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.commands.acts.conversations import ConversationActs
    from kvchat.commands.acts.surface import Surface


class MessageActs:
    """Acts on the message that is marked, else on the last one."""

    def __init__(self, surface: Surface, conversations: ConversationActs) -> None:
        self._surface = surface
        self._conversations = conversations
        self._service = surface.service

    @property
    def _node(self) -> str | None:
        return meant(self._surface.conversation, self._surface.marked)

    async def regenerate(self) -> None:
        id = self._surface.conversation.id
        if (node := self._node) is None:
            self._surface.say("No answer to regenerate yet")
        elif await self._surface.decided("regenerate", node) and await self.may_leave_this_machine(id):
            await self._surface.attempt(self._service.turns.regenerate(id, node))

    async def continue_answer(self) -> None:
        """Go on with the cut answer that is marked, else with the last one."""
        id = self._surface.conversation.id
        if (node := cut_answer(self._surface.conversation, self._surface.marked)) is None:
            self._surface.say("There is no answer to continue yet.")
        elif await self._surface.decided("continue", node) and await self.may_leave_this_machine(id):
            await self._surface.attempt(self._service.turns.go_on(id, node))

    async def delete_turn(self) -> None:
        if (node := self._node) is None:
            self._surface.say("No turn to delete yet")
            return
        conversation = self._surface.conversation
        question, _ = conversation.tree.turn_of(node)
        instead = f"Disregard my message {number_of(conversation, question)} and its answer."
        if await self._surface.decided("delete", node, instead=instead) == "go":
            await self._service.branches.delete_turn(conversation.id, node)
            self._surface.act_done()
            self._surface.say(f"Turn deleted · {self._surface.way_to('undo')} brings it back")

    async def fork(self) -> None:
        if (node := self._node) is None:
            self._surface.say("Nothing to fork yet")
        else:
            await self._conversations.fork(node)

    async def compact(self) -> None:
        """Replace the older turns by a summary, at a price that is shown first."""
        id, compactor = self._surface.conversation.id, self._service.compactor
        price = compactor.price(id)
        lines = compaction_lines(
            price.plan, price.window, price.summary_seconds, price.read_seconds, self._surface.way_to("undo")
        )
        if await self._surface.agreed("Compact this conversation?", lines, "Compact") and (
            await self.may_leave_this_machine(id)
        ):
            await self._surface.attempt(compactor.compact(id))

    async def may_leave_this_machine(self, id: str) -> bool:
        """Whether what is written in a conversation may go to its server: asked once for every server that is not on
        this machine."""
        servers = self._service.servers
        if not await self._surface.connected(id):
            return False
        server, consent = servers.link(id).info, servers.consent
        if server is None or consent.may_send_to(server, id):
            return True
        goes = consent.destination(server, id)
        lines = leaving_lines(
            server.base_url, goes.base_url, goes.host_class, begun_nearer=consent.was_begun_nearer(id, server)
        )
        if not await self._surface.agreed(
            "Send to another machine?", lines, "Send, and do not ask again", "Do not send", unasked=True
        ):
            return False
        await consent.allow_sending_to(server, id)
        return True


def meant(conversation: OpenConversation, marked: str | None) -> str | None:
    """The message that an act is about: the marked one, else the last. None where there is none, or another
    conversation is still shown."""
    if marked is not None:
        return marked if marked in conversation.tree else None
    path = conversation.path()
    return path[-1].id if len(path) > 1 else None


def cut_answer(conversation: OpenConversation, marked: str | None) -> str | None:
    """The answer to go on with: the marked one if it was cut, else the last."""
    node = meant(conversation, marked)
    return node if node is None or conversation.tree[node].is_cut else conversation.path()[-1].id


def number_of(conversation: OpenConversation, question: Node) -> int:
    """Which of the user's messages on its branch it is, from 1."""
    return sum(node.role is Role.USER for node in conversation.tree.path(question.id))
