"""What the dialects over HTTP share: how a chat request is sent once, watched, read and ended.

Nothing that generates repeats by itself, except when nothing was sent (connection refused), the server said
that it is still loading its model or when it takes requests again (`Retry-After`), or it refused a field by name that
it can do without. Everything else ends with a sentence and waits for the user. What only asks is asked once more when
its connection breaks.

In the order in which they are called:

1. `identify`, `describe`: who the server is, with its models. `listing`, `get_json` and `ask` fetch.
2. `chat`: one request for an answer; `_chat` is the loop of what is sent again at once.
3. `prepare`, `body`: the turn as this server takes it, and its bytes: `head`, `wires`, `extras`.
4. `_attempt`: one POST, next to a `Watchdog`. `_refusal` makes the error of a status.
5. `_read`: the stream, into the reader that `answer` gave; it ends with `Answer.ended`.

A dialect overrides `describe`, `prepare`, `path`, `around`, `extras` and `answer`, as far as its server differs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import ClassVar, Protocol

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer import Alternatives, ChatAnswer
from kvchat.backends.dialect import (
    PLAIN,
    SESSION_HEADERS,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    Posted,
    Reported,
    ServerInfo,
    ServerOptions,
    Trouble,
    Waiting,
    failure,
)
from kvchat.backends.errors import unknown_field
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.http.payload import (
    Model,
    Models,
    PayloadError,
    Response,
    Responses,
    as_count,
    is_object,
    models_in,
    parsed,
)
from kvchat.backends.http.stream import MIB, Decoder, NotAnAnswerError, Payload, StreamDone
from kvchat.backends.http.transport import ASK_TRIES, Clock, Exchange, ResponseHead, ask, unskippable
from kvchat.backends.kinds import CHAT_PATH, KINDS, MODELS_PATH, OPENAI, At, ServerKind
from kvchat.prompt.images import sent, url_sha256
from kvchat.prompt.message import State
from kvchat.prompt.request import body_sha256, chat_body, system_in_user
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault

# -- the watch over a request while nothing comes: silence never ends one ---------------------------------------------


TICK_S = 10.0
SILENCE_S = 30.0
"""After the headers, this much silence makes the watch ask whether the server is alive."""
MOST_FAILURES = 3


class Watchdog:
    """Watches one request. `run` is a task of its own, next to the one that reads the answer."""

    def __init__(self, probe: Callable[[], Awaitable[bool]], emit: Emit, clock: Clock, started: float) -> None:
        self._probe = probe
        self._emit = emit
        self._clock = clock
        self._started = started
        self._heard = self._moved = clock.now()
        self._failures = 0
        self._alive: bool | None = None
        self.phase = "queued"
        """What is waited for, as in `Waiting`."""

    def heard(self, *, moved: bool = False) -> None:
        """Bytes came; `moved`: the answer went on by them."""
        self._heard = self._clock.now()
        self._failures = 0
        self._alive = True
        if moved:
            self._moved = self._heard

    async def run(self, give_up: Callable[[], None]) -> None:
        """Report by `Waiting` every 10 s in which the answer does not go on; call `give_up` for a dead server."""
        while True:
            await self._clock.sleep(TICK_S)
            if self._clock.now() - self._moved < TICK_S:
                continue
            if self.phase == "queued" or self._clock.now() - self._heard >= SILENCE_S:
                await self._check()
            if self._failures >= MOST_FAILURES:
                give_up()
                return
            self._emit(Waiting(self.phase, self._clock.now() - self._started, self._alive))

    async def _check(self) -> None:
        heard = self._heard
        alive = await self._probe()
        if heard == self._heard:
            self._alive = alive
            self._failures = 0 if alive else self._failures + 1


# -- a server of the OpenAI chat family -------------------------------------------------------------------------------


PROBE_S, GET_S = 5.0, 10.0
TAIL_S = 5.0
"""After `finish_reason`: how long the final figures are waited for."""
GET_BODY_LIMIT = 4 * MIB
REFUSED_DELAYS_S = (0.2, 0.4, 0.8)
BUSY_S = 60.0
"""How long, in all, a server is waited for that says when it takes requests again."""
NO_HEADERS: Mapping[str, str] = {}

LOCAL_EXTRAS = frozenset(
    {"session_id", "cache_prompt", "return_progress", "timings_per_token", "sse_ping_interval", "verbose"}
)
"""Body fields that never go to a cloud host."""
OPTIONAL_FIELDS = LOCAL_EXTRAS | {
    "prompt_cache_key",
    "litellm_session_id",
    "stream_options",
    "user",
    "keep_alive",
    "ttl",
    "reasoning_effort",
}
"""Fields that a request can do without: where a server refuses one by name, it goes without from then on. Not those
that make another prompt of the same messages (`chat_template_kwargs`)."""
NEVER_SENT = frozenset({"id_slot"})
"""Pinning a slot loses the cache of every other conversation."""

log = logging.getLogger(__name__)


def loading_delays() -> Iterator[float]:
    """Seconds between two looks at a server that loads its model."""
    return chain((1.0, 2.0, 3.0, 4.0), repeat(5.0))


class Answer(Protocol):
    """What reads an answer, part by part."""

    @property
    def moves(self) -> int:
        """How often the answer went on: deltas and prompt progress."""

    @property
    def finished(self) -> bool: ...
    @property
    def has_begun(self) -> bool:
        """Whether the first token has come."""

    def take(self, payload: Payload) -> None:
        """One value of the stream. Raises BackendError for a reported error."""

    def resume(self, content: str, thought: str = "") -> None:
        """Read on from a cut answer, which came before, with its thought. A server may begin with that once more."""

    def ended(self, error: BackendError | None = None) -> Ended:
        """How it ended, given the `error` that cut it off, if one did."""


Images = Callable[[str], bytes | None]
"""Gives the `data:` URL of the image of a name; None: it is gone."""


def no_images(sha256: str) -> bytes | None:
    """What is asked for no conversation has none."""
    return None


class HttpBackend:
    """A server of the OpenAI chat family, of any kind.

    Most of what kinds differ in is in their row (`kind`). A class says what no row can: what else a server tells
    (`describe`), what goes around the messages (`head`), the shape of a request or of an answer.
    """

    kind: ClassVar[ServerKind] = KINDS[OPENAI]
    chat_path: ClassVar[str] = CHAT_PATH
    answers: ClassVar[type[ChatAnswer]] = ChatAnswer
    """What reads an answer."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        embedded: bool = False,
        clock: Clock | None = None,
        options: ServerOptions = PLAIN,
        images: Images = no_images,
    ) -> None:
        """`images`: gives the images that messages name."""
        self._endpoint = endpoint
        self._images = images
        self._clock = clock or Clock()
        self._options = options
        self._info = ServerInfo(self.kind.name, str(endpoint.url), endpoint.place.host_class, embedded=embedded)
        self.heard: dict[str, Response] = {}
        """What it answered while it was recognised: `identify` does not ask for that again."""
        self.pages: Mapping[str, Mapping[str, object]] = {}
        """What it said of itself when it was last described, by path."""
        self._refused_fields: set[str] = set()
        """Fields that this server has refused by name: they are not sent again."""
        self._on_refused: Callable[[str], None] = lambda _: None

    @property
    def info(self) -> ServerInfo:
        return self._info

    @property
    def url(self) -> str:
        """The server as errors name it."""
        return self._endpoint.shown

    def leave_out(self, fields: Iterable[str], on_refused: Callable[[str], None]) -> None:
        """Do not send these fields, which this server refused in an earlier run; `on_refused` hears of further ones."""
        self._refused_fields.update(fields)
        self._on_refused = on_refused

    @property
    def goal(self) -> tuple[BaseUrl, ResolvedServer]:
        """Where its requests go: the URL, and the addresses it was resolved to."""
        return self._endpoint.url, self._endpoint.place

    async def identify(self) -> ServerInfo:
        """Ask the server what it is, at the address its name has now. Raises BackendError."""
        self._endpoint = await self._endpoint.located()
        if (place := self._endpoint.place.host_class) is not self._info.host_class:  # true whatever it says of itself
            local = self._info.takes_local_extras and not self._endpoint.is_cloud
            self._info = replace(self._info, host_class=place, takes_local_extras=local)
        try:
            described = await self.describe()
        except PayloadError as error:
            raise errors.protocol(self.url, error) from None
        finally:
            self.heard = {}
        self._info = replace(
            described,
            kind=self.kind.name,
            host_class=self._endpoint.place.host_class,
            takes_local_extras=described.takes_local_extras and not self._endpoint.is_cloud,
        )
        return self._info

    async def describe(self) -> ServerInfo:
        """`info` with what the server says of itself now: its models, and what is where its kind tells it. Raises
        BackendError, PayloadError."""
        kind, models = self.kind, await self.listed()
        places = (kind.current, kind.about, kind.build, *kind.window, kind.slots, kind.sees)
        paths = dict.fromkeys(place.path for place in places if place)
        pages = self.pages = {path: await self.object_at(path) for path in paths}

        def words_at(place: At | None) -> str:
            found = _fact(pages, place)
            return whole_characters(found) if isinstance(found, str) else ""

        window = min((size for place in kind.window if (size := as_count(_fact(pages, place)))), default=None)
        loaded = words_at(kind.current) or (models.all[0].id if kind.first_is_loaded and models.all else "")
        if kind.current or kind.first_is_loaded:
            models = Models(tuple(_of_program(model, loaded, window, kind) for model in models.all))
        if about := words_at(kind.about):
            models = Models(tuple(replace(model, about=about) for model in models.all))
        in_use = next((model for model in models.all if kind.keeps_model and model.id == self._info.model), None)
        chosen, usual = in_use or models.chosen, self._info.model if kind.keeps_model else ""
        window = (chosen.context_size if chosen else None) or window
        slots = 1 if kind.keeps_one else as_count(_fact(pages, kind.slots)) or None
        reported = {
            "context size": window is not None,
            "slots": slots is not None,
            "loaded models": any(model.loaded is not None for model in models.all),
        }
        sees = _fact(pages, kind.sees)
        return replace(
            self._info,
            model="" if loaded and loaded == kind.no_model else loaded or (chosen.id if chosen else usual),
            listing=models.all,
            context_size=window,
            slots=slots,
            build=words_at(kind.build),
            takes_local_extras=kind.takes_extras,
            figures=kind.figures,
            sees=sees if isinstance(sees, bool) else None,
            unknown=tuple(name for name in kind.unknown if not reported.get(name)),
        )

    def model_of(self, turn: ChatTurn) -> str:
        """The model that `turn` asks for."""
        return turn.model or self.info.model

    def window_of(self, turn: ChatTurn) -> int | None:
        """Tokens of the window of the model that `turn` asks for."""
        return self.info.window(self.model_of(turn))

    def head(self, turn: ChatTurn) -> dict[str, object]:
        """The body's fields before the messages, in their fixed order."""
        fields: dict[str, object] = {}
        if model := self.model_of(turn):
            fields["model"] = model
        fields |= dict.fromkeys(self._session_fields(), turn.session_id)
        fields["stream"] = True
        if self.info.takes_local_extras and not self._endpoint.is_cloud:
            fields |= self.extras(turn)
        fields["stream_options"] = {"include_usage": True}
        if self.kind.counts_on and self.info.takes_local_extras:
            fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        if turn.template_options and self.kind.template_field:
            fields[self.kind.template_field] = dict(turn.template_options)
        if turn.continues:
            fields |= self.continuing()
        if turn.answers > 1:
            fields["n"] = turn.answers
        fields |= self.tool_fields(turn)
        own, options = self.kind.option_fields, turn.template_options.items()
        return fields | {own[name]: value for name, value in options if name in own and value not in (None, "")}

    def tool_fields(self, turn: ChatTurn) -> dict[str, object]:
        """The conversation's tools; where none may be called, that is said, and they stand in the prompt all the
        same."""
        if not turn.tools:
            return {}
        tools: dict[str, object] = {"tools": json.loads(turn.tools)}
        return tools if turn.may_call else {**tools, "tool_choice": "none"}

    def continuing(self) -> Mapping[str, object]:
        """The fields that go on with a reply."""
        return self.kind.continue_fields

    def extras(self, turn: ChatTurn) -> Mapping[str, object]:
        """Fields for live figures that only a server recognised as local is sent."""
        return self.kind.extras

    def _session_fields(self) -> tuple[str, ...]:
        chosen = self._options.session_fields
        if chosen is not None:
            return chosen
        return () if self._endpoint.is_cloud else self.kind.session_fields

    def wires(self, turn: ChatTurn) -> Sequence[bytes]:
        """The messages as they go out: a pure function of the stored bytes and what is frozen with them. Raises
        BackendError where an image is gone."""
        wires = system_in_user(turn.wires) if turn.system_in_user else turn.wires
        return sent(wires, self._url_of)

    def _url_of(self, sha256: str) -> bytes:
        url = self._images(sha256)
        if url is None or url_sha256(url) != sha256:
            raise failure(Trouble.REFUSED, Fault.IMAGE_GONE)
        return url

    def body(self, turn: ChatTurn) -> bytes:
        head = {name: value for name, value in self.head(turn).items() if name not in self._refused_fields}
        barred = NEVER_SENT | LOCAL_EXTRAS if self._endpoint.is_cloud else NEVER_SENT
        barred = barred | self._refused_fields
        tail = {k: v for k, v in turn.parameters.given().items() if k not in head and k not in barred}
        return self.around(turn, head, tail)

    def around(self, turn: ChatTurn, head: Mapping[str, object], tail: Mapping[str, object]) -> bytes:
        """The body, with these fields before and behind the messages."""
        return chat_body(head, self.wires(turn), tail)

    def path(self, turn: ChatTurn) -> str:
        """Where the request goes."""
        return self.chat_path

    async def prepare(self, turn: ChatTurn, emit: Emit) -> ChatTurn:
        """`turn` as it is sent, with what has to be asked for first. Raises BackendError."""
        return turn

    def headers(self, turn: ChatTurn) -> dict[str, str]:
        """The headers of a chat request, without the key and those of the settings."""
        return {"content-type": "application/json", **self.session_headers(turn.session_id), **self.kind.headers}

    def session_headers(self, id: str) -> dict[str, str]:
        """The headers by which a router sends this session to the server that holds its cache."""
        chosen = self._options.session_headers
        names = chosen if chosen is not None else () if self._endpoint.is_cloud else SESSION_HEADERS
        return dict.fromkeys(names, id)

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        """A new reader for the answer to `turn`."""
        if turn.answers > 1:
            return Alternatives(self.url, emit, self.window_of(turn), turn.answers)
        return self.answers(self.url, emit, self.window_of(turn), timings=self.kind.timings)

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        try:
            return await self._chat(turn, emit)
        except BackendError as error:
            state = State.INTERRUPTED if error.trouble in (Trouble.CUT, Trouble.DEAD) else State.ERROR
            return Ended(state, error=error)
        except Exception as error:
            log.exception("a chat request failed")
            return Ended(State.ERROR, error=errors.unexpected(self.url, error))

    async def _chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        body, started, busy = b"", self._clock.now(), 0.0
        loading, refused = loading_delays(), iter(REFUSED_DELAYS_S)
        while True:
            try:
                if not body:
                    turn = await self.prepare(turn, emit)
                    body = self._sendable(turn)
                    emit(Posted(body_sha256(body)))
                return await self._attempt(turn, body, emit, started)
            except errors.UnknownFieldError as error:
                log.info("the server refuses the field %s: it is not sent again", error.field)
                self._refused_fields.add(error.field)
                self._on_refused(error.field)
                before, body = body, self._sendable(turn)
                if body == before:
                    raise
                emit(Posted(body_sha256(body)))
            except errors.StillLoadingError:
                await self._until_loaded(emit, started, loading, self.session_headers(turn.session_id))
            except errors.NotConnectedError as error:
                delay = next(refused, None) if error.refused else None
                if delay is None:
                    raise
                await self._clock.sleep(delay)
            except BackendError as error:
                if (pause := errors.pause_in(error)) is not None and busy + pause <= self._most_busy():
                    busy += pause
                    emit(Waiting("busy", self._clock.now() - started, True))
                    await self._clock.sleep(pause)
                    continue
                if error.fault is not Fault.NO_PATH or self._endpoint.is_bare is not None:
                    raise
                self._endpoint = replace(self._endpoint, is_bare=True)  # no list has shown where the interface is

    def _sendable(self, turn: ChatTurn) -> bytes:
        try:
            return self.body(turn)
        except (TypeError, ValueError, RecursionError):
            raise failure(Trouble.REFUSED, Fault.NOT_AS_JSON) from None

    async def _attempt(self, turn: ChatTurn, body: bytes, emit: Emit, started: float) -> Ended:
        """One POST. Raises BackendError when there is no answer to read."""
        session = self.session_headers(turn.session_id)
        watchdog = Watchdog(partial(self._is_alive, session), emit, self._clock, started)
        exchange = Exchange(self._endpoint, "POST", self.path(turn), headers=self.headers(turn), body=body)
        watch = asyncio.create_task(watchdog.run(lambda: exchange.fail(errors.dead(self.url))))
        try:
            async with exchange:
                head = await exchange.head()
                watchdog.heard()
                if not head.is_good:
                    raise self._refusal(head, await exchange.start_of_body(), body)
                answer = self.answer(turn, emit)
                if turn.continues:
                    begun = json.loads(turn.wires[-1])
                    thought = begun.get("reasoning_content")
                    if isinstance(content := begun.get("content"), str):
                        answer.resume(content, thought if isinstance(thought, str) else "")
                return await self._read(exchange, Decoder(head.content_type), watchdog, answer)
        finally:
            await unskippable(_ended(watch))

    async def _read(self, exchange: Exchange, decoder: Decoder, watchdog: Watchdog, answer: Answer) -> Ended:
        """Read the answer to its end; whatever breaks it off, what came before stays."""
        watchdog.phase = "prefill"
        try:
            async with asyncio.timeout(None) as limit:
                while (chunk := await exchange.chunk()) is not None:
                    moves = answer.moves
                    for item in decoder.feed(chunk):
                        if isinstance(item, StreamDone):
                            return answer.ended(None if answer.finished else errors.unfinished(self.url))
                        answer.take(item)
                    watchdog.heard(moved=answer.moves > moves)
                    watchdog.phase = "silent" if answer.has_begun else "prefill"
                    if answer.finished and (limit.when() is None or answer.moves > moves):
                        limit.reschedule(asyncio.get_running_loop().time() + TAIL_S)
                for item in decoder.end():
                    if not isinstance(item, StreamDone):
                        answer.take(item)
        except BackendError as error:
            return answer.ended(error)
        except NotAnAnswerError:
            return answer.ended(errors.not_json(self.url))
        except PayloadError as error:
            return answer.ended(errors.protocol(self.url, error))
        except TimeoutError:
            pass
        return answer.ended()

    def _refusal(self, head: ResponseHead, said: bytes, sent: bytes = b"{}") -> BackendError:
        """The error that an answer which said this to the request `sent` is."""
        body = said.decode("utf-8", "replace")
        if head.status in (400, 422) and (field := self._refused_field(body, json.loads(sent).keys())):
            return errors.UnknownFieldError(self.url, head.status, field)
        return self._error(head, body)

    def _refused_field(self, body: str, sent: Collection[str]) -> str:
        """Which of the fields that were sent an error refuses and a request can do without; empty: none."""
        name = unknown_field(body, sent)
        return name if name in OPTIONAL_FIELDS else ""

    def _error(self, head: ResponseHead, body: str) -> BackendError:
        if errors.is_loading(head.status, body):
            return errors.StillLoadingError(self.url)
        return errors.of_status(
            self.url, head.status, body, headers=head.headers, has_key=self._endpoint.api_key is not None
        )

    def _most_busy(self) -> float:
        limit = self._options.wait_seconds
        return BUSY_S if limit is None else min(limit, BUSY_S)

    async def _until_loaded(
        self, emit: Emit, started: float, delays: Iterator[float], headers: Mapping[str, str]
    ) -> None:
        """Wait until the server's health check says that the model is there. Raises BackendError if it dies, or takes
        longer than it may."""
        failures = 0
        for delay in delays:
            seconds, limit = self._clock.now() - started, self._options.wait_seconds
            if limit is not None and seconds >= limit:
                raise errors.StillLoadingError(self.url)
            emit(Waiting("loading", seconds, failures == 0))
            await self._clock.sleep(delay)
            try:
                head = await self._probe(headers)
            except BackendError:
                failures += 1
                if failures >= MOST_FAILURES:
                    raise errors.dead(self.url) from None
                continue
            failures = 0
            if head.status != 503:
                return

    async def alive(self) -> bool:
        try:
            await self.ask("GET", self.kind.health_path, PROBE_S)
        except BackendError:
            return False
        return True

    async def _is_alive(self, headers: Mapping[str, str]) -> bool:
        try:
            await self._probe(headers)
        except BackendError:
            return False
        return True

    async def _probe(self, headers: Mapping[str, str]) -> ResponseHead:
        """One health check of several: whoever makes it makes the next one too. Raises BackendError."""
        return (await self.ask("GET", self.kind.health_path, PROBE_S, headers=headers, tries=1))[0]

    async def aclose(self) -> None:
        """Nothing is kept open between requests."""

    async def asked(self, paths: Iterable[str]) -> Responses:
        """The answers to a GET of each path, one after the other; what breaks off is missing. Raises BackendError
        when the server cannot be reached at all."""
        found: dict[str, Response] = {}
        for path in paths:
            try:
                head, body = await self.get(path)
            except BackendError as error:
                if error.trouble in (Trouble.UNREACHABLE, Trouble.BAD_ADDRESS):
                    raise
                continue
            found[path] = Response(head.status, head.headers, body)
        return found

    async def get_json(self, path: str) -> tuple[ResponseHead, object]:
        """The JSON value at `path`. Raises BackendError: StillLoadingError, an error status, or no JSON."""
        head, body = await self.get(path)
        text = body.decode("utf-8", "replace")
        if head.status != 200:
            raise self._error(head, text)
        try:
            return head, parsed(text)
        except PayloadError:
            raise errors.not_json(self.url) from None

    async def object_at(self, path: str) -> Mapping[str, object]:
        """The JSON object at `path`; empty where that fails: it can be done without."""
        try:
            _, found = await self.get_json(path)
        except (BackendError, PayloadError):
            return {}
        return found if is_object(found) else {}

    async def listed(self) -> Models:
        """The common list of models. Raises BackendError, PayloadError."""
        return models_in(await self.listing())

    async def listing(self) -> object:
        """The common list of models as the server gives it, from where it is: under `/v1`, or at the base URL itself;
        an empty one where it is of no use and a model is named. Raises BackendError."""
        known = self._endpoint.is_bare
        failures: list[BackendError | PayloadError] = []
        for is_bare in (False, True) if known is None else (known,):
            self._endpoint = replace(self._endpoint, is_bare=is_bare)
            try:
                _, listing = await self.get_json(MODELS_PATH)
                models_in(listing)
                return listing
            except (BackendError, PayloadError) as error:
                failures.append(error)
                if not _is_no_list(error):
                    break
        self._endpoint = replace(self._endpoint, is_bare=known)
        if self._options.names_model and _is_no_list(failures[-1]):
            return []
        raise failures[0]

    async def get(self, path: str) -> tuple[ResponseHead, bytes]:
        """The answer to a GET. Raises BackendError."""
        if (heard := self.heard.pop(path, None)) is not None and heard.status:
            return ResponseHead(heard.status, heard.headers), heard.body
        return await self.ask("GET", path, GET_S)

    async def ask(
        self,
        method: str,
        path: str,
        seconds: float,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes | None = None,
        limit: int = GET_BODY_LIMIT,
        tries: int = ASK_TRIES,
    ) -> tuple[ResponseHead, bytes]:
        """The answer to a request that only asks, as of `transport.ask`, within `seconds`. Raises BackendError."""
        try:
            async with asyncio.timeout(seconds):
                return await ask(self._endpoint, method, path, headers=headers, body=body, limit=limit, tries=tries)
        except TimeoutError:
            raise errors.NoAnswerError(self.url, seconds) from None


def _fact(pages: Mapping[str, Mapping[str, object]], place: At | None) -> object:
    """What is at a place of these answers, by path; None where there is nothing."""
    found: object = pages[place.path] if place else None
    for key in place.keys if place else ():
        found = found.get(key) if is_object(found) else None
    return found


def _of_program(model: Model, loaded: str, window: int | None, kind: ServerKind) -> Model:
    """A model of a server that has this one loaded, with this window."""
    chats = model.chats and model.id != kind.no_model
    is_loaded = chats and model.id == loaded
    return replace(model, loaded=is_loaded, context_size=window if is_loaded else model.context_size, chats=chats)


def _is_no_list(error: BackendError | PayloadError) -> bool:
    """Whether a server answered, and not with a list of models or a question for a key."""
    if isinstance(error, PayloadError) or error.fault is Fault.NOT_JSON:
        return True
    return error.status not in (None, 401, 502, 503, 504)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is not None:
        log.error("the watch over a request failed: %s", type(task.exception()).__name__)


# -- a warm-up by the chat request itself, with an answer of one token ------------------------------------------------


_LENGTHS = frozenset({"max_tokens", "max_completion_tokens", "min_tokens", "n_predict"})
"""Fields that say how long an answer is; servers differ in which one they obey."""


class OneTokenWarmUp(HttpBackend):
    """A backend that warms up by asking for one token: vLLM and mlx-lm refuse a request for none, and llama-cpp-python
    answers it at full length."""

    async def prefill_messages(self, turn: ChatTurn) -> Reported:
        """Prefill `turn`'s messages; the figures are the server's. Raises BackendError.

        It streams as a chat does, because a server notices that a stream has lost its reader. Cancelled: the
        connection is closed before the CancelledError goes on.
        """
        if self._endpoint.is_cloud:
            raise failure(Trouble.REFUSED, Fault.PAID_FOR, url=self.url)
        ended = await self.chat(one_token(turn), lambda event: None)
        if ended.error is not None:
            raise ended.error
        return ended.reported


def one_token(turn: ChatTurn) -> ChatTurn:
    """`turn`, to be answered with one token."""
    extra = {name: value for name, value in turn.parameters.extra.items() if name not in _LENGTHS}
    return replace(turn, parameters=replace(turn.parameters, max_tokens=1, extra=extra))
