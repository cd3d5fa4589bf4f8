"""The states of one request to a server whose cache is followed: what is known in each, and what is played."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from service_play import until

from kvchat.backends.dialect import ChatTurn, HostClass, PromptShown, ServerInfo
from kvchat.cache import Cache, Rewind, Shape, SlotCount, Tokens
from kvchat.chat.cache import server_cache
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.tracked_turn import (
    PredictedRequest,
    PreparedRequest,
    ReportedRequest,
    SentRequest,
    TokenizedRequest,
    TrackedTurn,
)
from kvchat.chat.cache.turn_journal import TurnJournal
from kvchat.chat.events import EventBus
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.message import Message, Node, Role, node
from kvchat.prompt.prefilled_before import NOTHING_PREFILLED


class Server:
    """Each character is a token. Its template puts `frame` before the messages; it renders when it `may`, and an empty
    prompt when it `may_begin`; `shows` are its slots."""

    def __init__(self) -> None:
        self.frame = "Q: "
        self.may = asyncio.Event()
        self.may_begin, self.shows = asyncio.Event(), asyncio.Event()
        self.begins = self.looks = 0
        for event in (self.may, self.may_begin, self.shows):
            event.set()

    async def prompt_text(self, turn: ChatTurn) -> str:
        await self.may.wait()
        if not turn.wires:
            self.begins += 1
            await self.may_begin.wait()
        return self.frame + "|".join(wire.decode() for wire in turn.wires)

    async def tokens_of(self, text: str, known: object = None, then: str = "") -> Tokens:
        return Tokens(map(ord, text))

    async def slot_counts(self) -> list[SlotCount]:
        self.looks += 1
        await self.shows.wait()
        return [SlotCount(0, None, False)]


class Talk:
    """Questions to a server, by the doors of the cache."""

    def __init__(self, shape: Shape | None = None) -> None:
        self.server, self.path = Server(), list[Node]()
        ground = SimpleNamespace(events=EventBus(), timestamp=lambda: 1.0)
        info = ServerInfo("llama.cpp", "http://127.0.0.1:1", HostClass.LOOPBACK)
        journal = TurnJournal(lambda: 1.0)
        simulated = Cache(known=shape or Shape(), journal=journal.log)
        self.cache = ServerCache(self.server, info, simulated, journal, ground)  # type: ignore[arg-type]

    async def prepared(self, question: str) -> PreparedRequest:
        asked = node(None, Message(Role.USER, question), 1.0)
        turn = ChatTurn((asked.wire,), "one", "toy")
        return await self.cache.before(turn, [asked], NOTHING_PREFILLED, emit=lambda event: None)

    async def sent(self, question: str) -> TrackedTurn:
        return self.cache.sent(await self.prepared(question))


async def state(tracked: TrackedTurn, kind: type[SentRequest]) -> SentRequest:
    await until(lambda: type(tracked.request) is kind)
    return tracked.request


async def test_a_request_goes_from_state_to_state() -> None:
    talk = Talk()
    talk.server.may.clear()
    prepared = await talk.prepared("One?")
    tracked = talk.cache.sent(prepared)
    sent = tracked.request
    assert type(sent) is SentRequest and (sent.turn, sent.path) == (prepared.turn, prepared.path)
    assert (sent.tokens, sent.rendered, sent.prediction, sent.denied) == (None, "", None, None)
    talk.server.may.set()
    predicted = await state(tracked, PredictedRequest)
    assert predicted.tokens is not None and len(predicted.tokens) == len(predicted.rendered)
    figures = TurnFigures(prompt_tokens=len(predicted.tokens), cached_tokens=0)
    figures = await talk.cache.ended(tracked, figures) or figures
    assert type(tracked.request) is ReportedRequest and figures.predicted_cached == 0
    assert tracked.request.number == sent.number and tracked.request.before is not None


async def test_a_prompt_that_the_server_shows_otherwise_is_played_anew() -> None:
    talk = Talk()
    tracked = await talk.sent("One?")
    first = await state(tracked, PredictedRequest)
    talk.server.frame = "Today: "
    shown = await talk.server.prompt_text(first.turn)
    talk.cache.shown(tracked, PromptShown(shown), "")
    await talk.cache.ended(tracked, TurnFigures(prompt_tokens=len(shown), cached_tokens=0))
    assert tracked.request.rendered == shown and tracked.request.number == first.number
    assert tracked.request.tokens == Tokens(map(ord, shown))
    assert isinstance(tracked.request, PredictedRequest) and not tracked.request.altered


async def test_a_prompt_that_something_changed_on_its_way_is_played_as_the_template_makes_it() -> None:
    talk = Talk()
    tracked = await talk.sent("One?")
    rendered = (await state(tracked, PredictedRequest)).rendered
    talk.cache.shown(tracked, PromptShown("somebody else's"), "")
    await talk.cache.ended(tracked, TurnFigures(prompt_tokens=len(rendered), cached_tokens=0))
    assert type(tracked.request) is ReportedRequest and tracked.request.rendered == rendered


async def test_tokens_that_come_when_nobody_waits_for_them_any_more_are_not_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next request is prepared: what began now would never end."""
    talk = Talk()
    talk.server.may.clear()
    first = await talk.sent("One?")
    monkeypatch.setattr(server_cache, "LOOK_S", 0.0)  # the next one does not wait
    preparing = await talk.prepared("Two?")
    talk.server.may.set()
    late = await state(first, TokenizedRequest)
    for _ in range(20):
        await asyncio.sleep(0)
    assert late.tokens is not None and first.request.prediction is None and talk.cache.simulated.running is None
    second = talk.cache.sent(preparing)
    assert (await state(second, PredictedRequest)).prediction is not None
    assert talk.cache.plays(second) and not talk.cache.plays(first)


async def test_what_is_never_sent_is_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    talk = Talk()
    first = await talk.sent("One?")
    await state(first, PredictedRequest)
    monkeypatch.setattr(server_cache, "LOOK_S", 0.0)  # the next one does not wait
    await talk.prepared("Two?")
    assert talk.cache.plays(first) and talk.cache.simulated.running is None


async def test_a_refused_request_is_not_played() -> None:
    talk = Talk()
    first = await talk.sent("One?")
    await state(first, PredictedRequest)
    talk.cache.refused()
    assert not talk.cache.plays(first) and talk.cache.simulated.running is None
    assert await talk.cache.ended(first, None) is None


async def test_figures_that_come_while_another_request_is_played_are_not_its(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slots are asked who answered; the next request goes out meanwhile."""
    talk = Talk()
    first = await talk.sent("One?")
    length = len((await state(first, PredictedRequest)).tokens or ())
    reported = TurnFigures(prompt_tokens=length, cached_tokens=9)
    talk.server.shows.clear()
    monkeypatch.setattr(server_cache, "LOOK_S", 60.0)
    ending = asyncio.create_task(talk.cache.ended(first, reported))
    await until(lambda: talk.server.looks == 2)
    monkeypatch.setattr(server_cache, "LOOK_S", 0.0)  # the next one does not wait
    second = await talk.sent("Two?")
    await state(second, PredictedRequest)
    talk.server.shows.set()
    figures = await ending
    assert figures is not None and figures.predicted_cached is None and type(first.request) is PredictedRequest
    assert talk.cache.simulated.predictions == 0
    await talk.cache.ended(second, replace(reported, cached_tokens=0))
    assert type(second.request) is ReportedRequest and talk.cache.simulated.predictions == 1


async def test_a_request_that_is_over_while_its_template_is_looked_at_is_not_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = Talk(Shape(rewind=Rewind.NOWHERE))
    talk.server.may_begin.clear()
    first = await talk.sent("One?")
    await until(lambda: talk.server.begins == 1)
    monkeypatch.setattr(server_cache, "LOOK_S", 0.0)  # the next one does not wait
    preparing = await talk.prepared("Two?")
    talk.server.may_begin.set()
    second = talk.cache.sent(preparing)
    assert (await state(second, PredictedRequest)).prediction is not None
    assert first.request.prediction is None
