"""What is known about a turn when its wasted tokens are to be explained. Values only.

Every field but the figures may be missing, and a missing one says nothing: it is never taken for
"no" or for 0. Whoever fills it in puts down only what a server said or the client did.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from kvchat.cache.causes.remedies import Flags
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.simulator import Prediction
from kvchat.cache.price import Act
from kvchat.cache.tokens import Tokens
from kvchat.figures.accounting import TurnFigures

Change = Act | Literal["tools", "compact"]
"""An act of the user that changes what is sent; each was priced before it was done."""
GOING_BACK: frozenset[Change] = frozenset({"edit", "regenerate", "continue", "alternatives", "delete", "fork"})
"""Acts after which a server needs a state of an earlier place of the prompt."""


class ServerIdentity(Struct, frozen=True):
    """Who answers. Empty: not known."""

    base_url: str = ""
    kind: str = ""
    """`llama.cpp`, `vllm`, `sglang`, `ollama`, `openai` ..."""
    build: str = ""
    model: str = ""
    embedded: bool = False
    """The built-in engine: its address changes at every start."""


NOBODY = ServerIdentity()


class Sent(Struct, frozen=True):
    """A request as it went out."""

    server: ServerIdentity = NOBODY
    wires: tuple[bytes, ...] = ()
    """The wire bytes of its messages; empty: not known."""
    options: bytes | None = None
    """The chat template's options as canonical JSON; None: not known."""
    tools: bytes | None = None
    """The tools as canonical JSON; None: not known."""
    rendered: str = ""
    """The prompt as the server's template writes it; empty: not known."""
    tokens: Tokens | None = None
    """The same as token ids."""
    caches: bool = True
    """False where `cache_prompt` was switched off."""
    adapters: str | None = None
    """The LoRA adapters asked for, in canonical form; None: not known."""


class LastRead(Struct, frozen=True):
    """The last request on this branch, a turn or a warm-up of it, and what it left in the server."""

    sent: Sent = field(default_factory=Sent)
    prompt_tokens: int | None = None
    predicted_tokens: int | None = None
    sampled: Tokens | None = None
    """The ids of the predicted tokens."""
    reply: str = ""
    """The answer's text exactly as received."""
    reasoning: str = ""
    """The answer's reasoning exactly as received."""
    begun: int = 0
    """Characters of the answer, at the most, that the prompt already ends with: it went on with a cut one."""
    slot: int | None = None
    """The slot it ran in."""
    slot_tokens: int | None = None
    """Tokens in that slot right after the answer, as the server counts them."""
    stopped: bool | None = None
    """Whether the model ended the answer, by a token that is no part of its text; None: it was ended otherwise, and
    the server may have written more than came."""
    same_tokens: bool | None = None
    """Whether the answer, as history, has the tokens that it was sampled in; None: not known."""
    calls: bool = False
    """Whether it called tools."""
    window: int | None = None
    """Tokens that fitted into the window."""

    @property
    def left(self) -> int | None:
        """Tokens that a server holds after it: the last sampled token is never decoded."""
        if self.prompt_tokens is None or self.predicted_tokens is None:
            return None
        return self.prompt_tokens + max(0, self.predicted_tokens - 1)

    @property
    def held(self) -> Tokens | None:
        """What the server holds after it, as far as the ids are known."""
        if self.sent.tokens is None or self.sampled is None:
            return self.sent.tokens
        return self.sent.tokens + self.sampled.first(len(self.sampled) - 1)


class OwnUse(Struct, frozen=True):
    """A request of kvchat's that was not on this branch, sent since the last read."""

    kind: Literal["side", "warm-up", "conversation", "branch"]
    name: str = ""
    """What the side request was for (`memory`), or the conversation's title, raw."""
    slot: int | None = None
    kept: int | None = None
    """Tokens of this branch that its slot still held afterwards."""
    lost: int | None = None
    """Tokens of this prompt that a state began with which was lost because this request ran in its place; None: it is
    not known what it ran over."""
    by_prefix: bool | None = None
    """Whether the server chose its slot because that held a prompt that begins alike; None: not known."""

    @property
    def unforeseen(self) -> OwnUse:
        """The same without what only a simulator can tell."""
        return OwnUse(self.kind, self.name)


class Foreign(Struct, frozen=True):
    """A sign that another program used the model since the last read."""

    slot: int | None = None
    """The slot it was seen in; None where only the server's totals grew."""
    tokens: int = 0
    """Tokens of it that the slot holds, 0 where it was emptied; or that the totals grew by beyond what was sent from
    here, 0 where that is not known."""
    since: int = 0
    seen: int = 0
    """When the slot was last looked at without it, and with it, in seconds since the epoch; 0: not known."""


class Evidence(Struct, frozen=True):
    """Everything known about one turn."""

    figures: TurnFigures
    now: Sent = field(default_factory=Sent)
    before: LastRead | None = None

    restarted: bool = False
    """The server's process or its counters started again since the last read."""
    slept: bool = False
    """It was seen asleep, or its slots were gone after a known time to sleep."""
    loading_seen: bool = False
    """It answered "loading" before this answer, its list had the model as not loaded, or a router loaded it again."""
    during_cancelled: bool = False
    """A request of ours that was cancelled may still have been computed when this one was sent."""

    changed_by: Change | None = None
    """The user's act on this branch since the last read."""
    changed_message: int | None = None
    """The index among the messages of the one it was done to; 0 is the system message."""
    counted: int | None = None
    """How many tokens this prompt has by the client's own count, where that was made."""
    drops_reasoning: bool | None = None
    """Whether the chat template was seen to leave out earlier reasoning."""
    can_keep_reasoning: bool | None = None
    """Whether the template has an option for keeping it."""
    reasoning_option: tuple[str, bool] | None = None
    """That option, and the value that keeps it."""

    prediction: Prediction | None = None
    """The simulator's, made before the request was sent."""
    uses: tuple[OwnUse, ...] = ()
    """In the order in which they were sent."""
    foreign: Foreign | None = None
    denied: int | None = None
    """Tokens of this prompt that the slot held, where the server reported to have reused nothing, as it did not do
    always, and no loss of the host cache explains that."""
    evicted: int | None = None
    """Tokens of this branch that must have been pushed out for want of room, by the simulator or the trie."""

    shape: Shape | None = None
    block: int = 1
    """Tokens of one block, where a server caches whole blocks only (vLLM: 16)."""
    turns_without_reuse: int = 0
    """Turns in a row on this server, with this one, that had something to reuse and were reported to reuse nothing."""
    history: int | None = None
    """Tokens of this prompt up to the end of the last answer's text, where they were counted in ids."""
    unkept: TurnFigures | None = None
    """Of the last answer, where that was not the first one to its request: the server did not keep its state."""
    flags: Flags = Flags()
    """What a server of this kind can be set to, from its module."""
    room_for_models: int | None = None
    """How many models the server keeps loaded, where one more takes the place of another; None: not known."""
    saves_slots: bool | None = None
    """Whether the server saves slots to files already; None: not known."""
    swapped: tuple[str, str] | None = None
    """The files of the model before and now, where another one took the same name since the last read."""
    windows: tuple[int, int] | None = None
    """Tokens that fitted into the window at the last read, and that fit now, where the model was loaded with another
    one in between."""
    may_be_full: bool = False
    """Whether the server may have a host cache that had no room for it: it was never seen to hold anything."""
