"""The service on a real server with a tiny model: turns whose answers are the same every time, and what they cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kvchat.backends.dialect import PrefillResult
from kvchat.cache import SlotCount
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.prompt.message import Role
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import WINDOW
from tiny_server import tiny_server

WORDS = ("the", "sea", "is", "wide", "and", "old", "boats", "drift", "under", "a", "pale", "moon", "while", "rain")
REWINDS = {"sliding": Rewind.WINDOW, "hybrid": Rewind.NOWHERE}


def shape_of(kind: str, *, slots: int = 1, unified: bool = False, ram: int = 8192, batch: int = 64) -> Shape:
    """The cache of a tiny server of this kind."""
    rewind = REWINDS.get(kind, Rewind.ANYWHERE)
    return Shape(
        slots=slots,
        unified=unified,
        ram_bytes=ram << 20,
        rewind=rewind,
        batch=batch,
        micro_batch=batch,
        window=WINDOW if rewind is Rewind.WINDOW else 0,
    )


@asynccontextmanager
async def serving(model: Path, shape: Shape, context: int = 8192, **options: object) -> AsyncIterator[str]:
    """A tiny server whose cache has this shape; `context` tokens in all."""
    set_by_shape: dict[str, object] = {
        "n_parallel": shape.slots,
        "kv_unified": shape.unified,
        "n_batch": shape.batch,
        "n_ubatch": shape.micro_batch,
        "cache_ram_mib": (shape.ram_bytes or 0) >> 20,
    }
    server = tiny_server(model, n_ctx=context, **set_by_shape | options)
    url = await asyncio.to_thread(server.__enter__)
    try:
        yield url
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


@dataclass(slots=True)
class Ahead:
    """One request that reads ahead."""

    prompt: Tokens
    slot: int
    cached: int
    """Tokens of it that were reused."""
    reached: int = 0
    """Tokens that were in when it ended, as the slot says afterwards."""
    done: bool = False

    @property
    def evaluated(self) -> int:
        return max(0, self.reached - self.cached)


@dataclass(slots=True)
class Play:
    """A service, and the turns that were played on it."""

    service: ChatService
    ahead: list[Ahead] = field(default_factory=list)
    turns: list[TurnFigures] = field(default_factory=list)

    @property
    def cache(self) -> ServerCache:
        assert self.service.servers.link().cache is not None
        return self.service.servers.link().cache

    async def begin(self) -> None:
        """Connect; every answer is then made of the same word, so that conversations are the same in every run."""
        await self.service.servers.connect()
        backend = await self.service.servers.link().connector.ready()
        cache = await self.service.tracker.cache_of(backend)
        assert cache is not None
        (word,) = list(await cache.access.tokens_of(" the"))
        self.service.core.settings = replace(
            self.service.settings,
            parameters=Parameters(temperature=0.0, max_tokens=12, extra={"logit_bias": [[word, 100]]}),
        )
        self._record(cache)

    def _record(self, cache: ServerCache) -> None:
        """Note every request that reads ahead, and how far it came: what is seen of the slots next tells, before
        anything else is sent."""
        real, observe = cache.access.prefill, cache._observe
        open_: list[tuple[Ahead, tuple[int | None, ...]]] = []

        async def prefill(
            prompt: Tokens, progressed: Callable[[PromptProgress], None], slot: int | None = None
        ) -> PrefillResult:
            said = cache.simulated.guesses.said
            assert said is not None
            self.ahead.append(this := Ahead(prompt, said.slot, said.cached))
            open_.append((this, cache.slots.tasks))

            def heard(progress: PromptProgress) -> None:
                this.cached, this.reached = progress.cached, progress.processed
                progressed(progress)

            found = await real(prompt, heard, slot)
            this.cached, this.reached, this.done = found.cached_tokens or 0, len(prompt), True
            open_.pop()
            return found

        def observed(counts: Sequence[SlotCount], slot: int | None = -1, left: int = 0) -> None:
            observe(counts, slot, left)
            if counts:
                for this, tasks in open_:
                    if tasks != cache.slots.tasks:
                        this.reached = max(this.reached, min(len(this.prompt), counts[this.slot].tokens))
                open_.clear()

        cache.access.prefill = prefill  # type: ignore[method-assign]
        cache._observe = observed  # type: ignore[method-assign]

    async def say(self, id: str, text: str) -> TurnFigures:
        await self.service.turns.send(id, Question(text))
        return await self.answered(id)

    async def answered(self, id: str) -> TurnFigures:
        """The figures of the answer on its way."""
        await self.service.conversations.wait(id)
        await self.cache.settled()
        figures = self.service.conversations.get(id).path()[-1].figures  # type: ignore[union-attr]
        assert figures is not None, self.service.conversations.get(id).path()[-1]  # type: ignore[union-attr]
        self.turns.append(figures)
        return figures

    def questions(self, id: str) -> list[str]:
        """The ids of the questions on the branch in use."""
        conversation = self.service.conversations.get(id)
        assert conversation is not None
        return [node.id for node in conversation.path() if node.role is Role.USER]

    @property
    def spent(self) -> int:
        """Tokens read in all: by turns, and ahead of them."""
        return sum(f.evaluated_tokens or 0 for f in self.turns) + self.service.store.warmups().tokens


@asynccontextmanager
async def playing(
    url: str, folder: Path, shape: Shape | None = None, *, ahead: bool = False, files: Path | None = None
) -> AsyncIterator[Play]:
    """A service on the server at `url`; where its `shape` is given, it is known as the embedded engine's is. `files`:
    the folder that the server saves slots to."""
    settings = changed(Settings(), "server.base_url", url)
    if files is not None:
        settings = changed(settings, "server.snapshot_folder", str(files))
    kept = folder if files is not None else None
    service = ChatService(Store.open(folder), settings, snapshots=kept and kept / "snapshots")
    if shape is not None:
        service.servers.link().connector.cache_shape = lambda: shape  # type: ignore[method-assign]
    service.warm_up.enabled = ahead
    play = Play(service)
    try:
        await play.begin()
        yield play
    finally:
        await service.aclose()


def text(chance: random.Random, words: Sequence[int]) -> str:
    """Some words, as many as one of `words`."""
    return " ".join(chance.choice(WORDS) for _ in range(chance.choice(words)))


async def until(true: Callable[[], bool]) -> None:
    """Return when it is true, at the first chance."""
    for _ in range(1_000_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")
