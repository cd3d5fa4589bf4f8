"""A visit to one server of this machine: what it is asked, what it says, and what that makes of it.

The rule: nothing is sent but GETs, none twice; and whenever the visit ends, what was said by then is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Literal

from kvchat.backends import errors, kinds
from kvchat.backends.base import MODELS_PATH, HttpBackend
from kvchat.backends.dialect import BackendError, HostClass, ServerInfo, Trouble
from kvchat.backends.discovery_probe import Heard, Line, NotHttpError
from kvchat.backends.endpoint import Endpoint
from kvchat.backends.hosts import LOOPBACK, BaseUrl, Place
from kvchat.backends.models import Model, models_in
from kvchat.backends.payload import PayloadError
from kvchat.backends.recognise import Response, Responses
from kvchat.backends.transport import Head

DIALECTS = tuple(kinds.in_order())
"""Every dialect: a server that is found may be of any kind."""
OTHER_FAMILY = 0.3
"""The share of the time after which an IPv4 port that neither accepts nor refuses counts as closed."""
PATIENCE = 0.1
"""The share of the time after which a server that is not known yet is asked over a second connection."""
TRIES = 2
"""How many questions a server may leave unanswered before it answers one."""
TELLING_S = 0.02
"""For putting together what is known of a server at the end, when nothing is asked any more."""

log = logging.getLogger(__name__)
Phase = Literal["ready", "loading", "needs a key", "answers"]
UNASKED = Heard(0, {}, b"")
"""Stands for a path that gave no answer of its own."""


@dataclass(frozen=True, slots=True)
class Found:
    """A server of this machine. None: it does not say, or not in time."""

    base_url: str
    kind: str = ""
    """The name of its kind; empty where its answers are not known."""
    phase: Phase = "answers"
    """`ready`; `loading` its model; `needs a key` before it says more; `answers`: HTTP, but not as a model server."""
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
        told = [model for model in self.listing if model.loaded is not None]
        return tuple(model.id for model in told if model.loaded) if told else None


def questions(port: int) -> list[str]:
    """Every path that some dialect looks at, those of the kinds that are usual at `port` first."""
    usual = [dialect for dialect in DIALECTS if port in dialect.kind.ports]
    return list(dict.fromkeys(chain.from_iterable(dialect.probes for dialect in (*usual, *DIALECTS))))


def recognised(responses: Responses) -> type[HttpBackend] | None:
    """The dialect of the server that gave these answers; None where nothing is known by them."""
    return next((dialect for dialect in DIALECTS if dialect.recognises(responses)), None)


class Visit:
    """One server: what it was asked, and what it said."""

    def __init__(self, url: BaseUrl, addresses: tuple[str, ...], within: float) -> None:
        self._url = url
        self._addresses = addresses
        self._within = within
        self._paths = deque(questions(url.port))
        self._answers: dict[str, Heard] = {}
        self._lines: set[Line] = set()
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
            _, workers = await asyncio.wait(workers, timeout=self._within * PATIENCE)
            if workers:
                self._is_slow = True
                workers.add(asyncio.create_task(self._work(self._line())))
            while workers and not self._is_certain():
                _, workers = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for worker in workers:
                worker.cancel()
        await self._describe()

    async def _reached(self) -> Line | None:
        """A connection to the first address where something listens; None where nothing does."""
        for address in self._addresses:
            self._address = address
            line = self._line()
            try:
                async with asyncio.timeout(self._within * OTHER_FAMILY):
                    await line.open()
            except (OSError, TimeoutError):
                continue
            if self._url.host == LOOPBACK[0]:
                self._url = replace(self._url, host=address)
            return line
        return None

    def _line(self) -> Line:
        line = Line(self._address, self._url.port, self._url.authority)
        self._lines.add(line)
        return line

    async def _work(self, line: Line) -> None:
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
        dialect = recognised(self._answers)
        if dialect is None:
            return False
        before = takewhile(lambda earlier: earlier is not dialect, DIALECTS)
        return all(path in self._answers for path in chain.from_iterable(earlier.probes for earlier in before))

    async def _ask(self, path: str, line: Line) -> None:
        answer = UNASKED
        try:
            answer = await line.get(self._url.path + path)
            self._speaks_http = True
            self._heard = self._clock()
        except (OSError, EOFError, NotHttpError):
            pass
        # A redirect is followed nowhere, so it says nothing.
        self._answers[path] = UNASKED if 300 <= answer.status < 400 else answer

    async def answer(self, path: str) -> Heard:
        """What the server says at `path`; `UNASKED` where it does not, or there is no time left to ask."""
        if path not in self._answers and not self._closed:
            line = self._line()
            try:
                await self._ask(path, line)
            finally:
                line.close()
        return self._answers.get(path, UNASKED)

    async def _describe(self) -> None:
        """Let the dialect say what the server has, as far as that is known."""
        dialect = recognised(self._answers)
        if dialect is None or dialect.describing_disturbs:
            return
        backend: _Told = type("Told", (_Told, dialect), {})(Endpoint(self._url, Place(HostClass.LOOPBACK, ())))
        backend.visit = self
        try:
            self._info = await backend.described()
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

    async def found(self) -> Found | None:
        """What is known of the server, once it is closed; None where none answered."""
        if not self._speaks_http:
            return None
        if self._info is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELLING_S):
                    await self._describe()
        dialect = recognised(self._answers)
        kind = dialect.kind.name if dialect else ""
        info = self._info or self._listed(kind)
        return Found(str(self._url), kind, self._phase(kind), info.model, info.listing, info.context_size, info.slots,
                     self._heard - self._began)

    def _listed(self, kind: str) -> ServerInfo:
        """What the common list of models says, where the dialect could say nothing."""
        info = ServerInfo(kind, str(self._url), HostClass.LOOPBACK)
        try:
            models = models_in(self._answers.get(MODELS_PATH, UNASKED).value)
        except PayloadError:
            return info
        chosen = models.chosen if kind else None
        return replace(info, listing=models.all, model=chosen.id if chosen else "",
                       context_size=chosen.context_size if chosen else None)

    def _phase(self, kind: str) -> Phase:
        if any(errors.is_loading(answer.status, answer.text) for answer in self._answers.values()):
            return "loading"
        models = self._answers.get(MODELS_PATH, UNASKED)
        locked = _wants_key(models) or (not kind and any(map(_wants_key, self._answers.values())))
        if locked or self._refused:
            return "needs a key"
        return "ready" if kind else "answers"


def _wants_key(answer: Response) -> bool:
    """Whether a key would help. A bare 403 is no such answer: macOS gives it to everyone on port 5000."""
    return answer.status == 401 or (answer.status == 403 and answer.body[:64].lstrip()[:1] == b"{")


class _Told(HttpBackend):
    """What goes in front of a dialect so that it asks by way of a visit: nothing twice, by GET alone, in time."""

    visit: Visit

    async def get(self, path: str) -> tuple[Head, bytes]:
        answer = await self.visit.answer(path)
        if answer is UNASKED:
            raise BackendError(Trouble.CUT, f"The server at {self.url} did not answer {path} in time.")
        return Head(answer.status, answer.headers), answer.body

    async def get_json(self, path: str) -> tuple[Head, object]:
        value = (await self.visit.answer(path)).value
        if value is None:
            return await super().get_json(path)
        head, _ = await self.get(path)
        return head, value
