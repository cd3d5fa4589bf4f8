"""A chat request whose cached tokens are predicted and explained: a value for each of its states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from kvchat.backends.dialect import ChatTurn
from kvchat.cache import Prediction, Shape, Tokens
from kvchat.cache.tracking import Sent, SentPrompt, ServerIdentity, Simulator
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.wire import canonical

BROKEN_OFF = (State.CANCELLED, State.INTERRUPTED, State.ERROR)
"""Answers after which the server may have written more than came."""


class PreparedRequest(Struct, frozen=True):
    """A chat request just before it is sent.

        Prepared ──► Sent ──► Tokenized ──► Predicted ──► Reported
                      ▲                         │
                      └─────────────────────────┘   the server says that its prompt was another one

    An answer may end in each of them: the tokens of a prompt may not come in time, or not at all.
    """

    turn: ChatTurn
    path: Sequence[Node]
    server: ServerIdentity = ServerIdentity()
    kind: Literal["conversation", "side"] = "conversation"
    """`side`: the conversation's messages and an instruction of ours; neither that nor the answer belongs to it."""
    certain: bool = True
    """Whether the slots were at rest: else a cancelled request may have read on."""
    during_cancelled: bool = False
    history: int | None = None
    """Tokens of the prompt up to the end of the last answer's text; None: not counted."""
    asked_before: bool = False
    """Whether its question was answered before."""
    goes_on_from_a_call: bool = False
    """Whether the branch ends with a call that was sampled in other tokens than it is printed in: of the answer that
    made it only the first tokens are in the cache, and which ones is an estimate."""

    @property
    def extended(self) -> Sequence[Node]:
        """The branch without what this request adds: before its question, or all of it where a reply is continued."""
        return self.path if self.turn.continues else self.path[:-1]

    def branch(self, answer: Node) -> tuple[Node, ...]:
        """The branch with the answer to it, which takes the place of the reply that it goes on with."""
        return *(self.path[:-1] if self.turn.continues else self.path), answer

    def held_after(self, answer: Node) -> Sequence[Node]:
        """The messages of the conversation that its slot holds a state of when it was answered."""
        return self.extended if self.kind == "side" else self.branch(answer)


class SentRequest(PreparedRequest, frozen=True, kw_only=True):
    """It is on its way."""

    number: int
    """As of `Journal`."""
    pinned: int | None = None
    """The slot that it was sent to."""
    before: Simulator | None = None
    """The simulator as it was when the request was sent; None: the server's cache cannot be tracked."""

    @property
    def tokens(self) -> Tokens | None:
        return None

    @property
    def rendered(self) -> str:
        """The text of its prompt; empty: not known."""
        return ""

    @property
    def prediction(self) -> Prediction | None:
        return None

    @property
    def sent_before(self) -> int | None:
        """Tokens that an earlier prompt or settled reply of its tree begins with, too; None: not counted."""
        return None

    @property
    def shape(self) -> Shape | None:
        """Of the guess about the server's cache that explains what it reported."""
        return None

    @property
    def denied(self) -> int | None:
        """As of `Evidence`."""
        return None

    def tokenized(self, tokens: Tokens, rendered: str, *, altered: bool) -> TokenizedRequest:
        return TokenizedRequest(**asdict(self), tokens=tokens, rendered=rendered, altered=altered)

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

    @property
    def played(self) -> SentPrompt:
        """As it was played on the model of the server's cache."""
        return SentPrompt(
            self.number, self.turn.session_id, self.tokens, self.pinned, self.before, self.prediction, self.shape
        )

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


class TokenizedRequest(SentRequest, frozen=True, kw_only=True):
    """The tokens of its prompt are known."""

    tokens: Tokens
    rendered: str = ""
    altered: bool = False
    """Whether the server read another text than it makes of what was sent: something has changed that on the way."""

    def predicted(self, prediction: Prediction) -> PredictedRequest:
        return PredictedRequest(**asdict(self), prediction=prediction)


class PredictedRequest(TokenizedRequest, frozen=True, kw_only=True):
    """It is played on the simulator."""

    prediction: Prediction
    sent_before: int | None = None

    def withdrawn(self) -> SentRequest:
        """The server says that its prompt was another one."""
        return SentRequest(**{name: getattr(self, name) for name in SentRequest.__struct_fields__})

    def reported(self, prediction: Prediction, denied: int | None) -> ReportedRequest:
        return ReportedRequest(**asdict(replace(self, prediction=prediction)), denied=denied)


class ReportedRequest(PredictedRequest, frozen=True, kw_only=True):
    """The server said what it reused: `before` and `prediction` are those of the guess that explains it."""

    shape: Shape | None = None
    denied: int | None = None


class EndedAnswers(Struct, frozen=True):
    """The answers to a request as they ended: the state of the first one is kept."""

    answers: Sequence[Node]
    came: str | None = None
    """The first one's text as it came, where it is stored in another form: a call that was written as text, or a broken
    one that became text."""
    order: tuple[int, ...] = ()
    """In which they ended, where they are several."""

    @property
    def first(self) -> Node:
        return self.answers[0]

    @property
    def predicted(self) -> int:
        """The tokens of the first one."""
        figures = self.first.figures
        return (figures.predicted_tokens or 0) if figures is not None else 0

    @property
    def is_broken_off(self) -> bool:
        """Whether one was, so that the server may compute on for a while."""
        return any(answer.state in BROKEN_OFF for answer in self.answers)


class TrackedTurn(Struct, eq=False):
    """One chat request, from when it is sent until it is explained: as far as it has come."""

    request: SentRequest
    loading_seen: bool = False
    """Whether the server loaded its model for it."""
