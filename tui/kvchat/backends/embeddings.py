"""Vectors of texts from a server with /v1/embeddings.

The server that a chat uses is never asked, because an embedding evicts the chat's cache there; the exception are the
kinds that load an embedding model next to the chat's. A query never waits long: the caller then searches by words
alone.

The rules for keys, addresses and redirects are those of every server: see `endpoint` and `transport`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from kvchat.backends import errors
from kvchat.backends.dialect import BackendError, HostClass, Trouble, failure
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, Resolver, locate, lookup, open_endpoint, parse_base_url
from kvchat.backends.http.payload import PayloadError, as_object, count_at, list_at, parsed
from kvchat.backends.http.stream import MIB
from kvchat.backends.http.transport import Clock, ask
from kvchat.backends.kinds import kind_of
from kvchat.prompt.wire import canonical, whole_characters
from kvchat.sanitize import finite, one_line
from kvchat.text.faults import Fault, Unread

PATH = "/v1/embeddings"
TAGS = "/api/tags"
QUERY_S, BATCH_S = 1.5, 120.0
"""How long the vector of a question, and those of a batch, may take."""
REST_S = 30.0
"""After a failure: how long questions are not sent there at all."""
BATCH = 32
"""Texts in one request."""
LONGEST, SHORTEST = 2000, 250
"""Characters of a text that are sent: at first, and where the server finds that too long, halved as often as it does,
at least."""
BODY_LIMIT = 32 * MIB
HERE = "here"
"""All addresses of this machine."""

_TOO_LONG = re.compile(r"too (?:large|long)|maximum|exceed|context", re.IGNORECASE)
_PREFIXES = (
    (re.compile(r"nomic-embed", re.IGNORECASE), "search_query: ", "search_document: "),
    (re.compile(r"(?:^|[/_-])e5-(?!.*instruct)", re.IGNORECASE), "query: ", "passage: "),
    (
        re.compile(r"mxbai-embed|arctic-embed", re.IGNORECASE),
        "Represent this sentence for searching relevant passages: ",
        "",
    ),
)
"""What some models were trained to see before a question, and before a text that is to be found."""


class ChatServer(Struct, frozen=True):
    """A server that conversations use."""

    base_url: str
    kind: str = ""
    """The name of its kind; empty: not known yet."""
    model: str = ""
    """The model that the conversations use there."""


class Embeddings:
    """A source of vectors."""

    def __init__(
        self,
        base_url: str,
        model: str = "",
        *,
        api_key: str | None = None,
        chats: Callable[[], Iterable[ChatServer]] = tuple,
        may_leave: Callable[[str], bool] | None = None,
        resolver: Resolver = lookup,
        clock: Clock | None = None,
    ) -> None:
        """`model` empty: the one the server has loaded. `chats`: the servers of the conversations now. `may_leave`:
        whether the user agreed that words go on to this host; None: the server is known to keep them."""
        self._base_url = base_url
        self._model = model
        self._api_key = api_key
        self._chats = chats
        self._may_leave = may_leave
        self._resolver = resolver
        self._clock = clock or Clock()
        self._endpoint: Endpoint | None = None
        self._spots: dict[str, frozenset[tuple[str, int]]] = {}
        self._failed: tuple[float, BackendError] | None = None
        self._length = 0
        self._before_query, self._before_text = next(
            ((query, text) for pattern, query, text in _PREFIXES if pattern.search(model)), ("", "")
        )

    @property
    def model(self) -> str:
        """The name to keep the vectors under: vectors of the same name can be compared."""
        return self._model or f"the model at {self._base_url}"

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts that are to be found, in their order. Raises BackendError."""
        found: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            found += await self._batch([self._before_text + text for text in texts[start : start + BATCH]], BATCH_S)
        return found

    async def vector(self, question: str) -> list[float]:
        """The vector of a question, within QUERY_S. Raises BackendError; at once, for a while after a failure."""
        if self._failed is not None and self._clock.now() < self._failed[0]:
            raise self._failed[1]
        return (await self._batch([self._before_query + question], QUERY_S))[0]

    async def _batch(self, texts: Sequence[str], seconds: float) -> list[list[float]]:
        try:
            async with asyncio.timeout(seconds):
                found = await self._fitting(texts)
        except TimeoutError:
            raise self._noted(errors.NoAnswerError(self._base_url, seconds)) from None
        except BackendError as error:
            raise self._noted(error) from None
        self._failed = None
        return found

    def _noted(self, error: BackendError) -> BackendError:
        """The error in words for this server. Queries are not sent there for a while, and it is looked up again."""
        named = error.with_arguments(use="embeddings")
        self._failed = self._clock.now() + REST_S, named
        self._endpoint = None
        self._spots.clear()
        return named

    async def _fitting(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts, cut as short as the server needs them."""
        endpoint = await self._reached()
        longest = LONGEST
        while True:
            try:
                return await self._asked(endpoint, [whole_characters(text)[:longest] or " " for text in texts])
            except BackendError as error:
                too_long = error.trouble is Trouble.CONTEXT_OVERFLOW or (
                    error.status in (400, 413, 422, 500) and _TOO_LONG.search(error.server_words)
                )
                if not too_long:
                    raise
                if longest <= SHORTEST:
                    raise failure(Trouble.REFUSED, Fault.TEXT_TOO_LONG, url=self._base_url, longest=longest) from None
                longest //= 2

    async def _reached(self) -> Endpoint:
        """The server's endpoint, if it may be used for this now."""
        if self._endpoint is None:
            try:
                endpoint = await open_endpoint(self._base_url, api_key=self._api_key, resolver=self._resolver)
            except BackendError as error:
                if error.trouble is Trouble.REFUSED:  # the one refusal there is: a key on an open wire
                    raise failure(error.trouble, Fault.PLAIN_VECTOR_KEY, url=self._base_url) from None
                raise
            await self._must_stay(endpoint)
            self._endpoint = endpoint
        own = _spots(self._endpoint.url, self._endpoint.place.addresses)
        for chat in self._chats():
            if not self._is_apart(chat) and own & await self._spots_of(chat.base_url):
                own_model = kind_of(chat.kind).embeds_too
                raise failure(
                    Trouble.REFUSED, Fault.NO_SEPARATE_MODEL if own_model else Fault.SAME_SERVER, url=self._base_url
                )
        return self._endpoint

    async def _must_stay(self, endpoint: Endpoint) -> None:
        """Ollama lists models that it passes on to its cloud: nothing goes there that the user did not agree to."""
        from kvchat.backends.dialects.ollama.models import passed_on_to

        if self._may_leave is None or not self._model or endpoint.place.host_class is HostClass.CLOUD:
            return
        head, answer = await ask(endpoint, "GET", TAGS, limit=BODY_LIMIT)
        try:
            host = passed_on_to(parsed(answer.decode("utf-8", "replace")), self._model) if head.status == 200 else ""
        except PayloadError:
            return  # it is no Ollama
        if host and not self._may_leave(host):
            raise failure(
                Trouble.REFUSED, Fault.VECTORS_LEAVE, url=self._base_url, host=host, model=one_line(self._model, 80)
            )

    def _is_apart(self, chat: ChatServer) -> bool:
        """Whether vectors from that server would leave the chat's model alone."""
        model = self._model.removesuffix(":latest")
        return kind_of(chat.kind).embeds_too and model not in ("", chat.model.removesuffix(":latest"))

    async def _spots_of(self, base_url: str) -> frozenset[tuple[str, int]]:
        """Where requests to a URL arrive, as far as that is known."""
        if base_url not in self._spots:
            try:
                url = parse_base_url(base_url)
            except BackendError:
                return frozenset()
            try:
                self._spots[base_url] = _spots(url, (await locate(url, self._resolver)).addresses)
            except BackendError:
                return _spots(url, ())
        return self._spots[base_url]

    async def _asked(self, endpoint: Endpoint, texts: Sequence[str]) -> list[list[float]]:
        """One request."""
        body = canonical({**({"model": self._model} if self._model else {}), "input": texts})
        head, answer = await ask(
            endpoint, "POST", PATH, headers={"content-type": "application/json"}, body=body, limit=BODY_LIMIT + 1
        )
        if head.status != 200:
            said = answer.decode("utf-8", "replace")
            raise _refusal(endpoint, head.status, said, head.headers)
        if len(answer) > BODY_LIMIT:
            raise errors.protocol(str(endpoint.url), Unread.VECTORS_TOO_LARGE.format(mib=BODY_LIMIT // MIB))
        try:
            found = _read(answer.decode("utf-8", "replace"), len(texts))
        except PayloadError as error:
            raise errors.protocol(str(endpoint.url), error) from None
        self._length = self._length or len(found[0])
        if len(found[0]) != self._length:
            raise failure(
                Trouble.PROTOCOL, Fault.OTHER_VECTORS, url=str(endpoint.url), length=len(found[0]), before=self._length
            )
        return found


def _spots(url: BaseUrl, addresses: Iterable[str]) -> frozenset[tuple[str, int]]:
    """The addresses with the port; those of this machine count as one."""
    return frozenset((HERE if _is_here(address) else address, url.port) for address in (*addresses, url.host))


def _is_here(address: str) -> bool:
    """Whether an address is this machine's: only those can be listened at. Nothing is sent."""
    try:
        if ipaddress.ip_address(address).is_loopback:
            return True
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
        return True
    except (OSError, ValueError):
        return False


def _refusal(endpoint: Endpoint, status: int, body: str, headers: Mapping[str, str]) -> BackendError:
    url = str(endpoint.url)
    if errors.is_loading(status, body):
        return errors.StillLoadingError(url)
    if status in (404, 405, 501) and not re.search(r"\bmodel\b", body, re.IGNORECASE):
        return failure(Trouble.REFUSED, Fault.NO_VECTORS, status=status, url=url)
    return errors.of_status(url, status, body, headers=headers, has_key=endpoint.api_key is not None)


def _read(text: str, count: int) -> list[list[float]]:
    """The vectors in an answer, in the order of the texts. Raises PayloadError."""
    answer = as_object(parsed(text), "an answer")
    if (said := errors.error_in(answer)) is not None:
        raise PayloadError(Unread.VECTOR_ERROR, said=errors.quoted(said[0]))
    items = [as_object(item, "a vector") for item in list_at(answer, "data")]
    if len(items) != count:
        raise PayloadError(Unread.VECTORS_MISSING, count=len(items), texts=count)
    if {count_at(item, "index") for item in items} == set(range(count)):
        items.sort(key=lambda item: count_at(item, "index") or 0)
    found = [_vector(item.get("embedding")) for item in items]
    if len({len(vector) for vector in found}) != 1:
        raise PayloadError(Unread.VECTOR_LENGTHS)
    return found


def _vector(value: object) -> list[float]:
    if not isinstance(value, list) or not value:
        raise PayloadError(Unread.NO_VECTOR)
    found: list[float] = []
    for number in value:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise PayloadError(Unread.NO_VECTOR)
        if (counted := finite(number)) is None:
            raise PayloadError(Unread.VECTOR_INFINITE)
        found.append(float(counted))
    return found
