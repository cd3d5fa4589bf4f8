"""Acts on the tree of a conversation, and their prices.

The rule: nothing that was said is rewritten; every act gives a branch, and the one that is left stays.
"""

from __future__ import annotations

from dataclasses import replace

from kvchat.cache.accounting import measured_speed
from kvchat.cache.price import Act, Price, price, reread_tokens
from kvchat.chat.events import (
    ConversationChanged,
)
from kvchat.chat.live import OpenConversation
from kvchat.chat.talking import Talking
from kvchat.prompt.branching import Branch, awaited, under_system, without_turn
from kvchat.prompt.context import TIME, ContextBlock
from kvchat.prompt.message import Node, Role, State, new_id, system_message

FORK = "↳ "
"""In front of a fork's title, so that it is told apart in a narrow list."""


class Branches(Talking):
    """Edit, ask again, fork, delete, walk, undo."""

    async def edit(self, id: str, node_id: str, text: str) -> None:
        """Ask a question differently: a sibling of it, answered anew. The old branch stays."""
        conversation = await self._free(id)
        question, _ = conversation.tree.turn_of(node_id)
        kept = [b for b in question.message.blocks if b.kind != TIME and (b.kind != "paste" or _chip(b) in text)]
        branch = self._asked(conversation, question.parent, text, kept)
        self._remember(conversation)
        await self._grow(conversation, branch)

    async def regenerate(self, id: str, node_id: str) -> None:
        """Another answer to the same question. An answer that failed without a word makes room for it."""
        conversation = await self._free(id)
        question, answer = conversation.tree.turn_of(node_id)
        if answer is None:
            answer = next((n for n in conversation.tree.children(question.id) if n.role is Role.ASSISTANT), None)
        fresh = awaited(question, self._clock())
        self._remember(conversation)
        await self._grow(conversation, Branch((fresh,), fresh.id))
        if answer is not None and _said_nothing(answer) and not conversation.tree.children(answer.id):
            dropped = answer.id
            conversation.tree.drop(dropped)
            self._undo[id] = [head for head in self._undo.get(id, []) if head != dropped]
            await self._keeper.write(lambda: self._store.drop(dropped))
            self._tell(ConversationChanged(id))

    async def fork(self, id: str, node_id: str) -> OpenConversation:
        """A new conversation that shares this one up to the answer `node_id`; at a question, up to before it, with
        the question as the draft."""
        conversation = await self._opened(id)
        at = conversation.tree[node_id]
        draft = ""
        if at.role is Role.USER:
            draft, at = at.text, conversation.tree[at.parent or ""]
        path = conversation.tree.path(at.id)
        now = self._clock().timestamp()
        figures = [n.figures for n in path if n.figures]
        record = replace(
            conversation.record, id=new_id(), head=at.id, created=now, updated=now, forked_from=conversation.id,
            turns=sum(n.role is Role.USER for n in path), unread=False, trashed=None,
            context_used=figures[-1].context_used if figures else None,
            title=f"{FORK}{conversation.record.title.removeprefix(FORK)}",
        )
        fork = await self._create(record, path[0])
        if draft:
            await self.set_draft(fork.id, draft)
        return fork

    async def delete_turn(self, id: str, node_id: str) -> None:
        """Go on without the turn of `node_id`: the later turns stand on a new branch, the old one stays."""
        conversation = await self._free(id)
        await self._move(conversation, without_turn(conversation.tree, conversation.record.head or "", node_id))

    async def select(self, id: str, node_id: str) -> None:
        """Go to the branch through `node_id`, at its tip."""
        conversation = await self._free(id)
        await self._move(conversation, Branch((), conversation.tree.tip(node_id)))

    async def walk(self, id: str, node_id: str, step: int) -> None:
        """Go to the sibling of `node_id` that is `step` further; at the ends nothing happens."""
        conversation = await self._free(id)
        siblings = [n.id for n in conversation.tree.siblings(node_id)]
        at = siblings.index(node_id) + step
        if 0 <= at < len(siblings):
            await self._move(conversation, Branch((), conversation.tree.tip(siblings[at])))

    async def undo(self, id: str) -> bool:
        """Back to the branch before the last edit, regenerate, delete or switch; False if there is none."""
        conversation = await self._free(id)
        heads = self._undo.get(id, [])
        while heads:
            head = heads.pop()
            if head in conversation.tree and head != conversation.record.head:
                await self._update(conversation, head=head)
                return True
        return False

    def _remember(self, conversation: OpenConversation) -> None:
        self._undo.setdefault(conversation.id, []).append(conversation.record.head)

    async def _move(self, conversation: OpenConversation, branch: Branch) -> None:
        self._remember(conversation)
        record = replace(conversation.record, head=branch.head)
        if branch.nodes:
            await self._keeper.write(lambda: self._store.add(record, branch.nodes))
            for new in branch.nodes:
                conversation.tree.put(new)
        await self._update(conversation, head=branch.head)

    def price(self, id: str, act: Act, node_id: str | None = None) -> Price:
        """What `act` would make the server read again."""
        conversation = self._open[id]
        path = conversation.path()
        answers = [n for n in path if n.role is Role.ASSISTANT]
        turn = max(0, sum(n.role is Role.USER for n in path) - 1)
        if node_id is not None and any(n.id == node_id for n in path):
            turn = sum(n.role is Role.USER for n in conversation.tree.path(node_id)) - 1
        samples = conversation.figures()
        return price(reread_tokens(act, [n.figures for n in answers], turn), self.prefill_speed(id), len(samples))

    def prefill_speed(self, id: str) -> float | None:
        """The server's prefill speed in tokens/s as measured in this conversation, else on this server lately."""
        conversation = self._open.get(id)
        info = self._connector.info
        return (measured_speed(conversation.figures()) if conversation else None) or (
            measured_speed(self._store.speed_samples(info.base_url, info.model)) if info else None)

    async def set_instructions(self, id: str, instructions: str) -> None:
        """Another system prompt: a new branch below a new system message. The old branch stays."""
        conversation = await self._free(id)
        message = system_message(instructions)
        if conversation.path()[0].text == message.text:
            return
        branch = under_system(conversation.tree, conversation.record.head or "", message, self._clock().timestamp())
        await self._move(conversation, branch)


def _chip(block: ContextBlock) -> str:
    return f"[{block.source.replace(' (', ': ').removesuffix(')')}]"


def _said_nothing(answer: Node) -> bool:
    return not answer.text and not answer.message.reasoning and answer.state in (
        State.ERROR, State.CANCELLED, State.INTERRUPTED, State.EMPTY)
