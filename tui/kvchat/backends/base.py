"""What the dialects over HTTP share: how a chat request is sent once, watched, read and ended.

The rule: no POST repeats by itself, except when nothing was sent (connection refused) or the server said that it
is still loading its model. Everything else ends with a sentence and waits for the person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from itertools import chain, repeat

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.decoder import Decoder, NotAnAnswerError, StreamDone
from kvchat.backends.dialect import BackendError, ChatTurn, Emit, Ended, ServerInfo, Trouble, Waiting
from kvchat.backends.endpoint import Endpoint
from kvchat.backends.payload import PayloadError, parsed
from kvchat.backends.sse import MIB, TooLargeError
from kvchat.backends.tasks import Clock, unskippable
from kvchat.backends.transport import Exchange, Head
from kvchat.backends.watchdog import MOST_FAILURES, Watchdog
from kvchat.prompt.message import State
from kvchat.prompt.request import chat_body

CHAT_PATH = "/v1/chat/completions"
MODELS_PATH = "/v1/models"
PROBE_S, GET_S = 5.0, 10.0
TAIL_S = 5.0
"""After `finish_reason`: how long the final figures are waited for."""
GET_BODY_LIMIT = 4 * MIB
GET_TRIES = 3
REFUSED_DELAYS_S = (0.2, 0.4, 0.8)

LOCAL_EXTRAS = frozenset({"session_id", "cache_prompt", "return_progress", "timings_per_token", "sse_ping_interval"})
"""Body fields that never go to a cloud host."""
NEVER_SENT = frozenset({"id_slot"})
"""Pinning a slot loses the cache of every other conversation."""
SESSION_HEADERS = ("X-Session-ID", "X-SMG-Routing-Key", "X-LiteLLM-Session-Id", "X-Session-Affinity")
"""The headers by which routers keep a conversation on the server that holds its cache."""

log = logging.getLogger(__name__)


def loading_delays() -> Iterator[float]:
    """Seconds between two looks at a server that loads its model."""
    return chain((1.0, 2.0, 3.0, 4.0), repeat(5.0))


class HttpBackend:
    """A server of the OpenAI chat family. A dialect says what it is, what goes around the messages, and
    where its health is seen."""

    kind = "openai"
    health_path = MODELS_PATH

    def __init__(self, endpoint: Endpoint, *, embedded: bool = False, clock: Clock | None = None) -> None:
        self._endpoint = endpoint
        self._clock = clock or Clock()
        self._info = ServerInfo(self.kind, str(endpoint.url), endpoint.place.host_class, embedded=embedded)

    @property
    def info(self) -> ServerInfo:
        return self._info

    @property
    def url(self) -> str:
        return str(self._endpoint.url)

    async def identify(self) -> ServerInfo:
        raise NotImplementedError

    def head(self, turn: ChatTurn) -> dict[str, object]:
        """The body's fields before the messages, in their fixed order."""
        raise NotImplementedError

    def body(self, turn: ChatTurn) -> bytes:
        head = self.head(turn)
        barred = NEVER_SENT | LOCAL_EXTRAS if self._endpoint.is_cloud else NEVER_SENT
        tail = {k: v for k, v in turn.parameters.given().items() if k not in head and k not in barred}
        return chat_body(head, turn.wires, tail)

    def headers(self, turn: ChatTurn) -> dict[str, str]:
        """The headers of a chat request, without the key."""
        headers = {"content-type": "application/json"}
        if not self._endpoint.is_cloud:
            headers |= dict.fromkeys(SESSION_HEADERS, turn.session_id)
        return headers

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        try:
            return await self._chat(turn, emit)
        except BackendError as error:
            state = State.INTERRUPTED if error.trouble in (Trouble.CUT, Trouble.DEAD) else State.ERROR
            return Ended(state, error.sentence, error)
        except Exception as error:
            log.exception("a chat request failed")
            failure = errors.unexpected(self.url, error)
            return Ended(State.ERROR, failure.sentence, failure)

    async def _chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        body = self._sendable(turn)
        started = self._clock.now()
        loading, refused = loading_delays(), iter(REFUSED_DELAYS_S)
        while True:
            try:
                return await self._attempt(body, self.headers(turn), emit, started)
            except errors.StillLoadingError:
                await self._until_loaded(emit, started, loading)
            except errors.NotConnectedError as error:
                delay = next(refused, None) if error.refused else None
                if delay is None:
                    raise
                await self._clock.sleep(delay)

    def _sendable(self, turn: ChatTurn) -> bytes:
        try:
            return self.body(turn)
        except (TypeError, ValueError, RecursionError):
            raise BackendError(Trouble.REFUSED, "A parameter of this conversation has a value that cannot be sent "
                                                "as JSON. Correct it, then try again.") from None

    async def _attempt(self, body: bytes, headers: Mapping[str, str], emit: Emit, started: float) -> Ended:
        """One POST. Raises BackendError when there is no answer to read."""
        watchdog = Watchdog(self.alive, emit, self._clock, started)
        exchange = Exchange(self._endpoint, "POST", CHAT_PATH, headers=headers, body=body)
        watch = asyncio.create_task(watchdog.run(lambda: exchange.fail(errors.dead(self.url))))
        try:
            async with exchange:
                head = await exchange.head()
                watchdog.heard()
                if head.status != 200:
                    raise await self._refusal(exchange, head)
                return await self._read(exchange, Decoder(head.content_type), watchdog, emit)
        finally:
            await unskippable(_ended(watch))

    async def _read(self, exchange: Exchange, decoder: Decoder, watchdog: Watchdog, emit: Emit) -> Ended:
        """Read the answer to its end; whatever breaks it off, what came before stays."""
        answer = ChatAnswer(self.url, emit, self._info.context_size)
        watchdog.phase = "prefill"
        try:
            async with asyncio.timeout(None) as limit:
                while (chunk := await exchange.chunk()) is not None:
                    moves = answer.moves
                    for item in decoder.feed(chunk):
                        if isinstance(item, StreamDone):
                            return answer.ended()
                        answer.take(item)
                    watchdog.heard(moved=answer.moves > moves)
                    watchdog.phase = "silent" if answer.begun else "prefill"
                    if answer.finished and limit.when() is None:
                        limit.reschedule(asyncio.get_running_loop().time() + TAIL_S)
                for item in decoder.end():
                    if not isinstance(item, StreamDone):
                        answer.take(item)
        except BackendError as error:
            return answer.ended(error)
        except NotAnAnswerError:
            return answer.ended(errors.not_json(self.url))
        except (PayloadError, TooLargeError) as error:
            what = f"an answer in which {error}" if isinstance(error, TooLargeError) else str(error)
            return answer.ended(errors.protocol(self.url, what))
        except TimeoutError:
            pass
        return answer.ended()

    async def _refusal(self, exchange: Exchange, head: Head) -> BackendError:
        body = (await exchange.start_of_body()).decode("utf-8", "replace")
        return self._error(head, body)

    def _error(self, head: Head, body: str) -> BackendError:
        if errors.is_loading(head.status, body):
            return errors.StillLoadingError(self.url)
        return errors.of_status(self.url, head.status, body, retry_after=head.headers.get("retry-after", ""),
                                has_key=self._endpoint.api_key is not None)

    async def _until_loaded(self, emit: Emit, started: float, delays: Iterator[float]) -> None:
        """Wait until the server's health check says that the model is there. Raises BackendError if it dies."""
        failures = 0
        for delay in delays:
            emit(Waiting("loading", self._clock.now() - started, failures == 0))
            await self._clock.sleep(delay)
            try:
                head, _ = await self._get_once(self.health_path, PROBE_S)
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
            await self._get_once(self.health_path, PROBE_S)
        except BackendError:
            return False
        return True

    async def aclose(self) -> None:
        """Nothing is kept open between requests."""

    async def get_json(self, path: str) -> tuple[Head, object]:
        """The JSON value at `path`. Raises BackendError: StillLoadingError, an error status, or no JSON."""
        head, body = await self.get(path)
        text = body.decode("utf-8", "replace")
        if head.status != 200:
            raise self._error(head, text)
        try:
            return head, parsed(text)
        except PayloadError:
            raise errors.not_json(self.url) from None

    async def get(self, path: str) -> tuple[Head, bytes]:
        """The answer to a GET, tried again when the connection broke. Raises BackendError."""
        for tries_left in range(GET_TRIES - 1, -1, -1):
            try:
                return await self._get_once(path, GET_S)
            except BackendError as error:
                if error.trouble is not Trouble.CUT or not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def _get_once(self, path: str, seconds: float) -> tuple[Head, bytes]:
        try:
            async with asyncio.timeout(seconds), Exchange(self._endpoint, "GET", path) as exchange:
                head = await exchange.head()
                return head, await exchange.start_of_body(GET_BODY_LIMIT)
        except TimeoutError:
            raise errors.no_answer(self.url, seconds) from None


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and task.exception() is not None:
        log.error("the watch over a request failed: %s", type(task.exception()).__name__)
