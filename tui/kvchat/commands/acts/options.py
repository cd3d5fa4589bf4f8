"""Acts on what a conversation works with: system prompt, thinking, tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.conversations.drafts import SYSTEM_TYPED
from kvchat.sanitize import one_line
from kvchat.text.options import THINKING, thinking_words
from kvchat.text.tools import ASKS, FORGOTTEN, STARTS, program_lines, tools_sentence

if TYPE_CHECKING:
    from kvchat.chat.server.choice import ModelChoice
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

    async def model(self, name: str = "") -> None:
        """Go on with the model, file or server of this name; without one it is picked. Raises ChatError."""
        chooser, id = self._service.chooser, self._surface.conversation.id
        match choice := chooser.meant(id, name) if name else None:
            case ("file", Path() as path):
                files = await self._surface.waited(chooser.files_at(path))
                if files is None:
                    return
                await (self.use(("file", files[0].path)) if len(files) == 1 else self._surface.pick("model", str(path)))
            case ("pull", str(repository)):
                await self._surface.pick("pull", repository)
            case None:
                await self._surface.pick("model")
            case _:
                await self.use(choice)

    async def use(self, choice: ModelChoice) -> None:
        """Go on with what was chosen, at a price that is shown first. Raises ChatError."""
        conversation, use = self._surface.conversation, self._service.chooser.use
        live, id, name = conversation.live, conversation.id, str(choice[1])
        model = choice[2] if choice[0] == "server" else ""
        if live is not None and live.waiting is not None and live.waiting.phase == "gone" and choice[0] != "model":
            await use(id, name, model)  # nothing was sent: the question goes to the server that is chosen now
        elif id in self._service.conversations.streaming():
            self._surface.say(f"An answer is running · {self._surface.way_to('stop')} stops it", warning=True)
        elif await self._surface.decided("model", title="" if choice[0] == "model" else "Switch to another server?"):
            await (self._service.options.set_model(id, name) if choice[0] == "model" else use(id, name, model))
            self._surface.say(
                f"This conversation goes on with {one_line(name, 200)}", shown=True, bare=choice[0] != "server"
            )

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
        chosen = words.replace(",", " ").strip() or await self._surface.pick("tools")
        if chosen is None:
            return
        names = [] if chosen == "none" else chosen.split()
        if names:
            branches.must_take_tools(id)  # before anything is started for it
        if not await self._are_there(id, names):
            return
        if self._surface.conversation.id != id:
            self._surface.say("Tools not changed: another conversation is open", warning=True)
            return
        is_empty = not self._surface.conversation.record.turns  # it holds nothing yet that would be prefilled again
        if is_empty or await self._surface.decided("tools", text=" ".join(names), unasked=self._are_asked(names)):
            await branches.set_tools(id, names)
            left_out = self._service.mcp.left_out(names)
            self._surface.say(" ".join([*left_out, tools_of(self._surface)]), warning=bool(left_out))

    def _are_asked(self, names: Sequence[str]) -> bool:
        """Whether a program or another server has to list tools first, while the user writes on."""
        return bool(self._service.mcp.behind(names))

    async def _are_there(self, id: str, names: Sequence[str]) -> bool:
        """Whether these tools can be had: the user agrees to the programs behind them, each asked for once, and waits
        until they have listed theirs. Raises ChatError."""
        mcp = self._service.mcp
        for name, server in mcp.to_agree(names).items():
            lines = program_lines(name, server.shown)
            if not await self._surface.agreed(STARTS, lines, "Start it, now and later", "No", unasked=True):
                return False
            await mcp.agree(server)
        if self._are_asked(names):
            self._surface.say(ASKS.format(names=", ".join(mcp.behind(names))))

        async def listed() -> bool:
            await self._service.branches.can_have(id, names)
            return True

        return await self._surface.waited(listed(), is_long=True) is not None


def tools_of(surface: Surface) -> str:
    """Which tools the open conversation has, and what they cost."""
    conversation = surface.conversation
    return tools_sentence(conversation.tools, surface.service.prices.of_its_tools(conversation.id))
