"""Warm-up: what the user is about to need is prefilled into the server's cache while they read or type.

It sends only committed text, as a strict prefix of what will be sent; only while nothing else uses the server, and not
on battery; any real request ends it at once. What it costs is counted in a line of its own.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, ChatTurn, HostClass, PrefillAccess, ServerInfo
from kvchat.cache import PlannedWay, Tokens, Way
from kvchat.cache.tracking import WORTH
from kvchat.chat.cache.cache_probe import probe, unused
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.states.state_saver import StateSaver
from kvchat.chat.conversations.conversations import ConversationObserver
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import WarmthChanged
from kvchat.chat.question.builder import QuestionBuilder
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.figures.accounting import PromptProgress
from kvchat.figures.speed import SpeedSample
from kvchat.prompt.branching import closed
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Message, Node, Role, State
from kvchat.reports.warmth import Heat

REST_S = 1.0
"""How long a conversation is looked at before it is warmed up."""
TOLD_S = 0.25
"""How often the screen shows how far a conversation is warmed up."""

log = logging.getLogger(__name__)


class _Running(Struct, eq=False):
    """The request of a warm-up, while it runs."""

    cache: ServerCache
    id: str
    """The conversation."""
    turn: ChatTurn | None
    """The messages that it prefills; None: no question waits for it."""
    begun: str
    """How the question behind them begins."""
    predicted: PromptProgress
    """How far it was to be when it was sent."""
    heard: PromptProgress | None = None
    """How far it was when it was last heard of; None: it never was."""
    listener: Callable[[PromptProgress], None] | None = None
    """Gets how far it is, where a question waits for it."""

    @property
    def progress(self) -> PromptProgress:
        return self.heard or self.predicted

    @property
    def processed(self) -> int | None:
        """Tokens that were in when it was last heard of; None: it never was."""
        return self.heard.processed if self.heard is not None else None

    def progressed(self, progress: PromptProgress) -> None:
        self.heard = replace(progress, cause=self.predicted.cause)
        if self.listener is not None:
            self.listener(self.heard)

    def until(self, count: int) -> SpeedSample:
        """What it prefilled when a slot was found with `count` tokens after it was cut: the batch under way has ended;
        its tokens count, and take as long as those before it."""
        cached, end = self.progress.cached, max(self.processed or 0, min(count, self.predicted.total))
        speed = self.progress.speed
        return SpeedSample(cached, end, (end - cached) / speed if speed else 0.0)

    def begins(self, asked: ChatTurn) -> bool:
        """Whether the prompt of `asked` begins with what this prefills: the same messages, rendered alike, and then a
        question that begins as expected."""
        mine, count = self.turn, len(self.turn.wires) if self.turn is not None else 0
        return (
            mine is not None
            and mine.session_id == asked.session_id
            and len(asked.wires) > count
            and asked.wires[:count] == mine.wires
            and asked.wires[count].startswith(Message(Role.USER, self.begun).wire().removesuffix(b'"}'))
            and asked.template_options == mine.template_options
            and asked.system_in_user == mine.system_in_user
        )


class WarmUp(ConversationObserver):
    """Prefills ahead of the user."""

    def __init__(
        self,
        core: Core,
        saver: StateSaver,
        routes: Routes,
        questions: QuestionBuilder,
    ) -> None:
        self._core = core
        self._saver = saver
        self._routes = routes
        self._questions = questions
        self.enabled = False
        """Whether a user is there to warm up for: the app sets it."""
        self.sent: set[str] = set()
        """The conversations whose next question is on its way to `Turns`: what goes with it is looked up. The app says
        so."""
        self._rest: asyncio.Task[None] | None = None
        """Waits until a conversation was looked at for long enough."""
        self._work: asyncio.Task[None] | None = None
        """Then warms it up."""
        self._warms = ""
        """Which one that is; empty: none."""
        self._running: _Running | None = None
        self._ahead: dict[str, list[tuple[int, int]]] = {}
        """By conversation: the positions, from and to, that were prefilled since its last answer."""
        self._probed: tuple[ServerCache, ...] = ()
        """The servers whose cache was probed, or refused to be."""
        self._told_at = 0.0
        core.conversations.observers.append(self)
        core.servers.observers.append(self)
        saver.settle_by(self.prefill_now)

    def opened(self, id: str, before: str) -> None:
        """A conversation that is looked at is warmed up when it is rested on."""
        self.soon(id)

    def link_changed(self, link: Link) -> None:
        """A server is there: warm up what is looked at."""
        looked_at = self._core.conversations.looked_at
        if link.connector.connection.phase == "ready" and looked_at and self._core.servers.link() is link:
            self.soon(looked_at)

    def typing_began(self, id: str) -> None:
        """The user begins to write, so stays here: see at once whether the server still holds the conversation, else
        read it ahead. One that is being read ahead goes on."""
        if self._warms != id:
            self.soon(id, 0.0)

    def prepare(self, id: str, blocks: Sequence[ContextBlock]) -> None:
        """These blocks will stand in front of the next question: they are read ahead while it is typed."""
        if self._questions.prepare(id, blocks):
            self.soon(id)

    def soon(self, id: str, rest: float | None = None) -> None:
        """Warm the conversation up when it has been looked at for `rest` seconds (None: `REST_S`). One that runs goes
        on until then: what is attached no more was perhaps sent just now."""
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self.enabled:
            self._rest = asyncio.create_task(self._warm_when_rested(id, REST_S if rest is None else rest))

    async def _warm_when_rested(self, id: str, rest: float) -> None:
        await asyncio.sleep(rest)
        if id in self.sent or self._core.conversations.is_taken(id):
            return  # its question waits for the warm-up that runs, or will end it
        if self._work is not None:
            self._work.cancel()
        self._warms, self._work = id, asyncio.create_task(self._warmed(id))

    async def _warmed(self, id: str) -> None:
        try:
            await self.warm(id)
        except BackendError as error:
            log.info("a warm-up failed: %s", error.sentence)
        except Exception:
            log.exception("a warm-up failed")
        finally:
            if self._work is asyncio.current_task():  # else another one has begun since
                self._warms = ""

    async def warm(self, id: str) -> None:
        """Warm a conversation up now, where that is wanted, allowed and of use. Raises BackendError."""
        conversation = self._core.conversations.loaded.get(id)
        if conversation is None or self._core.conversations.looked_at != id or self._core.conversations.is_taken(id):
            return
        link = self._core.servers.link(id)
        if link.connector.connection.phase != "ready" or not link.lane.is_free:
            return
        backend = await link.connector.ready()
        cache = await self._core.tracker.cache_of(
            backend
        )  # first: a server that was started again holds nothing any more
        if cache is not None and not cache.follows(self._core.servers.asked_model(id)):
            return  # a router would load its model for it
        if not self._core.settings.cache.warm_up:
            return
        if not self._core.settings.cache.warm_up_on_battery and await asyncio.to_thread(on_battery):
            return
        if not self._core.servers.consent.agreed_to(backend.info, id):
            return
        if self._core.servers.refused(conversation, backend.info, conversation.path()) is not None:
            return
        if cache is None:
            destination = self._core.servers.consent.destination(backend.info, id)
            if isinstance(backend, PrefillAccess) and destination.host_class is not HostClass.CLOUD:
                await self._warm_untracked(link, backend, conversation)
            return
        await cache.settled()
        await cache.cancelled.free()
        if await self._is_strange(link, cache):
            await link.lane.in_spare_time(self._probe(link, cache))
        busy = (await cache.look()).busy
        if busy and link.lane.works_in_background and self._core.tracker.warmth(id).heat is not Heat.WARM:
            await link.lane.stop_background()
            await cache.settled()
            await cache.cancelled.free()
            busy = (await cache.look()).busy
        if busy:
            return  # somebody else is being answered
        path = conversation.path()
        if not path or path[-1].state is State.STREAMING:
            return
        path += closed(path, self._core.timestamp())  # as the next question does
        turn = self._core.branch_requests.after(conversation.record, path)
        await self._saver.ready(backend)
        begun = await self._questions.next_beginning(conversation)
        prefix = await cache.prompts.prefix(turn, begun)
        self._core.events.tell(WarmthChanged())
        if not prefix:
            return
        await self._routes.look_up(cache, path)
        chosen = self._routes.plan(cache, id, path, prefix, idle=True).chosen
        if chosen.way is not Way.AS_IS or chosen.tokens > WORTH:
            await link.lane.in_spare_time(
                self.prefill(backend, cache, id, path, prefix, chosen, turn=turn, begun=begun)
            )

    async def prefill_now(
        self,
        backend: Backend,
        cache: ServerCache,
        id: str,
        path: Sequence[Node],
        prefix: Tokens,
    ) -> None:
        """Have a slot hold just this branch of a conversation, `prefix` as the server has it, however little of it is
        missing. Whoever calls has the lane. Raises BackendError."""
        chosen = self._routes.plan(cache, id, path, prefix, idle=True).chosen
        await self.prefill(backend, cache, id, path, prefix, chosen)

    async def _warm_untracked(self, link: Link, backend: PrefillAccess, conversation: OpenConversation) -> None:
        """Have a server read a conversation whose cache cannot be tracked: where it holds it already, that costs a
        token."""
        path = conversation.path()
        if len(path) < 3 or path[-1].state not in (State.DONE, State.LENGTH) or link.info is None:
            return
        held = self._core.tracker.branch_warmth(conversation.id, path[-1].id).heat is Heat.WARM
        path += closed(path, self._core.timestamp())  # as the next question does
        if not held or link.info.replicas:  # what a replica still holds, only it can tell
            await link.lane.in_spare_time(self._prefill_messages(link, link.info, backend, conversation, path))

    async def _prefill_messages(
        self, link: Link, info: ServerInfo, backend: PrefillAccess, conversation: OpenConversation, path: Sequence[Node]
    ) -> None:
        started, id = time.monotonic(), conversation.id
        self._core.tracker.warms(id)
        self._core.events.tell(WarmthChanged())
        try:
            turn = replace(
                self._core.branch_requests.after(conversation.record, path), parameters=conversation.record.parameters
            )
            figures = await backend.prefill_messages(turn)
        finally:
            self._core.tracker.warms("")
            self._core.events.tell(WarmthChanged())
        now = self._core.timestamp()
        if link.shared is not None and link.shared.server is info:
            link.shared.read(path, now)
        prompt, cached = figures.prompt_tokens, figures.cached_tokens
        if prompt is not None and cached is not None and not figures.estimated:
            took = time.monotonic() - started if figures.prompt_ms is None else figures.prompt_ms / 1000
            self._count(id, info, SpeedSample(cached, prompt, took))

    async def _is_strange(self, link: Link, cache: ServerCache) -> bool:
        """Whether nothing is known of how this server's cache works, and it is still unused."""
        if cache in self._probed:
            return False
        return (
            link.connector.cache_shape() is None
            and self._core.tracker.learnt(cache.server) is None
            and not cache.slots.state.asleep
            and await unused(cache)
        )

    async def _probe(self, link: Link, cache: ServerCache) -> None:
        self._probed = (*self._probed, cache)
        try:
            await probe(cache, lambda read: self._spent("", cache, read))
        except BackendError as error:
            log.info("the server's cache was not probed: %s", error.sentence)
        await self._core.tracker.learn(link, cache)

    async def prefill(
        self,
        backend: Backend,
        cache: ServerCache,
        id: str,
        path: Sequence[Node],
        prefix: Tokens,
        chosen: PlannedWay,
        *,
        whole: bool = True,
        turn: ChatTurn | None = None,
        begun: str = "",
    ) -> None:
        """The request of a warm-up; it runs in the lane. A cancel ends it; what was read stays in the cache. `whole`:
        `prefix` is all that `path` renders to. `turn`: what a question that goes on with this begins with, then
        `begun`; None: none waits for it. Raises BackendError."""
        await self._saver.spare(backend, cache, id)
        await self._routes.prepare(backend, cache, chosen, id, path, idle=True)
        slot = chosen.slot if chosen.way is Way.PIN else None
        prediction = cache.side_request("warm-up", id, prefix, slot, path[-1].digest.hex())
        cause = self._core.tracker.ended_since(path, cache.server)
        progress = PromptProgress(len(prefix), prediction.cached, prediction.cached, cause=cause)
        running = self._running = _Running(cache, id, turn, begun, progress)
        self._core.tracker.warms(id, progress)
        try:
            done = await cache.access.prefill(prefix, lambda progress: self._progressed(running, progress), slot)
            cache.simulated.ended(Tokens.unknown(1))
            if whole:
                cache.holds(id, tuple(node.digest.hex() for node in path))
            cached = prediction.cached if done.cached_tokens is None else done.cached_tokens
            if done.cached_tokens is not None:
                cache.simulated.heard(cached, counts=False)
            self._spent(id, cache, SpeedSample(cached, len(prefix), (done.prompt_ms or 0.0) / 1000))
        except asyncio.CancelledError:
            cache.side_request_cut(
                running.processed or None, lambda count: self._spent(id, cache, running.until(count))
            )
            raise
        except BackendError:
            if (last := running.heard) is not None:
                self._spent(id, cache, SpeedSample(last.cached, last.processed, last.elapsed_ms / 1000))
            cache.side_request_cut(running.processed)
            raise
        finally:
            if self._running is running:
                self._running = None
            self._core.tracker.warms("")
            self._core.events.tell(WarmthChanged())
        await cache.look()

    def _progressed(self, running: _Running, progress: PromptProgress) -> None:
        running.progressed(progress)
        self._core.tracker.warms(running.id, running.progress)
        if time.monotonic() - self._told_at >= TOLD_S:
            self._told_at = time.monotonic()
            self._core.events.tell(WarmthChanged())

    async def finished_for(
        self, lane: Lane, cache: ServerCache, turn: ChatTurn, heard: Callable[[PromptProgress], None]
    ) -> None:
        """Return when the warm-up that runs has ended, where the prompt of `turn` begins with what it prefills: the
        question then goes on in its slot. `heard` gets how far it is. Whoever is cancelled meanwhile ends it."""
        running = self._running
        if running is None or running.cache is not cache or not running.begins(turn):
            return
        running.listener = heard
        heard(running.progress)
        try:
            await lane.spare_ended()
        finally:
            await lane.stop_spare()

    def prefilled(self, id: str, cached: int) -> int:
        """How many of the first `cached` tokens of a question's prompt were prefilled since the answer before it, which
        starts again with this one."""
        return sum(max(0, min(end, cached) - start) for start, end in self._ahead.pop(id, ()))

    def _spent(self, id: str, cache: ServerCache, read: SpeedSample) -> None:
        """Note what was read ahead."""
        self._core.speeds.measured()
        self._count(id, cache.server, read)

    def _count(self, id: str, info: ServerInfo, read: SpeedSample) -> None:
        now = self._core.timestamp()
        if read.end > read.start:
            before = [(start, min(end, read.start)) for start, end in self._ahead.get(id, ()) if start < read.start]
            self._ahead[id] = [*before, (read.start, read.end)]
            self._core.in_background(
                self._core.writer.write(lambda: self._core.store.record_warmup(id, now, info.place, info.model, read))
            )

    async def ended(self) -> None:
        """Return when no warm-up runs, or waits for its time."""
        while running := {task for task in (self._rest, self._work) if task is not None and not task.done()}:
            await asyncio.wait(running)

    def rest(self) -> set[asyncio.Task[None]]:
        """Warm up no more; the tasks that are ended by that."""
        tasks = {task for task in (self._rest, self._work) if task is not None}
        for task in tasks:
            task.cancel()
        return tasks


SUPPLIES = Path("/sys/class/power_supply")


def on_battery(supplies: Path = SUPPLIES) -> bool:
    """Whether the battery is being used up. False where there is none, or that is not known."""
    if sys.platform == "darwin":
        try:
            found = subprocess.run(
                ["/usr/bin/pmset", "-g", "batt"], capture_output=True, text=True, timeout=2, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return "Battery Power" in found.stdout
    try:
        kinds = [
            (_read(supply / "type"), supply) for supply in supplies.iterdir() if _read(supply / "scope") != "Device"
        ]  # a mouse's battery is not this machine's
    except OSError:
        return False
    if any(kind != "Battery" and _read(supply / "online") == "1" for kind, supply in kinds):
        return False
    return any(kind == "Battery" and _read(supply / "status") == "Discharging" for kind, supply in kinds)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
