"""Acts on what a conversation works with: system prompt, thinking, tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.chat.conversations.drafts import SYSTEM_TYPED
from kvchat.text.options import THINKING, thinking_words
from kvchat.text.tools import ASKS, FORGOTTEN, STARTS, program_lines, tools_sentence

if TYPE_CHECKING:
    from kvchat.commands.acts.surface import Surface


class OptionActs:
    """Changes options of the open conversation, with their price where they change what the server has cached."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._service = surface.service

    async def system(self, text: str = "") -> None:
        """Change the system prompt. Raises ChatError."""
        id, drafts = self._surface.conversation.id, self._service.drafts
        if text:
            drafts.leave(SYSTEM_TYPED + id, text)
        # Where it was picked the price was shown; a cheaper way, or words that came with the command, are asked about.
        is_priced = not text and self._service.prices.estimate(id, "system").alternative is None
        chosen = text or await self._surface.pick("system")
        if chosen is None:
            return
        decision = is_priced or await self._surface.decided("system", text=chosen, instead=f"From now on: {chosen}")
        if decision and decision != "instead":
            await self._service.branches.set_instructions(id, chosen)
            self._surface.say(f"System prompt changed · {self._surface.way_to('undo')} undoes it")
        if decision:
            drafts.saved(SYSTEM_TYPED + id)

    async def thinking(self, word: str = "") -> None:
        """On, off, or as the server has it: the next of the three; with a word that, or an effort. Raises ChatError."""
        conversation, options = self._surface.conversation, self._service.options
        change = await self._surface.waited(options.thinking(conversation.id, word))
        if change is None:
            return
        if change.lacks:
            self._surface.say(change.lacks)
        elif change.options == conversation.record.template_options or await self._surface.decided(
            "template", title=f"{THINKING[change.word]} in this conversation?", options=change.options
        ):
            await options.set_template_options(conversation.id, change.options)
            self._surface.say(thinking_words(change.word, known=bool(change.is_known)))

    async def tools(self, words: str = "") -> None:
        """Choose what the model may call, by names; `none`, or `forget` to take back what was allowed. Raises
        ChatError."""
        id, branches = self._surface.conversation.id, self._service.branches
        if words.strip() == "forget":
            await self._service.tools.forget()
            await self._service.mcp.forget()
            self._surface.say(FORGOTTEN)
            return
        if words.strip() != "none":
            branches.must_take_tools(id)  # before anything is chosen, or started, for it
        chosen = words.strip() or await self._surface.pick("tools")
        if chosen is None:
            return
        names = [] if chosen == "none" else chosen.replace(",", " ").split()
        if not await self._are_there(id, names):
            return
        is_empty = not self._surface.conversation.record.turns  # it holds nothing yet that would be prefilled again
        if is_empty or await self._surface.decided("tools", text=" ".join(names)):
            await branches.set_tools(id, names)
            left_out = self._service.mcp.left_out(names)
            self._surface.say(" ".join([*left_out, tools_of(self._surface)]), warning=bool(left_out))

    async def _are_there(self, id: str, names: Sequence[str]) -> bool:
        """Whether these tools can be had: the user agrees to the programs behind them, each asked for once, and waits
        until they have listed theirs. Raises ChatError."""
        mcp = self._service.mcp
        for name, server in mcp.to_agree(names).items():
            lines = program_lines(name, server.shown)
            if not await self._surface.agreed(STARTS, lines, "Start it, now and later", "No", unasked=True):
                return False
            await mcp.agree(server)
        if asked := ", ".join(mcp.behind(names)):
            self._surface.say(ASKS.format(names=asked))

        async def listed() -> bool:
            await self._service.branches.can_have(id, names)
            return True

        return await self._surface.waited(listed()) is not None


def tools_of(surface: Surface) -> str:
    """Which tools the open conversation has, and what they cost."""
    conversation = surface.conversation
    return tools_sentence(conversation.tools, surface.service.prices.of_its_tools(conversation.id))
