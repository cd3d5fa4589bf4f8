"""A cancelled request of ours keeps its slot until its batch is computed. What belongs there waits: else it goes into
an empty slot, and the whole conversation is prefilled. On a real server that is slowed down."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from causes.causes_kit import STEADY, WORDS
from remembering_kit import remembering

from engine_fixture import small_model
from kvchat.chat.cache import server_cache
from kvchat.chat.events import AnswerProgressed
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.token_ids import KnownIds
from kvchat.text.notes import note_sentence
from recorder import Recorded, Recorder, recording
from tiny_models import tiny_models
from tiny_server import TinyProcess, tiny_process

pytestmark = pytest.mark.engine

TINY, SMOL = "tiny", "SmolLM2"
SHAPES = {"2 slots": (2, False), "2 slots unified": (2, True), "4 slots": (4, False), "4 slots unified": (4, True)}
ALL = bool(os.environ.get("KVCHAT_FULL"))
LONG = WORDS * 120
"""About 2,000 tokens: one batch."""
CLOSE = 16
"""Tokens that may be evaluated beyond the new ones."""


@dataclass(slots=True)
class Desk:
    """A person with kvchat at a server that can be slowed down."""

    service: ChatService
    server: TinyProcess
    recorder: Recorder
    folder: Path
    waited: list[str] = field(default_factory=list)
    """What the screen said it waits for."""

    async def ask(self, id: str, question: str) -> TurnFigures:
        """Ask and wait for the answer."""
        await self.service.turns.send(id, Question(question))
        return await answered(self.service, id)

    async def stop_in_its_prefill(self, id: str, question: str) -> int:
        """Ask, and stop while the server computes the prompt's one batch. Tokens of the prompt."""
        await self.service.turns.send(id, Question(question))
        live = self.service.conversations.get(id).live
        await until(lambda: live.progress)
        await self.service.conversations.stop(id)
        assert not live.text, "the answer had begun: the test shows nothing"
        return live.progress.total

    async def prefilling(self, background: bool = False) -> Recorded:
        """The next request, once the server computes its prompt."""
        before = len(self.requests(background))
        await until(lambda: len(self.requests(background)) > before and self.requests(background)[-1].answer)
        return self.requests(background)[-1]

    def requests(self, background: bool) -> list[Recorded]:
        return self.recorder.background if background else self.recorder.chats

    def notes(self) -> list[tuple[str, str]]:
        """What kvchats have noted of cancelled requests."""
        return self.service.store.database.rows("SELECT key, value FROM setting WHERE key GLOB 'cancelled slots *'")

    @asynccontextmanager
    async def another(self) -> AsyncIterator[ChatService]:
        """Another kvchat on the same store."""
        async with remembering(
            self.recorder.base_url, self.folder, settings=self.service.settings, begin=False
        ) as service:
            service.core.settings = self.service.settings
            yield service


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@pytest.fixture(params=[(shape, TINY) for shape in (SHAPES if ALL else ("2 slots",))], ids=" on ".join)
async def desk(
    request: pytest.FixtureRequest, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Desk]:
    monkeypatch.setattr(server_cache, "LOOK_S", 0.5)  # a longer look would wait for the slot without a word
    (slots, unified), path = SHAPES[request.param[0]], model if request.param[1] == TINY else small_model()
    running = tiny_process(
        path, n_parallel=slots, kv_unified=unified, n_ctx=8192 * (1 if unified else slots), n_batch=8192, n_ubatch=256
    )
    server = await asyncio.to_thread(running.__enter__)
    try:
        settings = dataclasses.replace(Settings(), time_stamp=False)
        async with (
            recording(server.url) as recorder,
            remembering(recorder.base_url, tmp_path, settings=settings, begin=False) as service,
        ):
            service.core.settings = dataclasses.replace(service.settings, parameters=STEADY)
            desk = Desk(service, server, recorder, tmp_path)

            def look(event: object) -> None:
                if isinstance(event, AnswerProgressed):
                    live = service.conversations.get(event.conversation).live
                    desk.waited += [live.waiting.phase] if live and live.waiting else []

            service.events.subscribe(look)
            yield desk
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(240):
        while not holds():  # noqa: ASYNC110  (the server tells nobody)
            await asyncio.sleep(0.002)


async def answered(service: ChatService, id: str) -> TurnFigures:
    await service.conversations.wait(id)
    figures = service.conversations.get(id).path()[-1].figures
    assert figures is not None, service.conversations.get(id).path()[-1]
    return figures


def beyond(figures: TurnFigures, known: int) -> int:
    """Tokens that a turn evaluated beyond those that follow the first `known` of its prompt."""
    return figures.evaluated_tokens - (figures.prompt_tokens - known)


def desks(*shapes: str, model: str = TINY) -> pytest.MarkDecorator:
    """The servers that a test runs on."""
    return pytest.mark.parametrize(
        "desk", [(shape, model) for shape in (SHAPES if ALL else shapes)], indirect=True, ids=" on ".join
    )


async def begun(desk: Desk) -> str:
    """A conversation with a turn."""
    id = (await desk.service.new_conversations.create("Be brief.", reuse=False)).id
    await desk.ask(id, "Who keeps the light?")
    return id


@desks("2 slots", "4 slots unified")
async def test_esc_in_the_prefill_then_a_question(desk: Desk) -> None:
    id = await begun(desk)
    with desk.server.slowed():
        known = await desk.stop_in_its_prefill(id, LONG)
        figures = await desk.ask(id, "And then?")
    assert beyond(figures, known) <= CLOSE, figures
    assert "cancelled" in desk.waited, "the server was too quick: the test shows nothing"
    # None: a look took too long to tell what the cancelled one had left.
    assert figures.predicted_cached in (None, figures.cached_tokens)


async def test_esc_in_a_prefill_whose_tokens_come_late(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine: the slots are looked at before the prompt's token ids are known, and nothing was cached."""
    id = await begun(desk)
    cache = desk.service.servers.link().cache
    assert cache is not None
    tokens_of = cache.access.tokens_of

    async def late(text: str, known: KnownIds | None = None, then: str = "") -> object:
        await until(lambda: desk.service.conversations.get(id).live.progress)
        await cache.look()
        return await tokens_of(text, known, then)

    with desk.server.slowed():
        monkeypatch.setattr(cache.access, "tokens_of", late)
        known = await desk.stop_in_its_prefill(id, LONG)
        monkeypatch.setattr(cache.access, "tokens_of", tokens_of)
        figures = await desk.ask(id, "And then?")
    assert beyond(figures, known) <= CLOSE, figures


async def test_esc_in_the_prefill_then_regenerate(desk: Desk) -> None:
    id = await begun(desk)
    with desk.server.slowed():
        known = await desk.stop_in_its_prefill(id, LONG)
        await desk.service.turns.regenerate(id, desk.service.conversations.get(id).path()[-1].id)
        figures = await answered(desk.service, id)
    assert beyond(figures, known) <= CLOSE, figures


@pytest.mark.parametrize("look_s", [0.0, 0.02])
async def test_a_question_before_it_is_known_what_the_cancelled_one_left(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, look_s: float
) -> None:
    """As on a machine that is busy with something else: looks are given up."""
    id = await begun(desk)
    with desk.server.slowed():
        known = await desk.stop_in_its_prefill(id, LONG)
        monkeypatch.setattr(server_cache, "LOOK_S", look_s)
        figures = await desk.ask(id, "And then?")
    assert beyond(figures, known) <= CLOSE, figures


async def test_esc_twice_then_a_question(desk: Desk) -> None:
    """The second one is stopped while it waits: nothing of it was sent."""
    id = await begun(desk)
    with desk.server.slowed():
        known = await desk.stop_in_its_prefill(id, LONG)
        sent = len(desk.recorder.chats)
        await desk.service.turns.send(id, Question("And then?"))
        await until(lambda: "cancelled" in desk.waited)
        await desk.service.conversations.stop(id)
        assert len(desk.recorder.chats) == sent
        assert note_sentence(desk.service.conversations.get(id).path()[-1].note) == "Stopped before it was sent."
        figures = await desk.ask(id, "And now?")
    assert beyond(figures, known) <= CLOSE, figures


@desks("2 slots", model=SMOL)  # its instruction alone is a batch of seconds
async def test_a_question_that_cancels_memory_extraction(desk: Desk) -> None:
    id = await begun(desk)
    known = (await desk.ask(id, WORDS * 30 + "I prefer metric units.")).prompt_tokens
    with desk.server.slowed(6):
        desk.service.begin_background()
        desk.service.jobs.typed_at = 0.0
        await desk.service.extraction.request(id)
        extraction = await desk.prefilling(background=True)
        figures = await desk.ask(id, "And then?")
    assert extraction.ended is not None and not extraction.is_whole
    assert beyond(figures, known) <= CLOSE + 12, figures


@desks("2 slots", model=SMOL)  # its instruction alone is a batch of seconds
async def test_a_compaction_that_is_stopped_then_a_question(desk: Desk) -> None:
    id = await begun(desk)
    known = (await desk.ask(id, WORDS * 30)).prompt_tokens
    with desk.server.slowed(6):
        compacting = asyncio.create_task(desk.service.compactor.compact(id))
        await desk.prefilling()
        await desk.service.conversations.stop(id)
        assert await compacting is None
        figures = await desk.ask(id, "And then?")
    assert beyond(figures, known) <= CLOSE + 12, figures


async def test_the_warm_up_after_esc_waits_too(desk: Desk) -> None:
    id = await begun(desk)
    desk.service.warm_up.enabled = True
    with desk.server.slowed():
        known = await desk.stop_in_its_prefill(id, LONG)
        await until(lambda: not desk.service.servers.link().cache.cancelled.requests)
        figures = await desk.ask(id, "And then?")
        assert desk.service.store.warmups().tokens <= CLOSE
    assert beyond(figures, known) <= CLOSE, figures


async def test_another_conversation_in_another_slot_does_not_wait(desk: Desk) -> None:
    one = await begun(desk)
    other = (await desk.service.new_conversations.create("Tell me of lighthouses. " * 40, reuse=False)).id
    await desk.ask(other, "Who is there?")
    with desk.server.slowed():
        await desk.stop_in_its_prefill(one, LONG)
        desk.waited.clear()
        figures = await desk.ask(other, "And then?")
    assert "cancelled" not in desk.waited
    assert figures.wasted_tokens <= 1


async def test_a_kvchat_that_starts_anew_waits_for_what_the_last_one_cancelled(desk: Desk) -> None:
    id = await begun(desk)
    with desk.server.slowed():
        known = await desk.stop_in_its_prefill(id, LONG)
        await desk.service.aclose()
        async with desk.another() as service:
            await service.turns.send(id, Question("And then?"))
            figures = await answered(service, id)
    assert beyond(figures, known) <= CLOSE, figures


async def test_another_kvchat_waits_for_what_this_one_cancelled(desk: Desk) -> None:
    id = await begun(desk)
    async with desk.another() as service:
        await service.conversations.open(id)
        await service.tracker.cache_of(await service.servers.backend())
        with desk.server.slowed():
            known = await desk.stop_in_its_prefill(id, LONG)
            await until(lambda: any("slots" in note for _, note in desk.notes()))
            service.refresh()
            await service.turns.send(id, Question("And then?"))
            figures = await answered(service, id)
    assert beyond(figures, known) <= CLOSE, figures


async def test_nothing_waits_for_another_client(desk: Desk) -> None:
    """Another program writes on and on in the slot that ours was cancelled in."""
    id = await begun(desk)
    slot = desk.service.servers.link().cache.simulated.guesses.said.slot
    with desk.server.slowed():
        await desk.stop_in_its_prefill(id, LONG)
        await until(lambda: not desk.service.servers.link().cache.cancelled.requests)
    async with httpx.AsyncClient(timeout=None) as client:
        body = {"prompt": WORDS, "n_predict": 4000, "id_slot": slot, "ignore_eos": True, "stream": True}
        async with client.stream("POST", f"{desk.server.url}/completion", json=body) as answer:
            parts = answer.aiter_bytes()
            await anext(parts)
            figures = await desk.ask(id, "And then?")
            assert figures is not None
            await anext(parts)  # it still writes
