"""Ask the user about the price of an act before it is done.

A small price is not asked about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from kvchat.cache import CheaperWay
from kvchat.chat.errors import ChatError
from kvchat.sanitize import one_line
from kvchat.ui.controllers.workspace import Workspace

if TYPE_CHECKING:
    from kvchat.cache import Act, Price
    from kvchat.ui.screens.kit import Choice

Decision = Literal["go", "instead", "fork"]
"""Do it, do the cheaper thing, or do it in a fork."""

QUOTED = 60
"""Characters of a question that are quoted."""
FORK = "Fork: edit in a new conversation, keep this one"

NAMES: dict[Act, str] = {
    "edit": "Edit",
    "regenerate": "Regenerate",
    "delete": "Delete turn",
    "system": "Change prompt",
    "tools": "Change the tools",
    "template": "Change",
    "model": "Switch",
    "continue": "Continue",
    "alternatives": "Ask",
}
"""What the key does that agrees."""
ACTS: Mapping[str, Act] = {
    "transcript.edit": "edit",
    "transcript.regenerate": "regenerate",
    "transcript.delete": "delete",
    "system": "system",
    "thinking": "template",
}
"""The actions that cost something."""


class CostQuestions:
    """Shows what an act would have the server prefill, and asks whether to do it: that only in workers."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def in_brief(self) -> dict[str, str]:
        """What the acts of this conversation cost, each in a few words, by their actions; without those that are free.
        An estimate, made without asking the server."""
        from kvchat.text.prices import compaction_in_brief, in_brief

        node = self._workspace.target()
        if node is None:
            return {}
        conversation, cut = self._workspace.conversation, self._workspace.cut_answer()
        prices, id = self._workspace.service.prices, conversation.id
        costs = {action: in_brief(prices.estimate(id, act, node)) for action, act in ACTS.items()}
        if cut is not None and conversation.tree[cut].is_cut:
            costs["transcript.continue"] = in_brief(prices.estimate(id, "continue", cut))
        with suppress(ChatError):  # there is nothing to compact
            costs["compact"] = compaction_in_brief(self._workspace.service.compactor.price(id).summary_seconds)
        return {action: words for action, words in costs.items() if words}

    async def agreed(
        self, act: Act, node: str | None = None, title: str = "", options: Mapping[str, object] | None = None
    ) -> bool:
        """Whether the user agrees to the price of an act. `options`: the new options of the template."""
        return await self.decided(act, node, title=title, options=options) == "go"

    async def decided(
        self,
        act: Act,
        node: str | None = None,
        *,
        title: str = "",
        text: str = "",
        instead: bool = False,
        fork: bool = False,
        options: Mapping[str, object] | None = None,
        unasked: bool = False,
    ) -> Decision | None:
        """What the user decides. `text`: the new text of the act; `instead`: whether the cheaper way can be done, if
        there is one; `fork`: whether a fork can; `unasked`: as of `Workspace.choose`."""
        prices, id = self._workspace.service.prices, self._workspace.conversation.id
        asked = prices.exact(id, act, node, text, options)
        return await self._decided(asked, act, node, title=title, instead=instead, fork=fork, unasked=unasked)

    async def agreed_to(self, price: Awaitable[Price], act: Act, words: Sequence[str], node: str | None = None) -> bool:
        """Whether the user agrees to this price of an act on the turn of `node`; `words` are shown with it."""
        return await self._decided(price, act, node, words=words) == "go"

    def _quoted(self, node: str | None) -> list[str]:
        """The question of the turn that an act would change, so that it is known which."""
        if node is None:
            return []
        question, _ = self._workspace.conversation.tree.turn_of(node)
        return [f"“{one_line(question.text, QUOTED)}”"] if question.text.strip() else []

    async def _decided(
        self,
        asked: Awaitable[Price],
        act: Act,
        node: str | None,
        *,
        title: str = "",
        words: Sequence[str] = (),
        instead: bool = False,
        fork: bool = False,
        unasked: bool = False,
    ) -> Decision | None:
        with self._workspace.key_queue.coming() as dialog:
            price = await asked
        if dialog.is_given_up:
            return None
        if not price.worth_asking:
            return "go"
        from kvchat.text.prices import TITLES, cheaper, price_lines

        choices: list[Choice[Decision | None]] = [("y", NAMES[act], "go")]
        way = price.alternative
        forks = way is not None and way.way is CheaperWay.FORK
        if instead and way is not None and not forks:
            choices.append(("a", cheaper(way), "instead"))
        if fork:
            choices.append(("f", cheaper(way) if way is not None and forks else FORK, "fork"))
        choices.append(("n", "Cancel", None))
        lines = [*self._quoted(node), *price_lines(price, act), *words]
        return await self._workspace.choose(title or TITLES[act], lines, choices, unasked=unasked, coming=dialog)
