"""What is gone through for memories while a conversation rests, on real servers: the open one loses nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from remembering_kit import passed_over, remembering, said, until
from service_play import serving, shape_of

from engine_fixture import small_model
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.chat.background import consolidation, extraction_job
from kvchat.chat.background.extraction_job import LATER_S
from kvchat.chat.service import ChatService
from kvchat.figures.accounting import NOISE
from kvchat.reports.warmth import Heat
from recorder import Recorded, Recorder, recording
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
HEAD = "The lamp turned over the sea while the keeper wrote the log of the night. " * 100
ASKED = "Who keeps the log of the night while the rain falls on the old pier?"
OTHER = "Write one line about the hills behind the harbour and the boats there."
IDLE = 1.0
"""Stands for the 60 seconds of the settings."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "sliding"))


@dataclass
class Rested:
    """Two conversations that begin alike, of which one was left and the other one is open, when the server rests."""

    service: ChatService
    recorder: Recorder
    open: str
    left: str

    async def ask(self) -> int:
        """Tokens that the next turn of the open one wasted."""
        await said(self.service, self.open, "And who lights the lamp?")
        figures = self.service.conversations.get(self.open).path()[-1].figures
        assert figures is not None
        return figures.wasted_tokens or 0

    def extracted(self) -> list[str]:
        """Which of them were asked about, in this order."""
        return [self.open if _is_of(request, ASKED) else self.left for request in self.recorder.background]


def _is_of(request: Recorded, question: str) -> bool:
    return any(question.split(".")[0][:60] in str(message["content"]) for message in request.body["messages"])


@asynccontextmanager
async def rested(
    model: Path, shape: Shape, folder: Path, *, memory_of_open: bool = True, known: bool = True, ahead: bool = False
) -> AsyncIterator[Rested]:
    """`known`: kvchat need not guess what kind of server it is. `ahead`: it warms up."""
    async with (
        serving(model, shape, 4096 * shape.slots) as url,
        recording(url) as recorder,
        remembering(
            recorder.base_url, folder, reads_ahead=ahead, idle_seconds=IDLE, rest_seconds=IDLE, worth_tokens=10_000
        ) as service,
    ):
        if known:
            service.servers.link().connector.cache_shape = lambda: shape  # type: ignore[method-assign]
        mine = (await service.new_conversations.create(HEAD, reuse=False)).id
        await service.conversations.open(mine)
        if not memory_of_open:
            await service.extraction.set_memory(mine, False)
        for turn in range(3):
            await said(service, mine, f"{ASKED} ({turn})")
        other = (await service.new_conversations.create(HEAD, reuse=False)).id
        await service.conversations.open(other)
        for turn in range(2):
            await said(service, other, f"{OTHER} ({turn})")
        await service.conversations.open(mine)
        await said(service, mine, f"{ASKED} (back)")
        play = Rested(service, recorder, mine, other)
        await until(service, lambda: mine in play.extracted() or not memory_of_open)
        await asyncio.sleep(IDLE + LATER_S)  # what is left then waits for something to change
        await passed_over(service)
        yield play


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take something of the open conversation waits as long as the test runs."""
    for module in (extraction_job, consolidation):
        monkeypatch.setattr(module, "REST_TIMES", 10_000)


SERVERS = {
    "dense, 2 slots": ("dense", shape_of("dense", slots=2)),
    "dense, 2 slots, no host cache": ("dense", shape_of("dense", slots=2, ram=0)),
    "dense, 4 slots of one cache": ("dense", shape_of("dense", slots=4, unified=True)),
    "dense, 4 slots of one cache, no host cache": ("dense", shape_of("dense", slots=4, unified=True, ram=0)),
    "dense, 1 slot": ("dense", shape_of("dense")),
    "dense, 1 slot, no host cache": ("dense", shape_of("dense", ram=0)),
    "hybrid, 2 slots": ("hybrid", shape_of("hybrid", slots=2)),
    "hybrid, 2 slots, no host cache": ("hybrid", shape_of("hybrid", slots=2, ram=0)),
    "hybrid, 4 slots of one cache": ("hybrid", shape_of("hybrid", slots=4, unified=True)),
    "hybrid, 1 slot": ("hybrid", shape_of("hybrid")),
    "hybrid, 1 slot, no host cache": ("hybrid", shape_of("hybrid", ram=0)),
    "sliding window, 2 slots": ("sliding", shape_of("sliding", slots=2)),
    "sliding window, 1 slot": ("sliding", shape_of("sliding")),
}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", SERVERS)
async def test_the_open_conversation_goes_first_and_its_next_turn_wastes_nothing(
    models: dict[str, Path], tmp_path: Path, name: str
) -> None:
    kind, shape = SERVERS[name]
    async with rested(models[kind], shape, tmp_path) as play:
        first = play.recorder.background[0]
        spoken = play.recorder.chats[-1].figures
        held = spoken["cache_n"] + spoken["prompt_n"]
        assert play.extracted()[0] == play.open and first.figures["cache_n"] >= held - NOISE, (first.figures, held)
        alone = shape.slots == 1 and not shape.ram_bytes
        assert play.extracted()[1:] == ([] if alone else [play.left])
        assert await play.ask() <= NOISE


@pytest.mark.parametrize("name", ["dense, 2 slots", "hybrid, 2 slots", "dense, 4 slots of one cache", "dense, 1 slot"])
async def test_what_was_left_takes_nothing_where_the_open_one_has_been_gone_through(
    models: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """No request for the open one follows that would bring back what it lost."""
    kind, shape = SERVERS[name]
    async with rested(models[kind], shape, tmp_path, memory_of_open=False) as play:
        assert play.extracted() == [play.left]
        assert await play.ask() <= NOISE


@pytest.mark.parametrize(("name", "known"), [("dense, 1 slot, no host cache", True), ("dense, 1 slot", False)])
async def test_where_there_is_no_certain_way_it_is_done_after_a_longer_rest(
    models: dict[str, Path], tmp_path: Path, name: str, known: bool
) -> None:
    """And the open conversation is prefilled again behind it."""
    kind, shape = SERVERS[name]
    async with rested(models[kind], shape, tmp_path, known=known, ahead=True) as play:
        await until(play.service, lambda: play.left in play.extracted())
        await until(play.service, lambda: play.recorder.background[-1].ended is not None)
        await passed_over(play.service)
        await until(play.service, lambda: play.service.tracker.warmth(play.open).heat in (Heat.WARM, Heat.PARKED))
        assert await play.ask() <= NOISE


@pytest.mark.usefixtures("patient")
async def test_what_waits_for_the_only_slot_is_gone_through_when_the_user_opens_it(
    models: dict[str, Path], tmp_path: Path
) -> None:
    kind, shape = SERVERS["dense, 1 slot, no host cache"]
    async with rested(models[kind], shape, tmp_path) as play:
        assert play.extracted() == [play.open]
        await play.service.conversations.open(play.left)
        play.service.jobs.typed_at = 0.0
        await until(play.service, lambda: play.extracted() == [play.open, play.left])


@pytest.mark.usefixtures("patient")
async def test_what_the_user_asks_for_is_gone_through_at_once(models: dict[str, Path], tmp_path: Path) -> None:
    kind, shape = SERVERS["dense, 1 slot, no host cache"]
    async with rested(models[kind], shape, tmp_path) as play:
        await play.service.extraction.request(play.left)
        await until(play.service, lambda: play.extracted() == [play.open, play.left])
