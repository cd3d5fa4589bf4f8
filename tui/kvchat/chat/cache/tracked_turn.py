"""A chat request whose cached tokens are predicted and explained: what is known of it, from before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct, field

from kvchat.backends.dialect import ChatTurn
from kvchat.cache import Finding, Held, Plan, Shape, Tokens
from kvchat.cache.causes.evidence import NOBODY, Sent, ServerIdentity
from kvchat.cache.llamacpp.prediction import Prediction
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.message import Node, Role
from kvchat.prompt.wire import canonical


class TrackedTurn(Struct):
    """One chat request, from before it is sent until what it left in the cache is known."""

    turn: ChatTurn
    path: Sequence[Node]
    number: int = 0
    server: ServerIdentity = NOBODY
    loading_seen: bool = False
    beside_cancelled: bool = False
    tokens: Tokens | None = None
    rendered: str = ""
    prediction: Prediction | None = None
    history: int | None = None
    """Tokens of the prompt up to the end of the last answer's text; None: not counted."""
    shape: Shape | None = None
    """Of the guess about the server's cache that explains it."""
    before: Simulator | None = None
    """The simulator as it was when the request was sent."""
    pinned: int | None = None
    """The slot that it was sent to."""
    plan: Plan | None = None
    reading: asyncio.Task[None] | None = None
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when what it left in the cache is known, or never will be."""
    shown: str = ""
    """The text of the prompt as the server said at the end that it tokenised it; empty: it did not."""
    shown_slot: int | None = None
    shown_left: int | None = None
    """The slot that answered and the tokens that it then held, as of `PromptShown`."""
    said: str = ""
    """The text of the answer up to then, where it had no thoughts."""
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `shown` has come, or is not waited for any more."""
    altered: bool = False
    """Whether that is not what the server makes of what was sent: something has changed it on the way."""
    finding: Finding | None = None
    denied: int | None = None
    """As of `Evidence`."""
    kind: Literal["conversation", "side"] = "conversation"
    """`side`: the conversation's messages and an instruction of ours; neither that nor the answer belongs to it."""
    certain: bool = True
    """Whether the slots were at rest before: else a cancelled request may have read on."""
    processed: int | None = None
    """Prompt tokens that were in when the server was last heard of; None: it never was."""
    batches: list[PromptProgress] = field(default_factory=list)
    """How far the prompt was read after each batch."""
    played: bool = False
    """Whether its end is played on the simulator."""
    broken_off: bool = False
    """Whether its answer was, so that the server may compute on for a while."""
    order: tuple[int, ...] = ()
    """In which its answers ended, where they were several."""
    came: str | None = None
    """The answer's text as it came, where it is stored in another form: a call that was written as text, or a broken
    one that became text."""
    goes_on_from_a_call: bool = False
    """Whether the branch ends with a call that was sampled in other tokens than it is printed in: of the answer that
    made it only the first tokens are in the cache, and which ones is an estimate."""
    asked_before: bool = False
    """Whether its question was answered before."""
    sent_before: int | None = None
    """Tokens that an earlier prompt or settled reply of its tree begins with, too; None: not counted."""

    @property
    def extended(self) -> Sequence[Node]:
        """The branch without what this request adds: before its question, or all of it where a reply is continued."""
        return self.path if self.turn.continues else self.path[:-1]

    def branch(self, answer: Node) -> tuple[Node, ...]:
        """The branch with the answer to it, which takes the place of the reply that it goes on with."""
        return *(self.path[:-1] if self.turn.continues else self.path), answer

    def sent(self) -> Sent:
        turn = self.turn
        options = canonical(dict(turn.template_options)) if turn.template_options else b""
        adapters = turn.parameters.extra.get("lora")
        return Sent(
            self.server,
            turn.wires,
            options,
            tools=turn.tools,
            rendered=self.rendered,
            tokens=self.tokens,
            adapters=canonical(adapters).decode() if adapters else "",
        )

    def kept(self, slot: int | None) -> int | None:
        """Tokens of this prompt that a slot held when it was sent; None: not known."""
        if slot is None or self.before is None or self.tokens is None or slot >= len(self.before.slots):
            return None
        held = self.before.slots[slot]
        return held.tokens.common(self.tokens) if held is not None else 0

    def without_parked(self, cached: int) -> Prediction | None:
        """What would have been predicted if the server had lost the parked states of which more than `cached` tokens
        are of use; None: not known."""
        if self.before is None or self.tokens is None:
            return None
        return self.before.without_parked(self.tokens, cached).predict(self.tokens, self.pinned)

    def shared(self, states: Iterable[Held]) -> int:
        """The most tokens that one of some states begins this prompt with."""
        return max((held.tokens.common(self.tokens) for held in states), default=0) if self.tokens else 0

    def drops_reasoning(self) -> bool | None:
        """Whether the template leaves earlier reasoning out; None where that does not show."""
        thoughts = next(
            (
                node.message.reasoning.strip()
                for node in reversed(self.path)
                if node.role is Role.ASSISTANT and node.message.reasoning.strip()
            ),
            "",
        )
        return thoughts not in self.rendered if thoughts and self.rendered else None
