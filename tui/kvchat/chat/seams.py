"""Where an answer ends in a prompt that goes on after it: what a chat template puts between an answer and a question.

The rule: the template shows it itself, with invented texts; where a prompt does not have it in that place, the place
is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import Message, Role
from kvchat.prompt.wire import canonical

FIRST, ANSWER, QUESTION = "U1_USER_MSG", "A_ASST_MSG", "U2_USER_MSG"
_SYSTEM, _ASSISTANT = b'{"role":"system"', b'{"role":"assistant"'


@dataclass(frozen=True, slots=True)
class Seam:
    """What stands between an answer's text and the next question's; empty where that does not show."""

    text: str
    tokens: Tokens

    def start(self, prompt: str, tokens: Tokens) -> int | None:
        """How many tokens stand before the seam that `prompt`, whose ids are `tokens`, ends with. None: it does not
        end so, or the ids of the seam merge with the answer's."""
        start = len(tokens) - len(self.tokens)
        fits = self.text and prompt.endswith(self.text) and start >= 0 and tokens.after(start) == self.tokens
        return start if fits else None


NO_SEAM = Seam("", Tokens())


class Seams:
    """The seams of one server's chat templates, each rendered once."""

    def __init__(self, access: CacheAccess) -> None:
        self._access = access
        self._known: dict[tuple[Sequence[bytes], str, bytes, bool], Seam] = {}

    async def after_an_answer(self, turn: ChatTurn) -> Seam:
        """The seam behind `turn`'s last message; none where that is no answer."""
        if not turn.wires or not turn.wires[-1].startswith(_ASSISTANT):
            return NO_SEAM
        first = turn.wires[:1] if turn.wires[0].startswith(_SYSTEM) else ()
        key = first, turn.model, canonical(dict(turn.template_options)), turn.system_in_user
        if key not in self._known:
            try:
                self._known[key] = await self._rendered(turn, first)
            except BackendError:
                return NO_SEAM
        return self._known[key]

    async def _rendered(self, turn: ChatTurn, first: tuple[bytes, ...]) -> Seam:
        invented = [Message(role, text).wire() for role, text in (
            (Role.USER, FIRST), (Role.ASSISTANT, ANSWER), (Role.USER, QUESTION))]
        prompt = await self._access.prompt_text(replace(turn, wires=(*first, *invented)))
        text = prompt.rpartition(QUESTION)[0].rpartition(ANSWER)[2]
        if not text:
            return NO_SEAM
        # At its start a prompt may have a token that stands there only.
        once = await self._access.tokens_of(text)
        return Seam(text, (await self._access.tokens_of(text + text)).after(len(once)))
