"""The HTTP client: one request on a connection of its own, closed whatever happens. The only user of httpx.

httpx runs in a task that no caller can cancel, so it is cancelled at most once: httpx leaves the connection open when
a task inside it is cancelled twice, and a server that sees no close goes on generating.
Nothing is read from the environment, no redirect is followed, and no compressed answer is asked for.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from kvchat.backends import errors
from kvchat.backends.dialect import BackendError, HostClass, Trouble, failure
from kvchat.backends.http.content_coding import CodingError, Inflater, coding_of
from kvchat.backends.http.endpoint import Endpoint
from kvchat.text.faults import Fault, Unreached, Unread

if TYPE_CHECKING:
    import httpx


# -- clean-up that cannot be skipped, and the clock that waiting is measured by ---------------------------------------


class Clock(Struct, frozen=True):
    """The time and how to wait; tests put their own in."""

    now: Callable[[], float] = time.monotonic
    """Seconds, monotonic."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


async def unskippable(work: Coroutine[object, object, None]) -> None:
    """Run `work` to its end however often this task is cancelled meanwhile, then let the cancellation go on.

    `work` must be bounded in time: until it ends, nothing can stop this task.
    """
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


# -- the client -------------------------------------------------------------------------------------------------------


CONNECT_S, CONNECT_LOOPBACK_S, WRITE_S = 5.0, 10.0, 30.0
"""On this machine a connection is made or refused at once: where it is not, the machine stalls, and that passes."""
CLOSE_S = 1.0
"""How long a connection may take to close before its socket is shut down."""
CONNECT_GRACE_S = 0.25
"""How long a connection that is being made is waited for, so that it can be closed, before it is abandoned."""
ERROR_BODY_LIMIT, ERROR_BODY_S = 64 * 1024, 10.0
ASK_TRIES = 2
"""How often a request that only asks goes out, at most."""
_QUEUE = 32
_left_behind: set[asyncio.Task[None]] = set()
"""Tasks that did not end within CLOSE_S; kept from the garbage collector until they do."""


_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?([\w.:-]{2,40})""", re.IGNORECASE)


class ResponseHead(Struct, frozen=True):
    """The status and the headers of an answer; names are lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_good(self) -> bool:
        """Whether an answer follows, and no error or redirection."""
        return 200 <= self.status < 300

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The encoding that the content type names, in lower case; empty: none."""
        found = _CHARSET.search(self.headers.get("content-type", ""))
        return found[1].lower() if found else ""


class Exchange:
    """One request and its answer. Use it in `async with`: leaving closes the connection, always."""

    def __init__(
        self,
        endpoint: Endpoint,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        takes_redirections: bool = False,
        takes_compressed: bool = False,
    ) -> None:
        """`takes_redirections`: one is an answer like any other; else it is an error. `takes_compressed`: an answer in
        gzip or deflate is unpacked; else it is an error."""
        if not path.startswith("/"):  # "@example.com" after the host would lead there
            raise ValueError("a path begins with /")
        self._endpoint = endpoint
        self._url = endpoint.shown
        self._method = method
        self._path = path
        self._headers = dict(headers or {})
        self._body = body
        self._takes_redirections = takes_redirections
        self._takes_compressed = takes_compressed
        self._queue: asyncio.Queue[ResponseHead | bytes | BackendError | None] = asyncio.Queue(_QUEUE)
        self._streams: list[Any] = []
        self._connecting = False
        self._closing = False
        self._answered = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await unskippable(self._close())

    async def head(self) -> ResponseHead:
        """The status and headers, however long the server takes. Raises BackendError."""
        item = await self._queue.get()
        if isinstance(item, BackendError):
            raise item
        assert isinstance(item, ResponseHead)
        return item

    async def chunk(self) -> bytes | None:
        """The next bytes of the body; None at its end. Raises BackendError when the connection breaks."""
        item = await self._queue.get()
        if isinstance(item, BackendError):
            raise item
        assert not isinstance(item, ResponseHead)
        return item

    async def body(self, limit: int) -> bytes:
        """The body, or its first `limit` bytes where it is longer. Raises BackendError when the connection breaks."""
        body = bytearray()
        while len(body) < limit and (chunk := await self.chunk()) is not None:
            body += chunk
        return bytes(body[:limit])

    async def start_of_body(self, limit: int = ERROR_BODY_LIMIT) -> bytes:
        """The first `limit` bytes of the body; what came, if it breaks off."""
        body = bytearray()
        try:
            async with asyncio.timeout(ERROR_BODY_S):
                while len(body) < limit and (chunk := await self.chunk()) is not None:
                    body += chunk
        except (BackendError, TimeoutError):
            pass
        return bytes(body[:limit])

    def fail(self, error: BackendError) -> None:
        """Make the reader see `error` next, if it waits for something."""
        if self._queue.empty():
            self._queue.put_nowait(error)

    async def _run(self) -> None:
        try:
            await self._talk()
            await self._queue.put(None)
        except BackendError as error:
            await self._queue.put(error)
        except Exception as error:
            await self._queue.put(_translated(error, self._url, self._answered))

    async def _talk(self) -> None:
        addresses = (None,) if self._endpoint.proxy else self._endpoint.place.addresses
        if not addresses:
            raise errors.NotConnectedError(self._url, Unreached.NO_ADDRESS)
        httpx = await _httpx()
        failures: list[Exception] = []
        for address in addresses:
            client = await _client(self._endpoint)
            try:
                response = await client.send(self._request(client, address), stream=True)
                await self._receive(response)
                return
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if self._streams:  # a machine answered, so the next address would hide what it said
                    raise
                failures.append(error)
            finally:
                await client.aclose()
        raise next(filter(_is_refused, failures), failures[-1])

    def _request(self, client: httpx.AsyncClient, address: str | None) -> httpx.Request:
        url = self._endpoint.url
        base = str(url) if address is None else url.at(address)
        own = {name.lower(): value for name, value in self._endpoint.options.headers.items()}
        if self._endpoint.api_key:
            own = {"authorization": f"Bearer {self._endpoint.api_key}", **own}
        ours = {name.lower(): value for name, value in self._headers.items()}
        headers = {**own, **ours, "host": url.authority, "accept-encoding": "identity", "connection": "close"}
        return client.build_request(
            self._method,
            base + self._endpoint.at(self._path),
            headers=headers,
            content=self._body,
            extensions={"trace": self._trace, "sni_hostname": url.host},
        )

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Called by httpx for each step. Keeps every network stream, so that each can be closed, and has the head of
        what it brings mended."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            info["return_value"].read = _Mended(info["return_value"].read, self._url).read
        name = event.rpartition("connect_tcp.")[2]
        if name == event:
            return
        self._connecting = name == "started"
        if name == "complete":
            self._streams.append(info["return_value"])
            if self._closing:
                raise errors.cut(self._url, before_answer=True)

    async def _receive(self, response: httpx.Response) -> None:
        head = ResponseHead(response.status_code, {name.lower(): value for name, value in response.headers.items()})
        self._answered = True
        if 300 <= head.status < 400 and not self._takes_redirections:
            raise failure(
                Trouble.REFUSED,
                Fault.REDIRECT,
                url=self._url,
                target=errors.quoted(head.headers.get("location", "")) or "none",
            )
        coding = coding_of(head.headers.get("content-encoding", ""))
        if coding and not (self._takes_compressed and coding in Inflater.CODINGS):
            fault = Fault.UNKNOWN_CODING if self._takes_compressed else Fault.ENCODED
            raise failure(Trouble.PROTOCOL, fault, url=self._url, encoding=errors.quoted(coding))
        await self._queue.put(head)
        inflater = Inflater(coding) if coding else None
        async for chunk in response.aiter_raw():
            try:
                for piece in inflater.take(chunk) if inflater else (chunk,):
                    await self._queue.put(piece)
            except CodingError:
                raise errors.protocol(self._url, Unread.DAMAGED_CODING.format(coding=coding)) from None

    async def _close(self) -> None:
        """End the task and every connection it made, within about CLOSE_S."""
        if self._task is None:
            return
        self._closing = True
        if self._connecting:
            await asyncio.wait({self._task}, timeout=CONNECT_GRACE_S)
        self._task.cancel()
        closers = {asyncio.ensure_future(stream.aclose()) for stream in self._streams}
        _, late = await asyncio.wait({self._task, *closers}, timeout=CLOSE_S)
        if late:
            for stream in self._streams:
                _abort(stream.get_extra_info("socket"))
            for task in late:
                task.cancel()
                _left_behind.add(task)
                task.add_done_callback(_left_behind.discard)
        for task in closers - late:
            task.exception()


_HEAD_LIMIT = 100 * 1024
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CODING = re.compile(rb"^transfer-encoding[ \t]*:([^\r\n]*)\r?\n", re.IGNORECASE | re.MULTILINE)
_TLS_ALERT = b"\x15\x03"


class _Mended:
    """Reads a connection, and names the coding of a body once: proxies add theirs to the same one of the server, which
    the library takes for another. Raises BackendError where the peer wants TLS."""

    def __init__(self, read: Callable[..., Awaitable[bytes]], url: str) -> None:
        self._read = read
        self._url = url
        self._has_head = False

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """As of a network stream; the head comes in one piece."""
        data = await self._read(max_bytes, timeout)
        if self._has_head:
            return data
        while (end := _HEAD_END.search(data)) is None and 0 < len(data) < _HEAD_LIMIT:
            if data.startswith(_TLS_ALERT):
                raise failure(Trouble.BAD_ADDRESS, Fault.ONLY_TLS, url=self._url)
            if not (more := await self._read(max_bytes, timeout)):
                return data
            data += more
        self._has_head = not data.startswith(b"HTTP/1.1 1")  # what comes before an answer has a head of its own
        if end is None:
            return data
        head = data[: end.end()]
        codings = {coding.strip().lower() for found in _CODING.finditer(head) for coding in found[1].split(b",")}
        if codings - {b"identity"} != {b"chunked"}:
            return data
        status, _, fields = _CODING.sub(b"", head).partition(b"\n")
        return status + b"\nTransfer-Encoding: chunked\r\n" + fields + data[end.end() :]


async def ask(
    endpoint: Endpoint,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    limit: int = ERROR_BODY_LIMIT,
    tries: int = ASK_TRIES,
) -> tuple[ResponseHead, bytes]:
    """The answer to a request that only asks, with the first `limit` bytes of its body (of an error's: what came of its
    beginning). Where the connection breaks it is asked once more on a new one: llama-server closes a connection after
    each stream though it announced to keep it, and a proxy before it may have chosen that one. Not for what generates.
    It waits without limit. Raises BackendError."""
    for tries_left in range(tries - 1, -1, -1):
        try:
            async with Exchange(endpoint, method, path, headers=headers, body=body) as exchange:
                head = await exchange.head()
                return head, await (exchange.body(limit) if head.status == 200 else exchange.start_of_body())
        except BackendError as error:
            if error.trouble is not Trouble.CUT or not tries_left:
                raise
    raise AssertionError("unreachable")


def _abort(sock: Any) -> None:
    """Shut a socket down so that the peer sees the end of the connection at once."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except (OSError, AttributeError):
        pass


_imported: Any = None
"""httpx, once all of it is there."""


async def _httpx() -> Any:
    """httpx, imported when first used: it takes a while, so it must not hold up the first screen."""
    global _imported  # `sys.modules` has it before it can be used: another request may be importing it
    _imported = _imported or await asyncio.to_thread(importlib.import_module, "httpx")
    return _imported


async def _client(endpoint: Endpoint) -> httpx.AsyncClient:
    library = await _httpx()
    loopback = endpoint.place.host_class is HostClass.LOOPBACK
    usual = CONNECT_LOOPBACK_S if loopback else CONNECT_S
    timeout = library.Timeout(None, connect=endpoint.options.connect_seconds or usual, write=WRITE_S)
    if endpoint.url.scheme == "https":
        context = await asyncio.to_thread(_tls_context, endpoint.ca_file)
    else:
        context = _no_tls_context()
    transport = library.AsyncHTTPTransport(
        verify=context,
        trust_env=False,
        proxy=endpoint.proxy,
        socket_options=_socket_options(remote=not loopback),
        limits=library.Limits(max_connections=1, max_keepalive_connections=0),
    )
    client: httpx.AsyncClient = library.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=timeout,
        headers={"user-agent": "kvchat", "accept": "*/*"},
    )
    return client


@lru_cache(maxsize=8)
def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """The TLS context of a certificate authority file (None: the public ones). Takes 0.1 s, so it is shared."""
    if ca_file is None:
        httpx = importlib.import_module("httpx")
        context: ssl.SSLContext = httpx.create_ssl_context(verify=True, trust_env=False)
        return context
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise failure(
            Trouble.BAD_ADDRESS, Fault.CERTIFICATE_FILE, file=errors.quoted(ca_file), reason=errors.quoted(str(error))
        ) from None


@lru_cache(maxsize=1)
def _no_tls_context() -> ssl.SSLContext:
    """What httpx gets for plain http: a context that trusts no certificate, and costs nothing to make."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _socket_options(*, remote: bool) -> list[tuple[int, int, int]]:
    """TCP keepalive: a peer that is gone is noticed within a minute though no bytes are due."""
    wanted = [("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)]
    if remote:
        wanted.append(("TCP_USER_TIMEOUT", 60_000))
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    options += [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)]
    return options


def _translated(error: Exception, url: str, answered: bool) -> BackendError:
    """What went wrong under a request, as a sentence."""
    httpx = importlib.import_module("httpx")
    causes = list(_causes(error))
    untrusted = next((cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)), None)
    if untrusted is not None:
        return failure(
            Trouble.BAD_ADDRESS, Fault.BAD_CERTIFICATE, url=url, reason=errors.quoted(untrusted.verify_message)
        )
    if isinstance(error, httpx.ConnectTimeout):
        return errors.NotConnectedError(url, Unreached.SILENT)
    if isinstance(error, httpx.ProxyError):
        return errors.NotConnectedError(url, Unreached.PROXY)
    if any(isinstance(cause, ssl.SSLError) and cause.reason in _PLAIN_WORDS for cause in causes):
        return failure(Trouble.BAD_ADDRESS, Fault.NO_TLS, url=url)
    if isinstance(error, httpx.ConnectError):
        refused = _is_refused(error)
        return errors.NotConnectedError(url, Unreached.REFUSED if refused else _reason(causes), refused=refused)
    if isinstance(error, httpx.WriteError | httpx.WriteTimeout):
        return failure(Trouble.CUT, Fault.NOT_SENT, url=url)
    if isinstance(error, httpx.RemoteProtocolError) and not _is_cut(str(error)):
        return errors.protocol(url, Unread.NO_HTTP)
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError | OSError):
        return errors.cut(url, before_answer=not answered)
    return errors.unexpected(url, error)


_PLAIN_WORDS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
"""By which OpenSSL says that what answers does not speak TLS."""


def _is_cut(message: str) -> bool:
    return "peer closed connection" in message or "disconnected" in message


def _is_refused(error: BaseException) -> bool:
    return any(isinstance(cause, ConnectionRefusedError) for cause in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(causes: list[BaseException]) -> str:
    """The system's own words for why a connection failed."""
    for cause in reversed(causes):
        if isinstance(cause, ssl.SSLError):
            return Unreached.TLS.format(error=cause.reason or "TLS error")
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return Unreached.FAILED
