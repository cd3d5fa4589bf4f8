"""What plain mode says, and what it asks: sentences, each a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from kvchat.sanitize import clean
from kvchat.text.tools import yes_or_no

Ask = Callable[[str, str], Awaitable[str | None]]
"""Asks for a line, with a text in it to begin with; None: the user gave none (Ctrl+D, Ctrl+C)."""


class Output(Protocol):
    """Where lines and text from outside go, made safe on the way."""

    def write(self, text: str) -> None: ...

    def line(self, text: str = "") -> None: ...

    def end(self) -> None: ...


class Speaker:
    """Says and asks."""

    def __init__(self, output: Output, ask: Ask) -> None:
        self.output = output
        self._ask = ask
        self._later: list[str] = []
        """What waits until the user is done typing."""

    def say(self, *sentences: str) -> None:
        """Each on a line of its own. What separates words on a screen is a comma for one who listens."""
        for sentence in sentences:
            self.output.line(spoken(sentence))

    def show(self, *lines: str) -> None:
        """Each on a line of its own, as it is: what a decision is about is not put into other words."""
        for line in lines:
            self.output.line(clean(line))

    def say_later(self, sentence: str) -> None:
        """The same, before the next prompt."""
        if sentence not in self._later:
            self._later.append(sentence)

    def say_what_waits(self) -> None:
        waiting, self._later = self._later, []
        self.say(*waiting)

    async def asked(self, prompt: str, text: str = "") -> str | None:
        """A line of the user's; None: they gave none."""
        self.output.end()
        return await self._ask(prompt, text)

    async def agreed(self, question: str, lines: Iterable[str] = ()) -> bool:
        """Whether the user says yes. What Enter alone says is no."""
        self.show(*lines)
        says_yes = None
        while says_yes is None:
            says_yes = yes_or_no(await self.asked(f"{spoken(question)} y or n: ") or "")
        if not says_yes:
            self.say("Not done.")
        return says_yes


def spoken(sentence: str) -> str:
    """A sentence that was written for a screen, without the signs that stand between its words."""
    return clean(sentence).replace(" · ", ", ").replace(" → ", " to ").replace(" …", "")
