"""What an act would make the server prefill, before it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from kvchat.cache import Act, Price
from kvchat.cache.tracking import HeldOfBranch, price, price_of_act
from kvchat.chat.cache.routes import Routes
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.question.builder import QuestionBuilder
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.chat.tools.named import named_tools
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.figures.cause import Cause
from kvchat.prompt.branching import under_system, without_turn
from kvchat.prompt.compaction import turns_of
from kvchat.prompt.extents import extents
from kvchat.prompt.images import MOST_TOKENS
from kvchat.prompt.message import Node, Role, system_message, tools_of, with_tools
from kvchat.prompt.tree import Tree
from kvchat.reports.warmth import UNKNOWN, Heat

PRICE_S = 1.0
"""A price waits no longer than this for what the last answer left in the cache, and then for the server's tokens."""


class Prices:
    """The prices of acts."""

    def __init__(
        self,
        core: Core,
        routes: Routes,
        questions: QuestionBuilder,
        sizes: PromptSizes,
    ) -> None:
        self._core = core
        self._routes = routes
        self._questions = questions
        self._sizes = sizes

    def estimate(self, id: str, act: Act, node_id: str | None = None, text: str = "", images: int = 0) -> Price:
        """What `act` would make the server read before it answers. `text` is what is to be attached, or the
        new instructions; `images`: how many are to be attached, each counted as at most."""
        conversation = self._core.conversations.loaded[id]
        path = conversation.path()
        turns = [turn[-1].figures for turn in turns_of(path) if turn[-1].role is Role.ASSISTANT]
        speed = self._core.speeds.fit(id)
        if act == "attach":
            used = next((f.context_used for f in reversed(turns) if f and f.context_used), None)
            tokens = self._sizes.estimate(conversation).of([text.encode()]) + images * MOST_TOKENS
            return price(tokens, speed, start=used or 0, exact=False)
        turn = max(0, sum(n.role is Role.USER for n in path) - 1)
        if node_id is not None and any(n.id == node_id for n in path):
            turn = sum(n.role is Role.USER for n in conversation.tree.path(node_id)) - 1
        behind_system = extents(path)[1][0] or 0 if turns else None
        return price_of_act(
            act,
            turns,
            turn,
            speed,
            held=self._held(id, path),
            start=behind_system if act == "edit" and turn == 0 else None,
            grows=len(text.encode()) // 4 - len(path[0].wire) // 4 if act == "system" and text else 0,
            is_counted=not text,
            spare=self._has_room(id),
        )

    def _held(self, id: str, path: Sequence[Node]) -> HeldOfBranch | None:
        """What the server holds of a branch, where that is less than what its figures count, or may be."""
        warmth = self._core.tracker.warmth(id)
        if warmth.heat in (Heat.COLD, Heat.PARKED) and warmth.to_prefill is not None:
            return HeldOfBranch(warmth.held or 0, warmth.to_prefill, warmth.exact)
        return HeldOfBranch(0, None, exact=False) if warmth is UNKNOWN and self._ended(id, path) is not None else None

    async def exact(
        self, id: str, act: Act, node_id: str | None = None, text: str = "", options: Mapping[str, object] | None = None
    ) -> Price:
        """As `estimate`, counted on the server's own tokens where it gives them, in the way in which it would be sent.
        `alternatives`: what choosing the answer `node_id` costs.
        `text`: the new question of an edit (empty: one as long as the old), or the new instructions; `options`: the new
        options of the template."""
        return await self._looked(id, lambda: self._counted(id, act, node_id, text, options))

    async def _looked(self, id: str, counted: Callable[[], Awaitable[Price]]) -> Price:
        """A price after a look who answers at the server: one that was started again holds nothing."""
        if (cache := self._core.servers.link(id).cache) is not None:
            await cache.settled(PRICE_S)  # a look may find another one in its place
        is_known = await self._core.tracker.look(id)
        found = await counted()
        cause = self._ended(id, self._core.conversations.loaded[id].path())
        return replace(found, exact=found.exact and is_known, cause=cause)

    def _ended(self, id: str, path: Sequence[Node]) -> Cause | None:
        """Why the server of a conversation holds nothing of this branch any more; None: it may."""
        info = self._core.servers.link(id).info
        return self._core.tracker.ended_since(path, info) if info is not None else None

    async def _counted(
        self, id: str, act: Act, node_id: str | None, text: str, options: Mapping[str, object] | None
    ) -> Price:
        estimate, link = self.estimate(id, act, node_id, text), self._core.servers.link(id)
        conversation = self._core.conversations.loaded[id]
        path, cache = await self._path_after(conversation, act, node_id, text), self._core.tracker.cache_for(id)
        if cache is None or path is None or cache.server is not link.info:
            return estimate
        if not self._core.servers.consent.agreed_to(cache.server):
            return estimate
        asks = path[-1].role in (Role.USER, Role.TOOL) or act == "continue"
        turn = self._core.branch_requests.after(conversation.record, path)
        if options is not None:
            turn = self._core.branch_requests.by_ids(
                replace(turn, template_options=options, known=None), path, cache.server
            )
        try:
            async with asyncio.timeout(PRICE_S):
                tokens = await (cache.prompts.prompt(turn) if asks else cache.prompts.prefix(turn))
        except TimeoutError:
            return estimate
        if not tokens:
            return estimate
        await self._routes.look_up(cache, path)
        speed = self._core.speeds.fit(id)
        end = len(tokens)
        start = max(0, end - self._routes.options(cache, id, path, tokens).chosen.tokens)
        if act == "edit" and not text:
            return replace(
                price(max(end, _asked_with(conversation.tree, node_id)) - start, speed, start=start, exact=False),
                alternative=estimate.alternative,
            )
        history = None if asks else cache.prompts.known_history(turn)
        if history is not None:
            end = max(start, history)  # the next question's own beginning is not the act's
        return replace(
            price(end - start, speed, start=start, exact=cache.simulated.is_sure_of(tokens)),
            alternative=estimate.alternative,
        )

    async def of_several(
        self, id: str, wanted: AlternativesRequest, question: Question | None, node_id: str | None = None
    ) -> Price:
        """What several answers to a question cost: to a new one, or to that of the message `node_id`."""
        return await self._looked(id, lambda: self._of_several(id, wanted, question, node_id))

    async def _of_several(
        self, id: str, wanted: AlternativesRequest, question: Question | None, node_id: str | None
    ) -> Price:
        conversation, link = self._core.conversations.loaded[id], self._core.servers.link(id)
        tree, cache, speed = conversation.tree, self._core.tracker.cache_for(id), self._core.speeds.fit(id)
        path = tree.path(tree.turn_of(node_id)[0].id if node_id is not None else conversation.record.head)
        if question is not None:
            try:
                path += (await self._questions.built(conversation, path[-1].id, question)).nodes[:-1]
            except ChatError:  # that is said when it is sent
                return Price(None)
        whole = self._sizes.estimated(conversation, path)
        own = self._core.servers.asked_model(id)
        others = sum(model != own for model in wanted.models)
        if wanted.models and others == len(wanted.models):
            return price(whole * others, speed, exact=False)
        if cache is None or cache.server is not link.info or not self._core.servers.consent.agreed_to(cache.server):
            held = min(whole, self._core.tracker.warmth(id).held or 0)
            return price(whole - held + whole * others, speed, start=held, exact=False)
        try:
            async with asyncio.timeout(PRICE_S):
                tokens = await cache.prompts.prompt(self._core.branch_requests.after(conversation.record, path))
        except TimeoutError:
            tokens = None
        if not tokens:
            return Price(None)
        count, _ = wanted.requests(self._core.tracker.most_answers(id))[0]
        plan = self._routes.options(cache, id, path[:-1], tokens)
        chosen, said = plan.chosen, cache.simulated.best.predict(tokens, plan.slot, answers=count)
        lost = [(held, held.tokens.common(tokens)) for held in said.overwritten if held.owner != id]
        losing = tuple((self._core.conversations.title(held.owner), len(held.tokens) - kept) for held, kept in lost)
        held = len(tokens) - chosen.tokens
        exact = cache.simulated.is_sure_of(tokens) and not others
        return replace(price(chosen.tokens + len(tokens) * others, speed, start=held, exact=exact), losing=losing)

    def of_tools(self, id: str, names: Sequence[str]) -> Price:
        """What these tools add to the head of a conversation's prompts, about."""
        if not names:
            return Price(0)
        try:
            tools = named_tools(self._core, names)
        except ChatError:  # not listed yet
            return Price(None)
        return self._of_head(id, tools)

    def of_its_tools(self, id: str) -> Price:
        """What the tools that a conversation has add to the head of its prompts, about."""
        return self._of_head(id, tools_of(self._core.conversations.loaded[id].path()))

    def _of_head(self, id: str, tools: bytes) -> Price:
        tokens = self._sizes.estimate(self._core.conversations.loaded[id]).of([tools])
        return price(tokens, self._core.speeds.fit(id), exact=False)

    async def _path_after(
        self, conversation: OpenConversation, act: Act, node_id: str | None, text: str
    ) -> list[Node] | None:
        """The branch that the server would prefill after an act; None where that is not known before."""
        tree, head = conversation.tree, conversation.record.head or ""
        if act in ("open", "template"):
            return conversation.path()
        if act == "system" and text:
            before = conversation.path()[0].message
            branch = under_system(tree, head, system_message(text, before.blocks, before.tools), 0.0)
            return list(branch.nodes)
        if act == "tools":
            named = named_tools(self._core, text.split())
            return list(under_system(tree, head, with_tools(conversation.path()[0].message, named), 0.0).nodes)
        if node_id is None or node_id not in tree:
            return None
        if act in ("fork", "continue", "alternatives"):
            return tree.path(node_id)
        question, _ = tree.turn_of(node_id)
        if act == "regenerate":
            return tree.path(tree[node_id].parent if tree[node_id].role is Role.ASSISTANT else question.id)
        if act == "edit" and not text:
            return tree.path(question.parent)
        if act == "edit":
            try:
                branch = await self._questions.built(
                    conversation, question.parent or "", Question(text, again=question)
                )
            except ChatError:  # what it mentions cannot be had; that is said when it is sent
                return None
            return [*tree.path(question.parent), *branch.nodes[:-1]]
        if act == "delete":
            branch = without_turn(tree, head, node_id)
            first = branch.nodes[0].parent if branch.nodes else branch.head
            return [*tree.path(first), *branch.nodes]
        return None

    def _has_room(self, id: str) -> bool:
        """Whether the server can hold both the branch that is left and a new one."""
        cache = self._core.tracker.cache_for(id)
        shape = cache.simulated.best.shape if cache is not None else None
        return shape is not None and (shape.slots > 1 or shape.ram_bytes != 0)

    def moving(self, id: str, name: str) -> Price:
        """What another server would prefill of an open conversation: its context in tokens, and the seconds at the
        speed that was measured there; None for what is not known. `name`: of the server, as in a conversation's row."""
        speed = self._core.speeds.of(self._core.servers.links.at(name))
        return price(self._core.conversations.loaded[id].context_used, speed)


def _asked_with(tree: Tree, node_id: str | None) -> int:
    """Tokens of the prompt that ended with this question, or with that of this answer; 0: not counted."""
    question, _ = tree.turn_of(node_id or "")
    figures = (answer.figures for answer in tree.children(question.id))
    return max((found.prompt_tokens or 0 for found in figures if found is not None), default=0)
