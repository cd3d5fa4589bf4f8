"""The interface every dialect of a model server keeps, and the values that cross it.

Nothing above this package knows HTTP. A dialect turns a `ChatTurn` into one request, reports by
events, and always says how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from kvchat.backends.http.payload import Model
from kvchat.backends.kinds import Continuing, Figures, kind_of
from kvchat.cache import ServerState, SlotCount, StateProbe, Tokens
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.images import has_images
from kvchat.prompt.message import Message, State
from kvchat.prompt.request import Parameters
from kvchat.prompt.thoughts import NO_TAGS, Begins, ThoughtTags
from kvchat.prompt.token_ids import KnownIds
from kvchat.prompt.tools import ToolCall
from kvchat.text.faults import Fault, Value, fault_sentence
from kvchat.values import Statement

if TYPE_CHECKING:
    from kvchat.backends.calls import CallShape

# -- what the user set for one server, beyond its address and key ---------------------------------------------------


SESSION_HEADERS = ("X-Session-ID", "X-SMG-Routing-Key", "X-LiteLLM-Session-Id", "X-Session-Affinity")
"""The headers by which routers keep a conversation on the server that holds its cache."""

Locality = Literal["auto", "local", "cloud"]


class ServerOptions(Struct, frozen=True):
    """How a server is spoken to. The defaults leave everything to what is found out."""

    kind: str = ""
    """The name of a kind; empty: by its answers."""
    usual_kind: str = ""
    """The name of the kind that it was before, for when its answers do not tell; empty: not known."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request to this server, to no other one."""
    connect_seconds: float | None = None
    """How long a connection may take; None: 2 s on this machine, else 5 s."""
    locality: Locality = "auto"
    """`local`: a server on the internet that is the user's own; `cloud`: never take it for local."""
    session_headers: tuple[str, ...] | None = None
    """The headers that carry the session id; None: SESSION_HEADERS, to local servers only."""
    session_fields: tuple[str, ...] | None = None
    """The body fields that carry the session id; None: what the dialect knows."""
    context_size: int | None = None
    """Tokens of the window to ask for, where the server takes that with a request (Ollama's num_ctx)."""
    names_model: bool = False
    """Whether a model is named for it, so that it is of use without a list of models."""
    keep_alive: str = ""
    """How long the model stays loaded, where the server takes that with a request (Ollama, LM Studio)."""
    wait_seconds: float | None = None
    """How long a server is waited for that loads its model, or takes no requests now; None: without limit."""
    is_brief: bool = False
    """Whether one request is all: a server that names its one model among its properties is not asked for a list."""

    def __repr__(self) -> str:
        """Without the headers, which may hold a key."""
        return f"ServerOptions({self.kind!r})"


PLAIN = ServerOptions()


# -- the interface ----------------------------------------------------------------------------------------------------


MOST_TOKENS = 1 << 24
"""More than any window has."""
SHORTEST_MS, LONGEST_MS = 1e-3, 1e10
"""What a server's time for a part of an answer lies between: a microsecond, four months."""
ELSEWHERE = "a service on the internet"
"""Where a text goes that a server passes on, when it does not say to whom."""


def is_cloud_name(model: str) -> bool:
    """Whether Ollama would pass a model of this name on to its cloud: `gpt-oss:120b-cloud`, `glm-4.6:cloud`."""
    return model.lower().endswith((":cloud", "-cloud"))


class HostClass(StrEnum):
    """Where a server is, from the resolved address."""

    LOOPBACK = "loopback"
    LAN = "lan"
    TAILNET = "tailnet"
    CLOUD = "cloud"


class Trouble(StrEnum):
    """What kind of failure it was; each has its own actions on the screen."""

    UNREACHABLE = "unreachable"
    """Nothing answers there now; it may later."""
    BAD_ADDRESS = "bad_address"
    """The address, or its certificate, cannot be used: waiting does not help."""
    LOADING = "loading"
    UNAUTHORIZED = "unauthorized"
    CONTEXT_OVERFLOW = "context_overflow"
    RATE_LIMITED = "rate_limited"
    SYSTEM_ROLE = "system_role"
    """The model's template has no place for a system message: it can go into the first question."""
    REFUSED = "refused"
    """Any other 4xx."""
    SERVER_ERROR = "server_error"
    PROTOCOL = "protocol"
    """The answer is not what this protocol allows."""
    CUT = "cut"
    """The connection ended before the answer did."""
    DEAD = "dead"
    """The server stopped answering its health checks."""


class BackendError(Exception):
    """A failure: a kind of problem and its arguments, which `kvchat.text.faults` puts into words."""

    def __init__(
        self,
        trouble: Trouble,
        fault: Fault,
        arguments: Mapping[str, Value],
        *,
        status: int | None = None,
        prompt_tokens: int | None = None,
        context_size: int | None = None,
    ) -> None:
        super().__init__(fault.name)
        self.trouble = trouble
        self.fault = fault
        self.status = status
        self.prompt_tokens = prompt_tokens
        self.context_size = context_size
        self.arguments = arguments

    @property
    def is_behind_proxy(self) -> bool:
        """Whether a proxy says that the server behind it does not answer now (502, 503, 504)."""
        return self.status in (502, 503, 504) and self.trouble is Trouble.SERVER_ERROR

    @property
    def sentence(self) -> str:
        """What happened, where, and what to do."""
        return fault_sentence(self.fault, {"status": self.status, **self.arguments})

    @property
    def note(self) -> Statement:
        """The same, as the note of an answer."""
        return Statement(self.fault.name.lower(), tuple({"status": self.status, **self.arguments}.items()))

    def __str__(self) -> str:
        return self.sentence

    @property
    def server_words(self) -> str:
        """The server's own words, one clean, short line; empty where there are none."""
        return str(self.arguments.get("said") or self.arguments.get("words") or "")

    def with_arguments(self, **arguments: Value) -> BackendError:
        """The same problem with more arguments: other settings that help, another name for the server."""
        return BackendError(
            self.trouble,
            self.fault,
            {**self.arguments, **arguments},
            status=self.status,
            prompt_tokens=self.prompt_tokens,
            context_size=self.context_size,
        )

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt was refused for its length, so that it would be refused again. (A window that other
        requests fill up during an answer is no refusal: that error comes inside a stream, without figures.)"""
        refused = self.status is not None or self.prompt_tokens is not None
        return (self.trouble is Trouble.CONTEXT_OVERFLOW and refused) or self.status == 413


def failure(
    trouble: Trouble,
    fault: Fault,
    *,
    status: int | None = None,
    prompt_tokens: int | None = None,
    context_size: int | None = None,
    **arguments: Value,
) -> BackendError:
    """The error with these arguments by name."""
    return BackendError(
        trouble, fault, arguments, status=status, prompt_tokens=prompt_tokens, context_size=context_size
    )


TemplateOption = tuple[str, bool]
"""An option of a chat template, and the value that it is given."""
PRESERVED: TemplateOption = "preserve_reasoning", True
"""llama-server's word for it, whatever the template itself calls it (`supports_preserve_reasoning` of its /props)."""


class ServerInfo(Struct, frozen=True):
    """What is known of a server. None means it does not say."""

    kind: str
    """The name of its kind (`backends.kinds`): `llama.cpp`, `ollama`, `openai`."""
    base_url: str
    host_class: HostClass
    model: str = ""
    """The model in use, as the server names it (may be a path)."""
    listing: tuple[Model, ...] = ()
    """The models it has, in its order."""
    context_size: int | None = None
    """Tokens per conversation (per slot)."""
    slots: int | None = None
    build: str = ""
    """Its version, in its own words."""
    takes_local_extras: bool = False
    """Whether session_id, cache_prompt, progress and timings may be sent: only to servers recognised as local."""
    reasoning_option: TemplateOption | None = None
    """What asks the template to keep earlier reasoning in the prompt; None where nothing that does is known."""
    embedded: bool = False
    figures: Figures = Figures.AFTER
    """How it tells what came from its cache; what it does not know, it never shows as 0."""
    unloads: str = ""
    """When it unloads an idle model, in words for the user; empty where it does not say or never does."""
    room_for_models: int | None = None
    """How many models it keeps loaded; one more takes the place of another."""
    unknown: tuple[str, ...] = ()
    """What this kind of server cannot tell, in words for the user: `slots`, `context size`."""
    template: TemplateFacts | None = None
    sees: bool | None = None
    """Whether the model in use takes images; None where the server does not say."""
    takes_tools: bool | None = None
    """Whether the template of the model in use has a place for tools; None where the server does not say."""
    call_shape: CallShape | None = None
    """How the model in use writes calls of tools, where kvchat can read that itself."""
    replicas: bool = False
    """Whether several servers answer at this address, one or the other by a router's choice: there is no one cache
    that could be followed."""

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the models it has."""
        return tuple(model.id for model in self.listing)

    def known(self, model: str) -> Model | None:
        """The model of this name in the listing. Ollama lets the tag `latest` be left out."""
        names = {model, f"{model}{kind_of(self.kind).tag}"}
        return next((known for known in self.listing if known.id in names), None) if model else None

    def window(self, model: str) -> int | None:
        """Tokens that fit in a conversation with this model; without a name: with the one in use."""
        named = self.known(model)
        return named.context_size or self.context_size if named is not None else self.context_size

    def takes_images(self, model: str) -> bool | None:
        """Whether this model takes images; without a name: the one in use. None: the server does not say."""
        named = self.known(model)
        if named is not None and named.sees is not None:
            return named.sees
        return self.sees if model in ("", self.model) else None

    def remote_of(self, model: str) -> str:
        """Where the text of a model is passed on to, if it does not stay with the server; without a name: of the one in
        use. A model that Jan does not list may be one of those that it fetches from elsewhere, and Ollama takes the
        names of its cloud unlisted."""
        model = model or self.model
        named = self.known(model)
        if named is not None:
            return named.remote
        kind = kind_of(self.kind)
        if kind.cloud and is_cloud_name(model):
            return kind.cloud
        return ELSEWHERE if self.listing and model and kind.passes_on else ""

    def continues(self, reply: Message) -> bool:
        """Whether it goes on with this reply where a request ends with it."""
        is_text = not reply.reasoning or bool(reply.framed)
        match kind_of(self.kind).continuing:
            case Continuing.THOUGHTS:
                return is_text or reply.reasoning_field == "reasoning_content"
            case Continuing.TEXT:
                return is_text
            case Continuing.NOT:
                return False

    def vocabulary(self, model: str) -> str:
        """Whose token ids those of this model are (without a name: of the one in use), where a prompt can go to it as
        such; empty: it cannot, or need not, for a template option keeps what was thought."""
        named, kind = self.known(model or self.model), kind_of(self.kind)
        can = kind.takes_token_ids and self.host_class is not HostClass.CLOUD and not self.replicas
        if not can or self.reasoning_option is not None or named is None or named.vocabulary is None:
            return ""
        return f"{named.id} {named.vocabulary}"

    def reads_calls(self, model: str) -> bool:
        """Whether the calls that this model writes (without a name: the one in use) can be read by kvchat itself."""
        return self.call_shape is not None and model in ("", self.model)

    @property
    def most_answers(self) -> int:
        """How many answers one request can ask for, all from one prefill."""
        can = kind_of(self.kind).answers_in_slots and not self.replicas
        return self.slots or 1 if can else 1

    @property
    def is_demo(self) -> bool:
        """Whether it runs the bundled demo model."""
        return self.embedded and "SmolLM2-135M" in self.model

    @property
    def place(self) -> str:
        """What the server is called in what is kept of it: the embedded engine has another port at every start."""
        return "built-in engine" if self.embedded else self.base_url


class TemplateFacts(Struct, frozen=True):
    """What a model's chat template does that costs the cache. None: not known."""

    date: bool | None = None
    """It puts the current date into the prompt: one full read at midnight."""
    drops_reasoning: bool | None = None
    """It leaves earlier reasoning out of the prompt."""
    system_role: bool | None = None
    """It has a place for a system message."""
    moves_system: bool | None = None
    """It puts the system message in front of the last question: everything is prefilled again each turn."""
    alternates: bool | None = None
    """It demands that user and assistant take turns."""
    keeps_prefix: bool | None = None
    """The prompt of a turn begins with the whole prompt of the turn before."""
    switches_thinking: bool | None = None
    """The option `enable_thinking` switches thinking on and off."""
    takes_effort: bool | None = None
    """The option `reasoning_effort` says how much is thought."""


class TokenPrompt(Struct, frozen=True):
    """A prompt that goes as token ids, and what is to be known to read the answer."""

    tokens: Tokens
    begins: Begins = "start"
    tags: ThoughtTags = NO_TAGS
    calls: CallShape | None = None
    """How the answer may have calls of tools in it; None: its text is read as it is."""
    tools: bytes = b""


class ChatTurn(Struct, frozen=True):
    """One request: the branch's wire bytes and the options around them."""

    wires: tuple[bytes, ...]
    session_id: str
    model: str = ""
    parameters: Parameters = field(default_factory=Parameters)
    template_options: Mapping[str, object] = field(default_factory=dict)
    """`chat_template_kwargs`, frozen with the conversation."""
    slot: int | None = None
    """The slot to pin this request to (llama.cpp). A wrong one loses what is cached, so only where the slots are
    known."""
    system_in_user: bool = False
    """Send the system message as the beginning of the first user message: for templates without a place for it.
    Frozen with the conversation, because it is part of the prefix."""
    continues: bool = False
    """The last message is the beginning of the reply: the server goes on with it."""
    answers: int = 1
    """How many are asked for (`n`): no more than `ServerInfo.most_answers`."""
    known: KnownIds | None = None
    """The prompt goes as token ids, which begin with these; None: it goes as messages."""
    prompt: TokenPrompt | None = None
    """All of it, once it is known."""
    tools: bytes = b""
    """Those of the conversation (`prompt.tools.frozen_tools`): they stand at the head of the prompt, so every request
    of a conversation has them."""
    may_call: bool = False
    """Whether the answer may call them."""

    @property
    def has_images(self) -> bool:
        """Whether a message has an image: how many tokens a server makes of that, and which, is not known."""
        return has_images(self.wires)

    @property
    def extended(self) -> ChatTurn:
        """The prompt that this request extends: without the question; all messages where it continues a reply."""
        return replace(self, wires=self.wires if self.continues else self.wires[:-1], continues=False)


class Waiting(Struct, frozen=True):
    """Nothing has come for a while."""

    phase: str
    """`queued` (no header yet), `loading` (503 while the model loads), `busy` (the server said when it takes requests
    again), `prefill` (headers, no token), `silent` (the answer paused), `closing` (the previous request is being
    closed)."""
    seconds: float
    """Since the send."""
    server_alive: bool | None = None
    """What the last health check said; None before one was made."""
    words: str = ""
    """How far it is, in its own words; empty: unknown."""


class Progressed(Struct, frozen=True):
    progress: PromptProgress


class TextDelta(Struct, frozen=True):
    text: str


class ReasoningDelta(Struct, frozen=True):
    text: str
    field: str = "reasoning_content"
    """Where it is sent back, as of `Message.reasoning_field`; that of the last one counts."""


class WasThought(Struct, frozen=True):
    """All text until now was this reasoning: the prompt had opened the thought, and only its end came."""

    text: str
    field: str


class CallWritten(Struct, frozen=True):
    """The call of a tool that is being written, as far as it is there; it takes the place of the one before."""

    call: ToolCall


class Reported(Struct, frozen=True):
    """The server's figures so far; each report replaces the one before. None: not reported."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    predicted_tokens: int | None = None
    prompt_ms: float | None = None
    predicted_ms: float | None = None
    estimated: bool = False
    """Whether `cached_tokens` is an estimate."""

    def __post_init__(self) -> None:
        """What cannot be is not known: more tokens than any window has, a time too short or too long to divide by, more
        cached tokens than the prompt has."""
        for name in ("prompt_tokens", "cached_tokens", "predicted_tokens"):
            if (getattr(self, name) or 0) > MOST_TOKENS:
                force_setattr(self, name, None)
        for name in ("prompt_ms", "predicted_ms"):
            if (ms := getattr(self, name)) and not SHORTEST_MS <= ms <= LONGEST_MS:
                force_setattr(self, name, None)
        if (
            self.cached_tokens is not None
            and self.prompt_tokens is not None
            and self.cached_tokens > self.prompt_tokens
        ):
            force_setattr(self, "cached_tokens", None)
            force_setattr(self, "estimated", False)


class Ended(Struct, frozen=True):
    """How a request ended: the last word of every `chat` that was not cancelled."""

    state: State
    """DONE, LENGTH, CONTEXT_FULL, INTERRUPTED, ERROR or EMPTY."""
    remark: Statement | None = None
    """A `NoteKind`, or a fault that is no error of the request, where the state is not DONE or the model also called a
    tool."""
    error: BackendError | None = None
    model: str = ""
    """The model that answered, as the server named it in the answer."""
    reported: Reported = Reported()
    """The last figures that came."""
    calls: tuple[ToolCall, ...] = ()
    """The tools that an answer calls which the server ended."""
    warnings: tuple[Statement, ...] = ()
    """What the user should know of a valid answer: the server dropped messages, loaded the model again, or let another
    model answer. Each a `NoteKind`."""

    @property
    def note(self) -> Statement | None:
        """What is to be said of how it ended."""
        return self.error.note if self.error is not None else self.remark


class Posted(Struct, frozen=True):
    """The request goes out with this body; once more where a field of the one before was refused."""

    body_sha256: str
    """In hex."""


class PromptShown(Struct, frozen=True):
    """The prompt of an answer, as the server says at its end that it has read it."""

    text: str
    slot: int | None = None
    """The slot that answered."""
    left: int | None = None
    """Tokens that it holds now."""


class Prompted(Struct, frozen=True):
    """The request's prompt goes as these token ids."""

    known: KnownIds
    """What was known of them before."""
    tokens: Tokens


class Sampled(Struct, frozen=True):
    """The ids of sampled tokens that belong to the answer."""

    ids: tuple[int, ...]


class OfAlternative(Struct, frozen=True):
    """What came of one of several answers, and how it ended: each before the end of the request."""

    at: int
    """From 0."""
    event: TextDelta | ReasoningDelta | WasThought | Reported | Ended


StreamEvent = (
    Posted
    | Waiting
    | Progressed
    | TextDelta
    | ReasoningDelta
    | WasThought
    | CallWritten
    | Reported
    | PromptShown
    | Prompted
    | Sampled
    | OfAlternative
)
Emit = Callable[[StreamEvent], None]


NOT_SUPPORTED = 501
"""The status of a server without a folder for slots."""


class SlotFile(Struct, frozen=True):
    """What became of saving a slot to a file, or of restoring it. True when it worked."""

    status: int = 0
    """The HTTP status; 0: no answer, or not in time."""
    tokens: int = 0
    """Tokens that were saved or restored."""
    size: int = 0
    """Bytes that were written or read."""

    def __bool__(self) -> bool:
        return self.status == 200


@runtime_checkable
class SlotFiles(Protocol):
    """A backend whose slots can be saved to files of its server's own folder. A busy slot is waited for; `seconds` is
    how long. No call raises BackendError."""

    @property
    def info(self) -> ServerInfo: ...

    async def alive(self) -> bool: ...

    async def saves_slots(self) -> bool | None:
        """Whether the server was started with a folder for its slots; None: it does not say. Nothing is saved."""

    async def slot_file(self, action: Literal["save", "restore"], slot: int, file: str, seconds: float) -> SlotFile:
        """Save a slot to a file, or restore it. A restore that fails leaves the slot empty."""

    async def erase_slot(self, slot: int, seconds: float) -> bool:
        """Empty a slot."""

    async def probe_slot(
        self, slot: int, state: Tokens, seconds: float, *, extended: bool = False
    ) -> StateProbe | None:
        """What a slot that holds `state` answers. `extended`: as of the probe; the slot then holds a token more. None:
        no probabilities. Raises BackendError where there is no answer."""


class PrefillResult(Struct, frozen=True):
    """How a prompt was read without asking for an answer."""

    prompt_tokens: int
    cached_tokens: int | None
    slot: int | None
    """The slot that holds it now; None when not reported."""
    prompt_ms: float | None = None
    """The server's time for the tokens that were not cached; None when not reported."""


class Backend(Protocol):
    """A server spoken to in its dialect."""

    @property
    def info(self) -> ServerInfo:
        """What was learnt by the last `identify`."""

    async def identify(self) -> ServerInfo:
        """Ask the server what it is. Raises BackendError."""

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """Send one chat request and report by `emit`. Never raises but CancelledError; never sends a second
        POST unless the server cannot have started on the first. Cancelled: the connection is closed before
        the CancelledError goes on, however often the task is cancelled."""

    async def alive(self) -> bool:
        """Whether the server answers a health check."""

    async def aclose(self) -> None: ...


@runtime_checkable
class PrefillAccess(Protocol):
    """A backend whose server reads a prompt ahead when it is asked for one token, and keeps what it read."""

    async def prefill_messages(self, turn: ChatTurn) -> Reported:
        """Read `turn`'s messages into the cache. Raises BackendError. Cancelled: the connection is closed first."""


@runtime_checkable
class PromptShower(Protocol):
    """A backend whose server can end an answer with the text of its prompt (`PromptShown`)."""

    def shows_prompt(self, turn: ChatTurn) -> bool:
        """Whether it is asked to for this turn."""


@runtime_checkable
class Replicated(Protocol):
    """A backend whose address several servers may share."""

    async def look_for_replicas(self, met: str = "") -> None:
        """Find out whether they do, by a handful of small requests: `info.replicas`. `met`: the process that answered
        just before it was described, as of `ServerState.process`."""


@runtime_checkable
class RoutesModels(Protocol):
    """A backend whose server may hand each request to the server of the model that it names."""

    async def on_model(self, model: str) -> Backend:
        """One that asks about this model, not the one in use; itself where there is only one. Raises BackendError
        where the server does not have it."""


@runtime_checkable
class CacheAccess(Protocol):
    """A backend that lets its cache be followed: it gives token ids and tells of its slots. Each call raises
    BackendError when the server does not do it after all; each is quick, and none changes what is cached but
    `prefill`."""

    async def prompt_text(self, turn: ChatTurn) -> str:
        """The prompt that the chat template makes of `turn`, as text; what comes behind `turn.known`, where that is
        its beginning."""

    async def tokens_of(self, text: str, known: KnownIds | None = None, then: str = "") -> Tokens:
        """The token ids of a rendered prompt, or of a prefix of one, which begins with those that are known. `then`:
        those of the same text with this behind it are asked for next; they come with the same request."""

    async def server_state(self) -> ServerState:
        """Who answers, and whether it sleeps."""

    async def slot_counts(self) -> list[SlotCount]:
        """What each slot holds. It wakes a sleeping server."""

    async def prefill(
        self, prompt: Tokens, progressed: Callable[[PromptProgress], None], slot: int | None = None
    ) -> PrefillResult:
        """Read `prompt` into the cache, and nothing more. Cancelled: the connection is closed first; what was
        read stays in the cache."""
