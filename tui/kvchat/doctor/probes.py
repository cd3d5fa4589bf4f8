"""The conversation of the probe: invented texts, sent as kvchat sends a conversation, and what each turn cost.

Each conversation begins with a random tag, so that it shares nothing with what the server holds; and no request is sent
that could take more tokens than are left.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import (
    Backend,
    ChatTurn,
    Ended,
    ReasoningDelta,
    Reported,
    StreamEvent,
    TextDelta,
    Trouble,
    failure,
)
from kvchat.doctor.report import Examination, ProbeTurn, Step
from kvchat.figures.accounting import TurnFigures, new_tokens
from kvchat.prompt.message import Message, Role, State, new_id
from kvchat.prompt.request import Parameters
from kvchat.text.faults import Fault

TEXT = (
    "garden river stone window morning bread paper summer winter yellow green silver quiet small old new long "
    "bright slow warm cold road hill field house table water light cloud wind rain snow tree leaf flower bird "
    "horse boat bridge tower market street song story letter book lamp chair door key clock bell"
)
WORDS = TEXT.split()
SENTENCE = 9
"""Words of an invented sentence."""
LEAST_PER_CHARACTER, MOST_PER_CHARACTER = 0.15, 0.3
"""Tokens per character of plain English words."""
OVERRUN = 2
"""How many times as long as it was asked for an answer may become: some servers send a token in several pieces."""
TEMPLATE_TOKENS = 64
"""What most templates add to a first prompt at most, and several times what they add to a later one."""


class Size(Struct, frozen=True):
    """How large the probe is."""

    first: int = 280
    """Words of the system message and the first question together."""
    next: int = 24
    """Words of each further question."""
    answer: int = 16
    """Tokens of each answer at most."""


SMALL = Size(60, 10, 4)
"""For a server that prefills slowly or has a small window."""


BLIND = Size(100, 16, 8)
"""For a server that counts no tokens: the most they can be has to fit the budget."""


def size_for(window: int | None, *, slow: bool = False, counts: bool = True) -> Size:
    """The probe for a window of `window` tokens (None: not known); `counts`: whether the server counts tokens."""
    if slow or (window is not None and window < 1024):
        return replace(SMALL, first=min(SMALL.first, max(8, (window or 1024) // 8)))
    return Size() if counts else BLIND


def prose(words: int, seed: str) -> str:
    """Invented sentences of `words` words."""
    chosen = random.Random(seed).choices(WORDS, k=max(1, words))
    parts = [chosen[at : at + SENTENCE] for at in range(0, len(chosen), SENTENCE)]
    return " ".join(f"{' '.join(part).capitalize()}." for part in parts)


class Heard(Struct):
    """One answer as it comes in."""

    began: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float | None = None
    text: str = ""
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    reported: Reported = field(default_factory=Reported)
    pieces: int = 0
    """Of text that came; each is a token or more on most servers."""

    @property
    def tokens(self) -> int:
        """Tokens of the answer so far."""
        return self.pieces if self.reported.predicted_tokens is None else self.reported.predicted_tokens

    def __call__(self, event: StreamEvent) -> None:
        match event:
            case TextDelta():
                self.text += event.text
            case ReasoningDelta():
                self.reasoning += event.text
                self.reasoning_field = event.field
            case Reported():
                self.reported = event
                return
            case _:
                return
        self.pieces += 1
        self.last = time.monotonic()
        self.first = self.first or self.last

    def figures(self, window: int | None) -> TurnFigures:
        """What it cost; the time of the answer is taken here where the server does not tell it."""
        said = self.reported
        predicted_ms = said.predicted_ms
        if predicted_ms is None and self.first and self.last and (said.predicted_tokens or 0) > 1:
            predicted_ms = (self.last - self.first) * 1000 or None
        return TurnFigures(
            said.prompt_tokens,
            said.cached_tokens,
            said.predicted_tokens,
            None,
            (self.first - self.began) * 1000 if self.first else None,
            said.prompt_ms,
            predicted_ms,
            window,
        )


class Talk:
    """A conversation with a server, turn by turn; it only grows at its end. Its turns, what they cost and what was
    warned of go into the examination."""

    def __init__(self, backend: Backend, found: Examination, model: str) -> None:
        self._backend = backend
        self._found = found
        self.model = model
        self.slot: int | None = None
        """The slot that requests name; None: the server chooses."""
        self._template = TEMPLATE_TOKENS
        """What the template adds to a first prompt at most."""
        self._wires: tuple[bytes, ...] = ()
        self._before = TurnFigures(prompt_tokens=0)
        self._characters = 0
        """Of what was sent and answered so far."""
        self.begin(size_for(found.window))

    def begin(self, size: Size) -> None:
        """Begin another conversation, of this size, before the first turn."""
        self._size = size
        template = self._found.template
        self._system_in_user = template is not None and template.system_role is False
        self._session = new_id()
        self._tag = new_id()[:8]
        self._system = f"[{self._tag}] {prose(size.first // 3, self._tag + 's')} You answer in a few words."

    @property
    def _longest(self) -> int:
        """Pieces of an answer at which it is ended from here."""
        return self._size.answer * OVERRUN

    async def turn(self, step: Step) -> bool:
        """Ask the next question; False where it could take more than is left. Raises BackendError."""
        words = self._size.next if self._wires else self._size.first - self._size.first // 3
        text = prose(words, f"{self._tag}{step}") + " What comes to mind?"
        begun = self._wires or (Message(Role.SYSTEM, self._system).wire(),)
        wires = (*begun, Message(Role.USER, text).wire())
        most = self._most(len(text) + (0 if self._wires else len(self._system)))
        if not self._found.fits(most):
            return False
        heard, ended = await self._sent(wires)
        refused = ended.error is not None and ended.error.trouble is Trouble.SYSTEM_ROLE
        if refused and not self._wires and not self._system_in_user:
            self._system_in_user = True
            heard, ended = await self._sent(wires)
        self._before = self._counted(step, heard, ended, most, self._before.context_used)
        answer = Message(Role.ASSISTANT, heard.text, reasoning=heard.reasoning, reasoning_field=heard.reasoning_field)
        self._wires = (*wires, answer.wire())
        self._characters += len(text) + len(heard.text) + len(heard.reasoning)
        return True

    async def aside(self, step: Step) -> bool:
        """Send a small prompt of its own in the same session, as a client's request for a title is; False where it
        could take more than is left. Raises BackendError."""
        text = f"[{new_id()[:8]}] {prose(24, new_id())} Give these words a title of three words."
        most = int(len(text) * MOST_PER_CHARACTER) + self._template + self._longest
        if not self._found.fits(most):
            return False
        heard, ended = await self._sent((Message(Role.USER, text).wire(),))
        figures = self._counted(step, heard, ended, most)
        if figures.prompt_tokens is not None:
            added = figures.prompt_tokens - int(len(text) * LEAST_PER_CHARACTER)
            self._template = max(TEMPLATE_TOKENS // 4, added)
        return True

    def _most(self, characters: int) -> int:
        """The most tokens that the next request can take, if nothing of it is reused."""
        known = (self._before.prompt_tokens or 0) + (self._before.predicted_tokens or 0)
        if not known:
            characters += self._characters
        template = TEMPLATE_TOKENS // 4 if known else self._template
        return known + int(characters * MOST_PER_CHARACTER) + template + self._longest

    async def _sent(self, wires: Sequence[bytes]) -> tuple[Heard, Ended]:
        info = self._backend.info
        options = dict([info.reasoning_option] if info.reasoning_option else ())
        turn = ChatTurn(
            tuple(wires),
            self._session,
            self.model,
            Parameters(max_tokens=self._size.answer),
            options,
            self.slot,
            system_in_user=self._system_in_user,
        )
        heard = Heard()

        def hear(event: StreamEvent) -> None:
            heard(event)
            if heard.tokens > self._longest:
                asked.cancel()

        asked = asyncio.create_task(self._backend.chat(turn, hear))
        try:
            return heard, await asked
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if heard.tokens <= self._longest or (this is not None and this.cancelling()):
                raise
        return heard, Ended(State.ERROR, error=failure(Trouble.PROTOCOL, Fault.ENDLESS, url=info.base_url))

    def _counted(self, step: Step, heard: Heard, ended: Ended, most: int, before: int | None = 0) -> TurnFigures:
        """The figures of a turn, which is paid for and written down. `before`: tokens that it goes on from. Raises
        BackendError when it failed."""
        found = self._found
        if ended.error is not None:
            found.spend(most + max(0, heard.tokens - self._longest) if heard.tokens else 0)
            raise ended.error
        figures = heard.figures(self._backend.info.context_size)
        figures = replace(figures, new_tokens=new_tokens(figures.prompt_tokens, before))
        read = figures.prompt_tokens if figures.evaluated_tokens is None else figures.evaluated_tokens
        predicted = self._size.answer if figures.predicted_tokens is None else figures.predicted_tokens
        found.spend(most if read is None else read + predicted)
        found.warnings.extend(ended.warnings)
        found.turns.append(ProbeTurn(step, figures, heard.reported.estimated))
        return figures
