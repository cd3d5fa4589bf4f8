"""Acts on the tree of a conversation.

Nothing that was said is rewritten; every act gives a branch, and the one that is left stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from kvchat.cache import Change
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.conversations.shared import Head
from kvchat.chat.core import Core, on_newest
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ConversationChanged
from kvchat.chat.question.mentions import question_draft
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.chat.tools.named import listed_tools, named_tools
from kvchat.prompt.branching import Branch, under_system, whole, without_turn
from kvchat.prompt.mending import is_whole
from kvchat.prompt.message import Message, Role, new_id, system_message, with_tools
from kvchat.prompt.tags import own
from kvchat.text.format import FORK_MARK
from kvchat.text.problems import ChatProblem
from kvchat.text.servers import model_name


class Branches:
    """Fork, delete a turn, another system prompt, walk, undo. None of them asks the server anything."""

    def __init__(self, core: Core, warm_up: WarmUp, sizes: PromptSizes) -> None:
        self._core = core
        self._warm_up = warm_up
        self._sizes = sizes

    async def fork(self, id: str, node_id: str) -> OpenConversation:
        """A new conversation that shares this one up to the answer `node_id`; at a question, up to before it, with
        the question as the draft, with its pastes and attached files. What a damaged file lost of its calls is mended
        there."""
        conversation = self._core.conversations.load(id)
        at = conversation.message(node_id)
        draft = ""
        if at.role is Role.USER:
            draft = question_draft(at).encoded()
            at = conversation.tree[at.parent or ""]
        path = conversation.tree.path(at.id)
        now = self._core.timestamp()
        record = replace(
            conversation.record,
            id=new_id(),
            head=at.id,
            created=now,
            updated=now,
            forked_from=conversation.id,
            turns=sum(n.role is Role.USER for n in path),
            unread=False,
            trashed=None,
            context_used=self._sizes.of_branch(conversation, path),
            title=f"{FORK_MARK}{conversation.record.title.removeprefix(FORK_MARK)}",
            tags=own(conversation.record.tags),
        )
        fork = await self._core.conversations.insert(record, path)
        self._core.tracker.did(fork, "fork")
        if not is_whole(path):
            await self.move(fork, whole(path))
            self._core.conversations.forget_head(fork.id, at.id)  # undo leads to nothing that cannot be sent
        if draft:
            await asyncio.shield(self._core.conversations.set_draft(fork.id, draft))
        return fork

    @on_newest(Head.SETTLED)
    async def delete_turn(self, id: str, node_id: str) -> None:
        """Go on without the turn of `node_id`: the later turns stand on a new branch, the old one stays."""
        conversation = self._core.conversations.free(id)
        if conversation.message(node_id).id not in {one.id for one in conversation.path()}:
            raise ChatError(ChatProblem.REPLACED)
        self._core.tracker.did(conversation, "delete", node_id)
        await self.move(conversation, without_turn(conversation.tree, conversation.record.head or "", node_id))

    async def select(self, id: str, node_id: str) -> None:
        """Go to the branch through `node_id`, at its tip."""
        conversation = self._core.conversations.free(id)
        await self.move(conversation, Branch((), conversation.tree.tip(conversation.message(node_id).id)))

    async def walk(self, id: str, node_id: str, step: int) -> None:
        """Go to the sibling of `node_id` that is `step` further; at the ends nothing happens."""
        conversation = self._core.conversations.free(id)
        siblings = [n.id for n in conversation.tree.siblings(conversation.message(node_id).id)]
        at = siblings.index(node_id) + step
        if 0 <= at < len(siblings):
            await self.move(conversation, Branch((), conversation.tree.tip(siblings[at])))

    async def undo(self, id: str) -> bool:
        """Back to the branch before the last edit, regenerate, delete or switch; False if there is none."""
        conversation = self._core.conversations.free(id)
        if (head := self._core.conversations.head_before(conversation)) is None:
            return False
        used = self._sizes.of_branch(conversation, conversation.tree.path(head))
        await self._core.conversations.update(conversation, head=head, context_used=used)
        self._went(conversation)
        return True

    async def move(self, conversation: OpenConversation, branch: Branch) -> None:
        """Go to a branch that was made from all of the one that is shown. Raises HeadMoved."""
        self._core.conversations.remember_head(conversation)
        above = conversation.tree.path(branch.nodes[0].parent if branch.nodes else branch.head)
        used = self._sizes.of_branch(conversation, [*above, *branch.nodes])
        if branch.nodes:
            await self._core.conversations.shared.add(
                conversation,
                branch.nodes,
                lambda row: replace(row, head=branch.head, context_used=used),
                whole=True,
            )
            self._core.conversations.list_changed()
            self._core.events.tell(ConversationChanged(conversation.id))
        else:
            await self._core.conversations.update(conversation, head=branch.head, context_used=used)
        self._went(conversation)

    def _went(self, conversation: OpenConversation) -> None:
        """Another branch is in use: warm it up while the conversation is looked at."""
        if self._core.conversations.looked_at == conversation.id:
            self._warm_up.soon(conversation.id)

    @on_newest(Head.SETTLED)
    async def set_instructions(self, id: str, instructions: str) -> None:
        """Another system prompt: a new branch below a new system message. The old branch stays."""
        conversation = self._core.conversations.free(id)
        before = conversation.path()[0].message
        await self._begin_with(conversation, system_message(instructions, before.blocks, before.tools), "system")

    @on_newest(Head.SETTLED)
    async def set_tools(self, id: str, names: Sequence[str]) -> None:
        """Other tools, those of MCP servers as they were listed last: a new branch below a new system message. The old
        branch stays. Raises ChatError."""
        conversation = self._core.conversations.free(id)
        if names:
            self.must_take_tools(id)
        system = with_tools(conversation.path()[0].message, named_tools(self._core, names))
        await self._begin_with(conversation, system, "tools")

    def must_take_tools(self, id: str) -> None:
        """Raises ChatError where the model of a conversation is known to have no place for tools."""
        info = self._core.servers.link(id).info
        if info is not None and info.takes_tools is False:
            raise ChatError(ChatProblem.NO_TOOLS, model=model_name(info.model))

    async def can_have(self, id: str, names: Sequence[str]) -> bytes:
        """The tools of these names, as MCP servers list them now. Raises ChatError."""
        if names:
            self.must_take_tools(id)
        return await listed_tools(self._core, names)

    async def _begin_with(self, conversation: OpenConversation, system: Message, act: Change) -> None:
        before = conversation.path()[0]
        if before.message == system:
            return
        branch = under_system(conversation.tree, conversation.record.head or "", system, self._core.timestamp())
        self._core.tracker.did(conversation, act, before.id)
        await self.move(conversation, branch)
