"""Discovery: which model servers run on this machine, known by what they answer on their usual ports.

Only this machine is asked, by GET alone, without a key; it takes no longer than it may, whatever answers;
and a server is what its answers say, never what its port suggests: a port only says which questions come first.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends import errors, kinds, recognition
from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import BackendError, HostClass, ServerInfo, Trouble, failure
from kvchat.backends.http.endpoint import (
    LOOPBACK,
    BadAddressError,
    BaseUrl,
    Endpoint,
    ResolvedServer,
    classify,
    is_loopback_name,
    literal,
    parse_base_url,
)
from kvchat.backends.http.payload import Model, PayloadError, Response, models_in
from kvchat.backends.http.transport import ResponseHead
from kvchat.backends.identify import backend_of
from kvchat.backends.kinds import MODELS_PATH
from kvchat.backends.recognition import recognised
from kvchat.text.faults import Fault

# -- a small HTTP/1.1 client: one GET after the other, with a limit on everything -------------------------------------


# Not the exchange of `transport`, which was measured: while httpx is imported the time of a first look passes, so that
# nothing is found; and with a connection for each question a later one takes four to ten times as long.
HEAD_LIMIT, BODY_LIMIT = 32 * 1024, 128 * 1024
"""Bytes. The longest real answers are lists of many models and properties with a long chat template."""
THREADED_BYTES = 16 * 1024
"""JSON of more bytes is read in a thread, so that the screen does not wait."""

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?\r\n\Z")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\r\n\0]*)\r\n\Z")
_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
_START = b"HTTP/"
_FAILURES = (OSError, EOFError)


class NotHttpError(Exception):
    """What came is not HTTP/1.x, or more of it than any model server says."""


class HeardResponse(Response, frozen=True):
    """An answer whose JSON was read once: every kind's signs are looked for in it."""

    json: object = None

    @property
    def value(self) -> object:
        return self.json


class ServerLine:
    """A connection to one server, made when it is needed and kept while the server keeps it."""

    def __init__(self, address: str, port: int, authority: str) -> None:
        self._address = address
        self._port = port
        self._authority = authority
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connect. Raises OSError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address, self._port, limit=HEAD_LIMIT)

    async def get(self, path: str) -> HeardResponse:
        """The answer to a GET of `path`. Raises OSError, EOFError (closed without an answer), NotHttpError."""
        kept = self._streams is not None
        try:
            return await self._asked(path)
        except _FAILURES:
            self.close()
            if not kept:
                raise
        except NotHttpError:
            self.close()
            raise
        return await self._asked(path)  # the server had given up the connection that was kept

    def close(self) -> None:
        """Close the connection at once."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _asked(self, path: str) -> HeardResponse:
        await self.open()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {self._authority}\r\nUser-Agent: kvchat\r\nAccept: */*\r\n"
            "Accept-Encoding: identity\r\n\r\n".encode("ascii")
        )
        try:
            minor, status, headers = await _head(reader)
            body, whole = await _body(reader, status, headers)
        except (asyncio.LimitOverrunError, ValueError):
            raise NotHttpError from None
        options = headers.get("connection", "").lower()
        if not whole or "close" in options or (minor == 0 and "keep-alive" not in options):
            self.close()
        return await _heard(status, headers, body)


async def _heard(status: int, headers: Mapping[str, str], body: bytes) -> HeardResponse:
    response = Response(status, headers, body)
    if status != 200 or body[:64].lstrip()[:1] not in (b"{", b"["):
        return HeardResponse(status, headers, body)
    value = await asyncio.to_thread(_value, response) if len(body) > THREADED_BYTES else response.value
    return HeardResponse(status, headers, body, value)


def _value(response: Response) -> object:
    return response.value


async def _head(reader: asyncio.StreamReader) -> tuple[int, int, dict[str, str]]:
    """The minor version, the status and the headers of an answer; interim answers are skipped."""
    left = HEAD_LIMIT
    while True:
        first = await reader.readexactly(len(_START))
        if first != _START:  # seen at once, though no line may ever end
            raise NotHttpError
        match = _STATUS.match(first + await reader.readuntil(b"\r\n"))
        if match is None:
            raise NotHttpError
        headers: dict[str, str] = {}
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            left -= len(line)
            field = _FIELD.match(line.decode("latin-1"))
            if field is None or left < 0:
                raise NotHttpError
            name = field[1].lower()
            value = field[2].strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        left -= len(first)
        status = int(match[2])
        if status >= 200:
            return int(match[1]), status, headers


async def _body(reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
    """The body, at most BODY_LIMIT bytes of it, and whether its end was found without the connection's end."""
    if status in (204, 304):
        return b"", True
    if (coding := headers.get("transfer-encoding")) is not None:
        if coding.lower() != "chunked" or "content-length" in headers:
            raise NotHttpError
        return await _chunks(reader)
    if (length := headers.get("content-length")) is None:
        return await _up_to(reader, BODY_LIMIT), False
    if not length.isascii() or not length.isdecimal():
        raise NotHttpError
    if len(length) > 12 or int(length) > BODY_LIMIT:
        return await _up_to(reader, BODY_LIMIT), False
    return await reader.readexactly(int(length)), True


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    body = bytearray()
    while True:
        size = _SIZE.match(await reader.readuntil(b"\r\n"))
        if size is None:
            raise NotHttpError
        count = int(size[1], 16)
        if count == 0:
            for _ in range(32):  # trailers
                if await reader.readuntil(b"\r\n") == b"\r\n":
                    return bytes(body), True
            raise NotHttpError
        if len(body) + count > BODY_LIMIT:
            return bytes(body), False
        body += await reader.readexactly(count)
        if await reader.readexactly(2) != b"\r\n":
            raise NotHttpError


async def _up_to(reader: asyncio.StreamReader, limit: int) -> bytes:
    body = bytearray()
    while len(body) < limit and (part := await reader.read(limit - len(body))):
        body += part
    return bytes(body)


# -- a visit to one server: what it is asked, what it says, and what that makes of it ---------------------------------


OTHER_FAMILY = 0.3
"""The share of the time after which an IPv4 port that neither accepts nor refuses counts as closed."""
SECOND_ASK_SHARE = 0.1
"""The share of the time after which a server that is not known yet is asked over a second connection."""
TRIES = 2
"""How many questions a server may leave unanswered before it answers one."""
PARTS = 10
"""The number of parts in which a time to wait passes."""
TELLING_S = 0.02
"""For putting together what is known of a server at the end, when nothing is asked any more."""

log = logging.getLogger(__name__)
Phase = Literal["ready", "loading", "needs a key", "needs a password", "fails", "answers"]
UNASKED = HeardResponse(0, {}, b"")
"""Stands for a path that gave no answer of its own."""


class FoundServer(Struct, frozen=True):
    """A server of this machine. None: it does not say, or not in time."""

    base_url: str
    kind: str = ""
    """The name of its kind; empty where its answers are not known."""
    phase: Phase = "answers"
    """`ready`; `loading` its model; `needs a key`, or `needs a password`, before it says more; `fails`: it answers with
    errors; `answers`: HTTP, but not as a model server."""
    model: str = ""
    """The model it would answer with, as it names it."""
    listing: tuple[Model, ...] = ()
    """Its models, loaded or not, in its order."""
    context_size: int | None = None
    """Tokens per conversation."""
    slots: int | None = None
    seconds: float = 0.0
    """From the first question to the last answer that was used."""

    @property
    def title(self) -> str:
        """Its kind as the screen names it."""
        return kinds.title_of(self.kind)

    @property
    def loaded(self) -> tuple[str, ...] | None:
        """The names of the models in memory; None where it does not say."""
        known = [model for model in self.listing if model.loaded is not None]
        return tuple(model.id for model in known if model.loaded) if known else None


def questions(port: int) -> list[str]:
    """Every path by which some kind is known, those of the kinds that are usual at `port` first."""
    usual = [kind for kind in recognition.ORDER if port in kind.ports]
    return list(dict.fromkeys(chain.from_iterable(kind.probes for kind in (*usual, *recognition.ORDER))))


async def _open_after(seconds: float, tasks: set[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Those of `tasks` that are not done after `seconds`. While the event loop is held up, as by a screen that is being
    built, no more than one of `PARTS` passes: answers that came meanwhile are read first."""
    for _ in range(PARTS):
        if tasks:
            _, tasks = await asyncio.wait(tasks, timeout=seconds / PARTS)
    return tasks


class ServerVisit:
    """One server: what it was asked, and what it said."""

    def __init__(self, url: BaseUrl, addresses: tuple[str, ...], within: float) -> None:
        self._url = url
        self._addresses = addresses
        self._within = within
        self._paths = deque(questions(url.port))
        self._answers: dict[str, HeardResponse] = {}
        self._lines: set[ServerLine] = set()
        self._speaks_http = self._is_slow = False
        self._closed = False
        self._info: ServerInfo | None = None
        self._refused = False
        """Whether a question beyond the first ones was refused for want of a key."""
        self._clock = asyncio.get_running_loop().time
        self._began = self._heard = self._clock()

    async def look(self) -> None:
        """Ask until it is certain what this is, then what it has."""
        line = await self._reached()
        if line is None:
            return
        workers = {asyncio.create_task(self._work(line))}
        try:
            workers = await _open_after(self._within * SECOND_ASK_SHARE, workers)
            if workers:
                self._is_slow = True
                workers.add(asyncio.create_task(self._work(self._line())))
            while workers and not self._is_certain():
                _, workers = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for worker in workers:
                worker.cancel()
        await self._describe()

    async def _reached(self) -> ServerLine | None:
        """A connection to the first address where something listens; None where nothing does."""
        for address in self._addresses:
            self._address = address
            line = self._line()
            opening = asyncio.create_task(line.open())
            try:
                if await _open_after(self._within * OTHER_FAMILY, {opening}) or opening.exception() is not None:
                    continue
            finally:
                opening.cancel()
            if self._url.host == LOOPBACK[0]:
                self._url = replace(self._url, host=address)
            return line
        return None

    def _line(self) -> ServerLine:
        line = ServerLine(self._address, self._url.port, self._url.authority)
        self._lines.add(line)
        return line

    async def _work(self, line: ServerLine) -> None:
        """Ask what is left to ask. A second one does the same where that takes long, because a path may never be
        answered; then no connection is kept, because a server may see to one connection after the other."""
        try:
            while self._paths and not self._is_certain():
                await self._ask(self._paths.popleft(), line)
                if self._is_slow:
                    line.close()
                if not self._speaks_http and len(self._answers) >= TRIES:
                    return
        finally:
            line.close()

    def _is_certain(self) -> bool:
        """Whether no answer that is still to come could change what this is taken for."""
        kind = recognised(self._answers)
        if kind is None:
            return False
        before = takewhile(lambda earlier: earlier is not kind, recognition.ORDER)
        return all(path in self._answers for path in chain.from_iterable(earlier.probes for earlier in before))

    async def _ask(self, path: str, line: ServerLine) -> None:
        answer = UNASKED
        try:
            answer = await line.get(self._url.path + path)
            self._speaks_http = True
            self._heard = self._clock()
        except (OSError, EOFError, NotHttpError):
            pass
        # A redirect is followed nowhere, so it says nothing.
        self._answers[path] = UNASKED if 300 <= answer.status < 400 else answer

    async def answer(self, path: str) -> HeardResponse:
        """What the server says at `path`; `UNASKED` where it does not, or there is no time left to ask."""
        if path not in self._answers and not self._closed:
            line = self._line()
            try:
                await self._ask(path, line)
            finally:
                line.close()
        return self._answers.get(path, UNASKED)

    async def _describe(self) -> None:
        """Let the code of its kind say what the server has, as far as that is known."""
        kind = recognised(self._answers)
        if kind is None or kind.describing_disturbs:
            return
        backend: _Told = type("Told", (_Told, backend_of(kind)), {})(
            Endpoint(self._url, ResolvedServer(HostClass.LOOPBACK, ()))
        )
        backend.visit = self
        try:
            self._info = await backend.describe()
        except BackendError as error:
            self._refused = error.trouble is Trouble.UNAUTHORIZED
        except PayloadError:
            pass
        except Exception:
            log.exception("a server that was found could not be described")

    def close(self) -> None:
        """Ask nothing any more."""
        self._closed = True
        for line in self._lines:
            line.close()

    async def found(self) -> FoundServer | None:
        """What is known of the server, once it is closed; None where none answered."""
        if not self._speaks_http:
            return None
        if self._info is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELLING_S):
                    await self._describe()
        known = recognised(self._answers)
        kind = known.name if known else ""
        info = self._info or self._listed(kind)
        return FoundServer(
            str(self._url),
            kind,
            self._phase(kind),
            info.model,
            info.listing,
            info.context_size,
            info.slots,
            self._heard - self._began,
        )

    def _listed(self, kind: str) -> ServerInfo:
        """What the common list of models says, where the code of its kind could say nothing."""
        info = ServerInfo(kind, str(self._url), HostClass.LOOPBACK)
        try:
            models = models_in(self._answers.get(MODELS_PATH, UNASKED).value)
        except PayloadError:
            return info
        chosen = models.chosen if kind else None
        return replace(
            info,
            listing=models.all,
            model=chosen.id if chosen else "",
            context_size=chosen.context_size if chosen else None,
        )

    def _phase(self, kind: str) -> Phase:
        if any(errors.is_loading(answer.status, answer.text) for answer in self._answers.values()):
            return "loading"
        models = self._answers.get(MODELS_PATH, UNASKED)
        locked = _wants_key(models) or (not kind and any(map(_wants_key, self._answers.values())))
        if locked or self._refused:
            wants_password = any(errors.wants_password(one.status, one.headers) for one in self._answers.values())
            return "needs a password" if wants_password else "needs a key"
        if models.status >= 500:
            return "fails"
        return "ready" if kind else "answers"


def _wants_key(answer: Response) -> bool:
    """Whether a key would help. A bare 403 is no such answer: macOS gives it to everyone on port 5000."""
    return answer.status == 401 or (answer.status == 403 and answer.body[:64].lstrip()[:1] == b"{")


class _Told(HttpBackend):
    """What goes in front of a kind's class so that it asks by way of a visit: nothing twice, by GET alone, in time."""

    visit: ServerVisit

    async def get(self, path: str) -> tuple[ResponseHead, bytes]:
        answer = await self.visit.answer(path)
        if answer is UNASKED:
            raise failure(Trouble.CUT, Fault.NOT_IN_TIME, url=self.url, path=path)
        return ResponseHead(answer.status, answer.headers), answer.body

    async def get_json(self, path: str) -> tuple[ResponseHead, object]:
        value = (await self.visit.answer(path)).value
        if value is None:
            return await super().get_json(path)
        head, _ = await self.get(path)
        return head, value


# -- all of them ------------------------------------------------------------------------------------------------------


__all__ = ["FoundServer", "Phase", "discover", "is_asked", "questions"]

ASKING = 0.85
"""The share of the time in which questions are asked; the rest is for what a busy machine makes late."""


async def discover(
    ports: Iterable[int] | None = None, *, also: Sequence[str] = (), within: float = 0.3
) -> list[FoundServer]:
    """Every server that answers on `ports` of this machine (None: the usual ones), or at the base URLs `also`, after
    at most `within` seconds, and those for which the event loop was held up.

    All are asked at once; the result holds what is known of each server at the end of the time. Base URLs that do not
    literally name this machine over http (another address, another name, https) are not asked.
    """
    asked = kinds.ports() if ports is None else ports
    visits = [ServerVisit(url, addresses, within) for url, addresses in _places(asked, also)]
    looks = [asyncio.create_task(visit.look()) for visit in visits]
    try:
        await _open_after(within * ASKING, set(looks))
    finally:
        for look in looks:
            look.cancel()
        for visit in visits:
            visit.close()
    await asyncio.gather(*looks, return_exceptions=True)
    found = await asyncio.gather(*(visit.found() for visit in visits))
    return [server for server in found if server is not None]


def _places(ports: Iterable[int], also: Sequence[str]) -> Iterator[tuple[BaseUrl, tuple[str, ...]]]:
    """What to ask, each server once: its URL, and the addresses that it may listen on."""
    seen = set()
    for port in dict.fromkeys(ports):
        seen.add((port, ""))
        yield BaseUrl("http", LOOPBACK[0], port), LOOPBACK
    for url in filter(None, map(_of_this_machine, also)):
        if (url.port, url.path) not in seen:
            seen.add((url.port, url.path))
            yield url, LOOPBACK if is_loopback_name(url.host) else (url.host,)


def is_asked(base_url: str) -> bool:
    """Whether `discover` asks a server at this address: it literally names this machine, without TLS."""
    return _of_this_machine(base_url) is not None


def _of_this_machine(text: str) -> BaseUrl | None:
    try:
        url = parse_base_url(text)
        address = literal(url.host)
    except (BackendError, BadAddressError):
        return None
    here = is_loopback_name(url.host) if address is None else classify(address) is HostClass.LOOPBACK
    return url if here and url.scheme == "http" else None
