"""llama.cpp's llama-server: identified by its `Server` header. It reports progress and cache figures, and lets its
cache be followed: the prompt a template makes, its token ids, what the slots hold, warm-up.

The calls that follow the cache run in parallel to the chat, never before it. A server that does not know one of
them works as before: the call raises BackendError.

It also runs as a router: one process that loads several models and hands each request to the model it names. There,
nothing but a chat request loads a model.

In the order in which they are called:

1. `identify`, `describe`: who it is; `_learn` keeps its template, special tokens and state, `_of_router` the models.
2. `server_state`, `slot_counts`: which process answers, and what its slots hold.
3. `prompt_text`, `tokens_of`: the prompt of a turn and its token ids, next to the request.
4. `prepare`, `around`: a turn that goes out as token ids; `answer` reads it by `backends.completion`.
5. `prefill`: a prompt that waits for no answer. `slot_file`, `erase_slot`, `probe_slot`: saved states.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer_figures import progress_of
from kvchat.backends.base import PROBE_S, Answer, HttpBackend
from kvchat.backends.calls import FINAL, CallShape, shape_in
from kvchat.backends.completion import COMPLETION_PATH, CompletionAnswer, completion_fields, wants_json
from kvchat.backends.dialect import (
    MOST_TOKENS,
    NOT_SUPPORTED,
    PRESERVED,
    Backend,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    HostClass,
    PrefillResult,
    Prompted,
    Reported,
    ServerInfo,
    SlotFile,
    TokenPrompt,
    Trouble,
    failure,
)
from kvchat.backends.http.payload import (
    Model,
    Models,
    PayloadError,
    as_object,
    count_at,
    figure_at,
    figures_at,
    flag_at,
    is_object,
    list_at,
    models_in,
    object_at,
    parsed,
    text_at,
)
from kvchat.backends.http.stream import MIB, Decoder, StreamDone
from kvchat.backends.http.transport import Exchange, ResponseHead
from kvchat.backends.kinds import KINDS, LLAMACPP, MODELS_PATH, PROPS_PATH, Figures
from kvchat.backends.template import facts_of_text
from kvchat.backends.tokens import PieceTokens
from kvchat.cache import ServerState, SlotCount, StateProbe, Tokens
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.message import Message, Role
from kvchat.prompt.request import chat_body
from kvchat.prompt.thoughts import Begins, ThoughtTags, tags_in
from kvchat.prompt.token_ids import KnownIds
from kvchat.prompt.tools import ToolCall, calls_in
from kvchat.prompt.wire import canonical, whole_characters
from kvchat.text.faults import Fault, Unread

# -- the answer to saving or restoring a slot -------------------------------------------------------------------------


NO_ANSWER = SlotFile()


def slot_file_of(status: int, body: bytes) -> SlotFile:
    """The answer with this status and body; figures that are missing or no numbers count as 0."""
    if status != 200:
        return SlotFile(status)
    try:
        said = as_object(parsed(body.decode("utf-8", "replace")), "a slot")
        tokens = count_at(said, "n_saved") or count_at(said, "n_restored") or 0
        size = count_at(said, "n_written") or count_at(said, "n_read") or 0
    except PayloadError:
        return SlotFile(status)
    return SlotFile(status, tokens, size)


def probe_of(answer: bytes, extended: bool) -> StateProbe | None:
    """What the answer to a request for one token and its probabilities says; None where it has none. A probability that
    is no number is NaN. Raises PayloadError."""
    said = _object_in(answer)
    first = next((one for one in list_at(said, "completion_probabilities") if is_object(one)), None)
    tops = [one for one in list_at(first, "top_logprobs") if is_object(one)] if first is not None else []
    values = tuple(
        (count_at(one, "id") or 0, float(value) if isinstance(value := one.get("logprob"), int | float) else math.nan)
        for one in tops
    )
    cached = count_at(figures_at(said, "timings"), "cache_n")
    return StateProbe(values, cached, extended) if values and cached is not None else None


# -- following its cache ----------------------------------------------------------------------------------------------


CALL_S = 20.0
TEXT_LIMIT = 32 * MIB
THREADED_TOKENS = 8192
THREADED_BYTES = 64 * 1024
"""An answer with more tokens or bytes is read in a thread, so that the screen does not wait."""
JSON = {"content-type": "application/json"}
QUESTIONS = ("Who?", "And now?")
"""Two that differ from the first letter on: where they do, the prompt to read ends."""
ASKED, THOUGHT, SAID = "U_USER_MSG", "T_THOUGHT_MSG", "A_ASST_MSG"
"""Invented texts, that show what a template puts around them."""
T = TypeVar("T")


def _object_in(answer: bytes) -> Mapping[str, object]:
    return as_object(parsed(answer.decode("utf-8", "replace")), "an answer")


def specials_of(props: Mapping[str, object]) -> tuple[str, ...]:
    """The texts of the special tokens that `/props` names."""
    try:
        found = (text_at(props, "bos_token"), text_at(props, "eos_token"))
    except PayloadError:
        return ()
    return tuple(dict.fromkeys(text for text in found if text))


def _ids(values: Sequence[object]) -> list[int]:
    ids = [value for value in values if isinstance(value, int) and 0 <= value < 2**31 and value is not True]
    if len(ids) != len(values):
        raise PayloadError(Unread.NO_TOKENS)
    return ids


def _pieces(values: Sequence[object]) -> list[tuple[int, str]]:
    """Tokens with their texts; the text of one that is only a part of a character is left empty, and so are all where
    an old server gives none."""
    found = [{"id": value} if isinstance(value, int) else as_object(value, "a token") for value in values]
    texts = (token.get("piece") for token in found)
    return list(
        zip(
            _ids([token.get("id") for token in found]),
            (text if isinstance(text, str) else "" for text in texts),
            strict=True,
        )
    )


# -- the dialect ------------------------------------------------------------------------------------------------------


SLOTS_PATH = "/slots"
PING_S = 10
ROUTER = "router"
MOST_SLOTS = 256
PROCESS = "media_marker"
"""The property that is drawn by lot when a server starts."""
ECHOING_SINCE = 9713
"""The first build in which a continued answer repeats the cut text unless it is asked not to."""
STATE_S = 1.0
"""How long who has just answered is taken for who answers."""
PROCESS_LOOKS = 10
"""Of two servers behind a router both are met with a chance of 1,023 in 1,024."""
LOOPBACK_LOOKS = 1
"""The same on this machine, where a server is nearly always alone, and the looks before later turns meet another one,
too."""
LOOK_S = 2.0
"""After the first answer of a model: how long it may take to ask what that model has."""


class LlamaCppBackend(HttpBackend):
    kind = KINDS[LLAMACPP]
    _pieces: PieceTokens | None = None
    _tags: Mapping[str, ThoughtTags] = {}
    """Around thoughts, by model and template options."""
    _specials: Sequence[str] = ()
    """The texts of the model's special tokens that are known."""
    _template: str | None = None
    """The text of the model's chat template; None: it was not asked for yet."""
    _state: ServerState | None = None
    """Who answered when the server was described: the next `server_state` returns it, once and within STATE_S."""
    _state_until = 0.0
    _process = ""
    """The process that answered when the server was described."""
    _routed: Model | None = None
    """The model in use on a router; None on a server with one model."""

    async def describe(self) -> ServerInfo:
        self._pieces = None  # another model has other ids
        self._tags = {}
        self._routed = None
        _, found = await self.get_json(PROPS_PATH)
        props = as_object(found, "properties")
        models = sole_model_in(props) if self._options.is_brief else Models(())
        if not models.all:
            _, listing = await self.get_json(MODELS_PATH)
            models = models_in(listing)
        if props.get("role") == ROUTER:
            return await self._of_router(props, models)
        self._learn(props)
        return described_by(self._info, props, models)

    def _learn(self, props: Mapping[str, object]) -> None:
        """Keep the special tokens, the template and the state that the properties of the model's server hold."""
        self._specials = specials_of(props)
        template = props.get("chat_template")
        self._template = template if isinstance(template, str) else ""
        try:
            self._state, self._state_until = state_in(props), self._clock.now() + STATE_S
            self._process = self._state.process
        except PayloadError:
            self._state, self._process = None, ""

    async def template_text(self) -> str:
        """As of `TemplateText`."""
        if self._template is None:
            _, found = await self.get_json(PROPS_PATH)
            self._learn(self._checked(lambda: as_object(found, "properties")))
        return self._template or ""

    async def identify(self) -> ServerInfo:
        self._info = replace(self._info, replicas=False, unknown=())
        return await super().identify()

    async def look_for_replicas(self, met: str = "") -> None:
        """As of `Replicated`. A router would not send as many sessions as are asked for here all to the same one."""
        if self._info.embedded or self._endpoint.is_cloud or self._routed is not None:
            return
        is_here = self._endpoint.place.host_class is HostClass.LOOPBACK
        looks = LOOPBACK_LOOKS if is_here else PROCESS_LOOKS
        found = await asyncio.gather(*(self._process_of(uuid4().hex) for _ in range(looks)))
        if len({process for process in (met, self._process, *found) if process}) > 1:
            unknown = (*self._info.unknown, "slots")
            self._info = replace(self._info, replicas=True, slots=None, unknown=unknown)

    async def _process_of(self, session: str) -> str | None:
        """What tells the process that answers to this session from all others; None where it does not say."""
        try:
            _, body = await self.ask("GET", PROPS_PATH, PROBE_S, headers=self.session_headers(session))
            return text_at(as_object(parsed(body.decode("utf-8", "replace")), "properties"), PROCESS)
        except (BackendError, PayloadError):
            return None

    async def _of_router(self, props: Mapping[str, object], models: Models) -> ServerInfo:
        """What a router says, and what the server of the model in use says if that is loaded."""
        chosen = next((model for model in models.all if model.id == self._info.model), None) or models.chosen
        own: Mapping[str, object] = {"build_info": props.get("build_info")}
        self._routed = chosen
        if chosen is not None and chosen.loaded:
            _, found = await self.get_json(self._of_model(PROPS_PATH))
            own = as_object(found, "properties")
            self._learn(own)
        info = described_by(replace(self._info, model=""), own, Models((chosen,) if chosen else ()))
        most = count_at(props, "max_instances")
        unknown = (("context size", info.context_size), ("slots", info.slots))
        return replace(
            info,
            listing=models.all,
            unknown=tuple(name for name, value in unknown if value is None),
            unloads=f"when another model is asked for and {most} {'is' if most == 1 else 'are'} loaded" if most else "",
            room_for_models=most or None,
        )

    async def on_model(self, model: str) -> Backend:
        """As of `RoutesModels`."""
        if self._routed is None or model in ("", self._routed.id):
            return self
        if self._info.known(model) is None:
            raise failure(
                Trouble.REFUSED,
                Fault.NO_SUCH_MODEL,
                url=self.url,
                model=errors.quoted(model),
                models=errors.quoted(", ".join(self._info.models)),
            )
        other = type(self)(self._endpoint, clock=self._clock, options=self._options, images=self._images)
        other._info = replace(other._info, model=model)
        await other.identify()
        return other

    async def get_json(self, path: str) -> tuple[ResponseHead, object]:
        return await super().get_json(self._of_model(path) if path in (PROPS_PATH, SLOTS_PATH) else path)

    def _of_model(self, path: str) -> str:
        """Where the model's own server answers, if it is loaded."""
        if self._routed is None:
            return path
        return f"{path}?model={quote(self._routed.id, safe='')}{self._only_if_loaded('&')}"

    def _only_if_loaded(self, mark: str) -> str:
        return f"{mark}autoload=false" if self._routed is not None else ""

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """As of `Backend`; on a router the first answer of a model also loads it, so that it can then be asked."""
        ended = await super().chat(turn, emit)
        routed = self._routed
        if routed is not None and not routed.loaded and ended.error is None and turn.model in ("", routed.id):
            await look_again(self)
        return ended

    async def saves_slots(self) -> bool | None:
        """As of `SlotFiles`: by what it says to a file without a name."""
        if self._routed is not None or self._info.replicas:
            return None
        try:
            head, _ = await self.ask(
                "POST", "/slots/0?action=save", PROBE_S, headers=JSON, body=canonical({"filename": ""})
            )
        except BackendError:
            return None
        return {400: True, NOT_SUPPORTED: False}.get(head.status)

    async def slot_file(self, action: Literal["save", "restore"], slot: int, file: str, seconds: float) -> SlotFile:
        """As of `SlotFiles`. Builds before b11549 may end over a truncated file: check a file before."""
        try:
            async with (
                asyncio.timeout(seconds),
                Exchange(
                    self._endpoint,
                    "POST",
                    f"/slots/{slot}?action={action}",
                    headers={"content-type": "application/json"},
                    body=canonical({"filename": file}),
                ) as exchange,
            ):
                head = await exchange.head()
                return slot_file_of(head.status, await exchange.start_of_body())
        except (TimeoutError, BackendError):
            return NO_ANSWER

    async def erase_slot(self, slot: int, seconds: float) -> bool:
        """As of `SlotFiles`."""
        try:
            head, _ = await self.ask("POST", f"/slots/{slot}?action=erase", seconds, headers=JSON, body=b"{}")
        except BackendError:
            return False
        return head.status == 200

    async def probe_slot(
        self, slot: int, state: Tokens, seconds: float, *, extended: bool = False
    ) -> StateProbe | None:
        """As of `SlotFiles`. One token is predicted, which the slot does not keep."""
        prompt = state + state.first(1) if extended else state
        body = canonical(
            {
                "prompt": list(prompt),
                "n_predict": 1,
                "n_probs": StateProbe.TOPS,
                "temperature": 0,
                "cache_prompt": True,
                "id_slot": slot,
            }
        )
        head, answer = await self.ask("POST", "/completion", seconds, headers=JSON, body=body, limit=TEXT_LIMIT)
        try:
            return probe_of(answer, extended) if head.status == 200 else None
        except PayloadError:
            return None

    continue_fields: ClassVar[Mapping[str, object]] = {"add_generation_prompt": False, "continue_final_message": True}

    def continuing(self) -> Mapping[str, object]:
        """None for a build that does not know them: it continues by itself, and repeats nothing. Without a number it is
        taken for a new one."""
        number = re.match(r"b?(\d+)", self._info.build)
        return {} if number is not None and 0 < int(number[1]) < ECHOING_SINCE else self.continue_fields

    def extras(self, turn: ChatTurn) -> dict[str, object]:
        return live_fields(turn) | ({"verbose": True} if self.shows_prompt(turn) else {})

    def shows_prompt(self, turn: ChatTurn) -> bool:
        """As of `PromptShower`: on this machine, where the text costs nothing on its way."""
        return self._endpoint.place.host_class is HostClass.LOOPBACK and turn.known is None and not turn.has_images

    # -- a prompt of token ids

    async def prepare(self, turn: ChatTurn, emit: Emit) -> ChatTurn:
        """As of `HttpBackend`: with the prompt's ids, where it goes as such."""
        if turn.known is None:
            return turn
        text = await self.prompt_text(turn)
        shape = self._call_shape(turn)
        prompt = TokenPrompt(
            await self.tokens_of(text, turn.known),
            await self._begins(turn, text),
            await self._thought_tags(turn),
            calls=shape if turn.may_call or shape is CallShape.CHANNELS else None,
            tools=turn.tools,
        )
        emit(Prompted(turn.known, prompt.tokens))
        return replace(turn, prompt=prompt)

    def path(self, turn: ChatTurn) -> str:
        return super().path(turn) if turn.prompt is None else COMPLETION_PATH

    def around(self, turn: ChatTurn, head: Mapping[str, object], tail: Mapping[str, object]) -> bytes:
        if turn.prompt is None:
            return super().around(turn, head, tail)
        return canonical(completion_fields(head, turn.prompt, tail))

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        if turn.prompt is None:
            return super().answer(turn, emit)
        return CompletionAnswer(self.url, emit, self._info.window(turn.model), turn.prompt)

    def _call_shape(self, turn: ChatTurn) -> CallShape | None:
        """How the model that answers writes calls; None: not as is read here."""
        return self._info.call_shape if self._info.reads_calls(turn.model) else None

    async def _begins(self, turn: ChatTurn, text: str) -> Begins:
        """Where the answer to a prompt that ends with `text` begins."""
        if turn.continues:
            message = as_object(parsed(turn.wires[-1].decode()), "a message")
            return "thought" if not message.get("content") and message.get("reasoning_content") else "answer"
        if text.endswith(FINAL):
            return "answer"
        return "thought" if (await self._thought_tags(turn)).leaves_open(text) else "start"

    async def _thought_tags(self, turn: ChatTurn) -> ThoughtTags:
        """What the template puts around thoughts, found in a prompt of invented texts. Raises BackendError."""
        key = turn.model + canonical(dict(turn.template_options)).decode()
        if key not in self._tags:
            wires = (Message(Role.USER, ASKED).wire(), Message(Role.ASSISTANT, SAID, reasoning=THOUGHT).wire())
            try:
                text = await self._rendered(replace(turn, wires=wires))
            except BackendError as error:
                if error.status is None or error.trouble is Trouble.LOADING:
                    raise
                text = ""  # the template takes no such messages
            self._tags = {**self._tags, key: tags_in(text, THOUGHT, SAID)}
        return self._tags[key]

    async def _behind(self, turn: ChatTurn, known: int) -> str:
        """What the template makes of `turn` behind its first `known` messages, of which the last is an answer. Raises
        BackendError."""
        if known == 0:
            return await self._rendered(turn)
        if known == len(turn.wires):
            return ""
        mark = SAID
        while any(mark.encode() in wire for wire in turn.wires):
            mark += SAID
        calls = calls_in(turn.wires[known - 1])
        if calls:
            calls = (*calls[:-1], ToolCall(calls[-1].id, calls[-1].name, canonical({"at": mark}).decode()))
        marked = Message(Role.ASSISTANT, "" if calls else mark, calls=calls).wire()
        text = await self._rendered(replace(turn, wires=(*turn.wires[: known - 1], marked, *turn.wires[known:])))
        _, found, behind = text.partition(mark)
        shape = self._call_shape(turn) if calls and found else None
        rest = shape.behind(behind) if shape is not None else behind if found else None
        if rest is None:
            raise failure(
                Trouble.REFUSED,
                Fault.TOLD,
                sentence="The model's template does not show where an answer "
                "ends, so the prompt cannot go as token ids: set cache.token_ids to false.",
            )
        return rest

    async def prompt_text(self, turn: ChatTurn) -> str:
        if turn.known is None:
            return await self._rendered(turn)
        text = await self._behind(turn, turn.known.messages)
        if turn.continues or not wants_json(turn.parameters):
            return text
        if self._call_shape(turn) is CallShape.CHANNELS:
            return text + FINAL
        tags = await self._thought_tags(turn)
        return text + tags.closing if tags.leaves_open(text) else text

    async def _rendered(self, turn: ChatTurn) -> str:
        """All of the prompt as the template makes it."""
        head: dict[str, object] = {"model": turn.model} if turn.model else {}
        if turn.template_options:
            head["chat_template_kwargs"] = dict(turn.template_options)
        head |= self.tool_fields(turn)
        if turn.continues and turn.wires[-1].startswith(b'{"role":"assistant"'):
            head |= self.continuing()
        found = await self.post_json("/apply-template", chat_body(head, self.wires(turn), {}))
        return self._checked(lambda: text_at(found, "prompt") or "")

    async def tokens_of(self, text: str, known: KnownIds | None = None, then: str = "") -> Tokens:
        if self._pieces is None:
            self._pieces = PieceTokens(self._tokenize, self._with_pieces, self._specials)
        if known is None or not known.messages:
            return await self._pieces.tokens(text, then=then)
        return known.tokens + await self._pieces.tokens(text, is_start=False)

    async def _tokenize(self, text: str, is_start: bool) -> list[int]:
        values = await self._tokenized({"content": text, "add_special": is_start, "parse_special": True})
        return await self._read_from(values, _ids)

    async def _with_pieces(self, text: str, is_start: bool) -> list[tuple[int, str]]:
        values = await self._tokenized(
            {"content": text, "add_special": is_start, "parse_special": True, "with_pieces": True}
        )
        return await self._read_from(values, _pieces)

    async def ids_of(self, text: str, *, specials: bool) -> list[int]:
        """As of `SpecialTokenAccess`."""
        values = await self._tokenized({"content": text, "add_special": False, "parse_special": specials})
        return await self._read_from(values, _ids)

    async def pieces_of(self, text: str) -> list[tuple[int, str]]:
        """As of `SpecialTokenAccess`."""
        return await self._with_pieces(text, False)

    async def _tokenized(self, fields: Mapping[str, object]) -> Sequence[object]:
        found = await self.post_json("/tokenize", canonical(fields))
        return self._checked(lambda: list_at(found, "tokens"))

    async def _read_from(self, values: Sequence[object], of: Callable[[Sequence[object]], T]) -> T:
        """What is made of a server's tokens; of many in a thread. Raises BackendError."""
        try:
            return await asyncio.to_thread(of, values) if len(values) > THREADED_TOKENS else of(values)
        except PayloadError as error:
            raise errors.protocol(self.url, error) from None

    async def server_state(self) -> ServerState:
        state, until = self._state, self._state_until
        self._state = None
        if state is not None and self._clock.now() < until:
            return state
        try:
            _, found = await self.get_json(PROPS_PATH)
        except BackendError as error:
            if self._routed is None or error.status != 400:
                raise
            return ServerState(asleep=True)  # the router has unloaded it since
        return self._checked(lambda: state_in(as_object(found, "properties")))

    async def slot_counts(self) -> list[SlotCount]:
        _, found = await self.get_json(SLOTS_PATH)
        if not isinstance(found, list):
            raise errors.protocol(self.url, Unread.NO_LIST.format(what="slots"))
        counts = [
            SlotCount(
                count_at(slot, "n_prompt_tokens") or 0, count_at(slot, "id_task"), slot.get("is_processing") is True
            )
            for slot in found
            if is_object(slot)
        ]
        if any(count.tokens > MOST_TOKENS for count in counts):
            raise errors.protocol(self.url, Unread.TOO_MANY_TOKENS)
        return counts

    async def prefill(
        self, prompt: Tokens, progressed: Callable[[PromptProgress], None], slot: int | None = None, session: str = ""
    ) -> PrefillResult:
        """As of `CacheAccess`. `session`: whose prompt it is, for a router."""
        headers = JSON | (self.session_headers(session) if session else {})
        fields: dict[str, object] = {
            "prompt": list(prompt),
            "n_predict": 0,
            "cache_prompt": True,
            "stream": True,
            "return_progress": True,
            "temperature": 0,
        }
        if self._routed is not None:
            fields["model"] = self._routed.id
        if slot is not None:
            fields["id_slot"] = slot
        last: PromptProgress | None = None
        final: Mapping[str, object] = {}
        async with Exchange(self._endpoint, "POST", "/completion", headers=headers, body=canonical(fields)) as exchange:
            head = await exchange.head()
            if head.status != 200:
                raise self._refusal(head, await exchange.start_of_body())
            decoder = Decoder(head.content_type)
            try:
                while (chunk := await exchange.chunk()) is not None:
                    for item in decoder.feed(chunk):
                        if isinstance(item, StreamDone):
                            continue
                        part = as_object(item.value, "a part of an answer")
                        if (error := errors.error_in(part)) is not None:
                            raise errors.of_stream(self.url, *error)
                        if (progress := progress_of(figures_at(part, "prompt_progress"))) is not None:
                            last = progress
                            progressed(progress)
                        if part.get("stop") is True:
                            final = part
            except PayloadError as error:
                raise errors.protocol(self.url, error) from None
        if not final:
            raise errors.cut(self.url, before_answer=True)
        timings = figures_at(final, "timings")
        cached = count_at(timings, "cache_n")
        if cached is None and last is not None:
            cached = last.cached
        reported = Reported(len(prompt), cached, prompt_ms=figure_at(timings, "prompt_ms"))
        return PrefillResult(len(prompt), reported.cached_tokens, count_at(final, "id_slot"), reported.prompt_ms)

    async def prefill_messages(self, turn: ChatTurn) -> Reported:
        """As of `PrefillAccess`, for a server that cannot be followed: what every prompt begins with that goes on with
        a question is read, and nothing is answered. Not with images, whose tokens only a chat request gives."""
        if turn.has_images:
            raise failure(Trouble.REFUSED, Fault.TOLD, sentence="A prompt with images cannot be prefilled ahead here.")
        asked = [
            await self.prompt_text(replace(turn, wires=(*turn.wires, Message(Role.USER, question).wire())))
            for question in QUESTIONS
        ]
        one, other = [await self.tokens_of(text) for text in asked]
        prefix = one.first(max(0, one.common(other) - 1))  # the last one may merge with what is typed
        found = await self.prefill(prefix, lambda _: None, session=turn.session_id)
        return Reported(found.prompt_tokens, found.cached_tokens, prompt_ms=found.prompt_ms)

    async def post_json(self, path: str, body: bytes) -> Mapping[str, object]:
        """The JSON object that a quick POST answers with; for a router the body names the model in use. Raises
        BackendError."""
        if self._routed is not None and not body.startswith(b'{"model":'):
            body = b'{"model":' + canonical(self._routed.id) + b"," + body[1:]
        path += self._only_if_loaded("?")
        head, answer = await self.ask("POST", path, CALL_S, headers=JSON, body=body, limit=TEXT_LIMIT)
        if head.status != 200:
            raise self._refusal(head, answer)
        read = partial(_object_in, answer)
        try:
            return await asyncio.to_thread(read) if len(answer) > THREADED_BYTES else read()
        except PayloadError as error:
            raise errors.protocol(self.url, error) from None

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except PayloadError as error:
            raise errors.protocol(self.url, error) from None


def state_in(props: Mapping[str, object]) -> ServerState:
    """What the properties say of who answers. Raises PayloadError."""
    return ServerState(
        text_at(props, "model_alias") or text_at(props, "model_path") or "",
        text_at(props, "build_info") or "",
        text_at(props, PROCESS) or "",
        props.get("is_sleeping") is True,
        text_at(props, "model_path") or "",
    )


def sole_model_in(props: Mapping[str, object]) -> Models:
    """The one model of the server, as its properties name it; none where that is a router, or an old build whose list
    may have another name for it. Raises PayloadError."""
    name = text_at(props, "model_alias")
    if not name or PROCESS not in props or props.get("role") == ROUTER:
        return Models(())
    return Models((Model(whole_characters(name), context_size=_window_in(props)),))


def _window_in(props: Mapping[str, object]) -> int | None:
    return count_at(object_at(props, "default_generation_settings"), "n_ctx")


def described_by(info: ServerInfo, props: Mapping[str, object], models: Models) -> ServerInfo:
    """`info` with what a llama-server says of itself and of its model. Raises PayloadError."""
    chosen = models.chosen
    name = chosen.id if chosen else text_at(props, "model_alias") or text_at(props, "model_path") or ""
    return replace(
        info,
        model=whole_characters(name),
        listing=models.all,
        context_size=_window_in(props) or (chosen.context_size if chosen else None),
        slots=min(count_at(props, "total_slots") or 0, MOST_SLOTS) or None,
        build=whole_characters(text_at(props, "build_info") or ""),
        takes_local_extras=True,
        reasoning_option=PRESERVED
        if object_at(props, "chat_template_caps").get("supports_preserve_reasoning") is True
        else None,
        template=facts_of_text(template) if isinstance(template := props.get("chat_template"), str) else None,
        figures=Figures.BEFORE,
        sees=flag_at(figures_at(props, "modalities"), "vision"),
        takes_tools=flag_at(figures_at(props, "chat_template_caps"), "supports_tools"),
        call_shape=shape_in(template) if isinstance(template, str) else None,
    )


def live_fields(turn: ChatTurn) -> dict[str, object]:
    """The fields that make a llama-server report progress and cache figures while it works."""
    fields: dict[str, object] = {
        "cache_prompt": True,
        "return_progress": True,
        "timings_per_token": True,
        "sse_ping_interval": PING_S,
    }
    if turn.slot is not None:
        fields["id_slot"] = turn.slot
    return fields


async def look_again(backend: HttpBackend) -> None:
    """Identify a server again, where that is quick: an answer that has come does not wait for it."""
    try:
        async with asyncio.timeout(LOOK_S):
            await backend.identify()
    except (BackendError, TimeoutError):
        pass
