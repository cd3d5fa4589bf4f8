"""Acts on the tree of a conversation, and their prices.

The rule: nothing that was said is rewritten; every act gives a branch, and the one that is left stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from kvchat.cache.accounting import measured_speed
from kvchat.cache.price import Act, Price, Span, alternatives, price, reread
from kvchat.cache.warmth import Heat
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ConversationChanged
from kvchat.chat.live import OpenConversation
from kvchat.chat.mentioning import ALL, Meant, counted_in
from kvchat.chat.question import Question
from kvchat.chat.shared import Head, on_newest
from kvchat.chat.talking import Talking
from kvchat.prompt.branching import Branch, awaited, under_system, without_turn
from kvchat.prompt.drafts import draft_of
from kvchat.prompt.message import Node, Role, State, new_id, system_message, tag_of

PRICE_S = 1.0
"""A price waits no longer than this for the server's tokens."""
FORK = "↳ "
"""In front of a fork's title, so that it is told apart in a narrow list."""


class Branches(Talking):
    """Edit, ask again, fork, delete, walk, undo."""

    @on_newest(Head.ANY)
    async def edit(self, id: str, node_id: str, text: str, *, anyway: bool = False, meant: Meant = ALL) -> None:
        """Ask a question differently: a sibling of it, answered anew. The old branch stays. `anyway`: also where the
        prompt is too long for the server. Raises ChatError (TooLongError), and OutsideError where a file that it
        mentions needs the person's yes."""
        conversation = await self._free(id)
        question, _ = conversation.tree.turn_of(node_id)
        branch = await self._fitting(conversation, question.parent or "", Question(text, meant=meant, again=question),
                                     anyway)
        self.did(conversation, "edit", question.id)
        self._remember(conversation)
        await self._grow(conversation, branch)

    @on_newest(Head.ANY)
    async def regenerate(self, id: str, node_id: str) -> None:
        """Another answer to the same question. An answer that failed without a word makes room for it."""
        conversation = await self._free(id)
        question, answer = conversation.tree.turn_of(node_id)
        if answer is None:
            answer = next((n for n in conversation.tree.children(question.id) if n.role is Role.ASSISTANT), None)
        fresh = awaited(question, self.clock())
        self.did(conversation, "regenerate", answer.id if answer else None)
        self._remember(conversation)
        await self._grow(conversation, Branch((fresh,), fresh.id))
        if answer is not None and _said_nothing(answer) and not conversation.tree.children(answer.id):
            self._undo[id] = [head for head in self._undo.get(id, []) if head != answer.id]
            await self.shared.drop(conversation, answer.id)
            self.tell(ConversationChanged(id))

    async def fork(self, id: str, node_id: str) -> OpenConversation:
        """A new conversation that shares this one up to the answer `node_id`; at a question, up to before it, with
        the question as the draft, with its pastes and attached files."""
        conversation = await self.opened(id)
        at = conversation.tree[node_id]
        draft = ""
        if at.role is Role.USER:
            draft = draft_of(at.text, at.message.blocks, counted_in(at.text, at.message.blocks))
            at = conversation.tree[at.parent or ""]
        path = conversation.tree.path(at.id)
        now = self.clock().timestamp()
        figures = [n.figures for n in path if n.figures]
        record = replace(
            conversation.record, id=new_id(), head=at.id, created=now, updated=now, forked_from=conversation.id,
            turns=sum(n.role is Role.USER for n in path), unread=False, trashed=None,
            context_used=figures[-1].context_used if figures else None,
            title=f"{FORK}{conversation.record.title.removeprefix(FORK)}",
        )
        fork = await self._create(record, path[0])
        self.did(fork, "fork")
        if draft:
            await self.set_draft(fork.id, draft)
        return fork

    @on_newest(Head.SETTLED)
    async def delete_turn(self, id: str, node_id: str) -> None:
        """Go on without the turn of `node_id`: the later turns stand on a new branch, the old one stays."""
        conversation = await self._free(id)
        self.did(conversation, "delete", node_id)
        await self.move(conversation, without_turn(conversation.tree, conversation.record.head or "", node_id))

    async def select(self, id: str, node_id: str) -> None:
        """Go to the branch through `node_id`, at its tip."""
        conversation = await self._free(id)
        await self.move(conversation, Branch((), conversation.tree.tip(node_id)))

    async def walk(self, id: str, node_id: str, step: int) -> None:
        """Go to the sibling of `node_id` that is `step` further; at the ends nothing happens."""
        conversation = await self._free(id)
        siblings = [n.id for n in conversation.tree.siblings(node_id)]
        at = siblings.index(node_id) + step
        if 0 <= at < len(siblings):
            await self.move(conversation, Branch((), conversation.tree.tip(siblings[at])))

    async def undo(self, id: str) -> bool:
        """Back to the branch before the last edit, regenerate, delete or switch; False if there is none."""
        conversation = await self._free(id)
        heads = self._undo.get(id, [])
        while heads:
            head = heads.pop()
            if head in conversation.tree and head != conversation.record.head:
                await self.update(conversation, head=head)
                self._went(conversation)
                return True
        return False

    def _remember(self, conversation: OpenConversation) -> None:
        heads = self._undo.setdefault(conversation.id, [])
        if heads[-1:] != [conversation.record.head]:  # an act that is begun anew leaves one branch
            heads.append(conversation.record.head)

    async def move(self, conversation: OpenConversation, branch: Branch) -> None:
        """Go to a branch that was made from all of the one that is shown. Raises HeadMoved."""
        self._remember(conversation)
        if branch.nodes:
            await self.shared.add(conversation, branch.nodes, lambda row: replace(row, head=branch.head), whole=True)
            self.list_changed()
            self.tell(ConversationChanged(conversation.id))
        else:
            await self.update(conversation, head=branch.head)
        self._went(conversation)

    def _went(self, conversation: OpenConversation) -> None:
        """The conversation stands on another branch: read that ahead while it is looked at."""
        if self.looked_at == conversation.id:
            self.warm_soon(conversation.id)

    def price(self, id: str, act: Act, node_id: str | None = None, text: str = "") -> Price:
        """What `act` would make the server read before it answers. `text` is what is to be attached, or the
        new instructions."""
        conversation = self.open_conversations[id]
        path = conversation.path()
        turns = [n.figures for n in path if n.role is Role.ASSISTANT]
        speed = self.speed_fit(id)
        if act == "attach":
            used = next((f.context_used for f in reversed(turns) if f and f.context_used), None)
            return price(self.sizes.estimate(conversation).of([text.encode()]), speed, start=used or 0)
        turn = max(0, sum(n.role is Role.USER for n in path) - 1)
        if node_id is not None and any(n.id == node_id for n in path):
            turn = sum(n.role is Role.USER for n in conversation.tree.path(node_id)) - 1
        span = reread(act, turns, turn)
        if span is None:
            return Price(None)
        start = span.start
        if act != "model":  # what stands before the act is read too, as far as the server does not hold it
            warmth = self.warmth(id)
            if warmth.heat in (Heat.COLD, Heat.PARKED) and warmth.reread is not None:
                start = min(start, warmth.held or 0) if act != "open" else max(0, span.end - warmth.reread)
        if act == "system" and text:
            span = Span(span.start, max(0, span.end + len(text.encode()) // 4 - len(path[0].wire) // 4))
        cheaper = alternatives(act, turns, turn, speed, spare=self._has_room(id))
        return replace(price(span.end - start, speed, start=start), alternative=cheaper[0] if cheaper else None)

    async def exact_price(self, id: str, act: Act, node_id: str | None = None, text: str = "",
                          options: Mapping[str, object] | None = None) -> Price:
        """As `price`, counted on the server's own tokens where it gives them. `text`: the new question of an edit, or
        the new instructions; `options`: the new options of the template."""
        estimate, link, conversation = self.price(id, act, node_id, text), self.link(id), self.open_conversations[id]
        path, following = await self._path_after(conversation, act, node_id, text), link.following
        if following is None or path is None or following.server is not link.info:
            return estimate
        if not self.agreed_to(following.server):
            return estimate
        asks = path[-1].role is Role.USER
        turn = self.turn_after(conversation, path)
        if options is not None:
            turn = replace(turn, template_options=options)
        try:
            async with asyncio.timeout(PRICE_S):
                tokens = await (following.prompt(turn) if asks else following.prefix(turn))
                now = await following.prefix(self.turn_after(conversation, conversation.path()))
        except TimeoutError:
            return estimate
        if not tokens:
            return estimate
        cached = following.twin.best.predict(tokens).cached
        start, end = cached, len(tokens)
        used = next((n.figures.context_used for n in reversed(conversation.path()) if n.figures), None)
        if not asks and now is not None and used is not None:
            end = max(start, end - (len(now) - used) - 1)  # the next question's own beginning is not the act's
        speed = self.speed_fit(id)
        return replace(price(end - start, speed, start=start), alternative=estimate.alternative)

    async def _path_after(self, conversation: OpenConversation, act: Act, node_id: str | None,
                          text: str) -> list[Node] | None:
        """The branch that the server would read after an act; None where it cannot be told before."""
        tree, head = conversation.tree, conversation.record.head or ""
        if act in ("open", "template"):
            return conversation.path()
        if act == "system" and text:
            branch = under_system(tree, head, system_message(text, tag_of(conversation.path()[0].text)), 0.0)
            return list(branch.nodes)
        if node_id is None or node_id not in tree:
            return None
        if act == "fork":
            return tree.path(node_id)
        question, _ = tree.turn_of(node_id)
        if act == "regenerate":
            return tree.path(question.id)
        if act == "edit" and text:
            try:
                branch = await self.questions.built(conversation, question.parent or "", Question(text, again=question))
            except ChatError:  # what it mentions cannot be had; that is said when it is sent
                return None
            return [*tree.path(question.parent), branch.nodes[0]]
        if act == "delete":
            branch = without_turn(tree, head, node_id)
            first = branch.nodes[0].parent if branch.nodes else branch.head
            return [*tree.path(first), *branch.nodes]
        return None

    def _has_room(self, id: str) -> bool:
        """Whether the server can hold the branch that is left beside a new one."""
        twin = self._twin(id)
        return twin is not None and (twin.shape.slots > 1 or twin.shape.ram_bytes != 0)

    def prefill_speed(self, id: str) -> float | None:
        """The server's prefill speed in tokens/s as measured in this conversation, else on this server lately."""
        conversation = self.open_conversations.get(id)
        info = self.link(id).info
        return (measured_speed(conversation.figures()) if conversation else None) or (
            measured_speed(self.store.speed_samples(info.place, info.model)) if info else None)

    @on_newest(Head.SETTLED)
    async def set_instructions(self, id: str, instructions: str) -> None:
        """Another system prompt: a new branch below a new system message. The old branch stays."""
        conversation = await self._free(id)
        before = conversation.path()[0].text
        message = system_message(instructions, tag_of(before))
        if before == message.text:
            return
        branch = under_system(conversation.tree, conversation.record.head or "", message, self.clock().timestamp())
        self.did(conversation, "system", conversation.path()[0].id)
        await self.move(conversation, branch)


def _said_nothing(answer: Node) -> bool:
    return not answer.text and not answer.message.reasoning and answer.state in (
        State.ERROR, State.CANCELLED, State.INTERRUPTED, State.EMPTY)
