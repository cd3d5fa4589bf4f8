"""Reading ahead on real servers with tiny models: when it happens, when it does not, and that it never costs a turn."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Play, playing, serving, shape_of, text, until
from warmup_walk import played, told

from engine_fixture import small_model
from kvchat.backends.dialect import PrefillResult, Trouble, failure
from kvchat.cache import SlotCount
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache import warm_up
from kvchat.chat.cache.tracked_turn import TrackedTurn
from kvchat.chat.cache.warm_up import on_battery
from kvchat.chat.question import Question
from kvchat.config import changed
from kvchat.figures.accounting import PromptProgress
from kvchat.figures.speed import SpeedFit, SpeedSample
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import State
from kvchat.text.cache import answer_words
from kvchat.text.faults import Fault
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
ALONE = shape_of("dense", ram=0)
"""One slot, and nothing is parked: whatever was not used last is cold."""
LONG = "The lamp turned over the sea while the keeper wrote the log of the night. " * 30
Start = Callable[..., AbstractAsyncContextManager[Play]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "forgetful"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for, and the mains are plugged in."""
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    monkeypatch.setattr(warm_up, "on_battery", lambda: False)


@pytest.fixture
def start(models: dict[str, Path], tmp_path: Path) -> Start:
    @asynccontextmanager
    async def start(shape: Shape = ALONE, kind: str = "dense", *, ahead: bool = True) -> AsyncIterator[Play]:
        async with serving(models[kind], shape) as url, playing(url, tmp_path / "data", shape, ahead=ahead) as play:
            yield play

    return start


async def rested(play: Play) -> None:
    """Wait until everything that is to be read ahead has been."""
    await play.service.warm_up.ended()


async def cold(play: Play, system: str = LONG) -> str:
    """A conversation with one turn, that is cold because another one was asked after it; the other one is looked at."""
    ahead, play.service.warm_up.enabled = play.service.warm_up.enabled, False
    first = await play.service.new_conversations.create(system, reuse=False)
    await play.say(first.id, "One?")
    other = await play.service.new_conversations.create("Be brief.", reuse=False)
    await play.say(other.id, LONG)
    play.service.warm_up.enabled = ahead
    return first.id


# -- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
async def test_a_send_at_any_moment_never_reads_more_than_without_reading_ahead(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    found = await played(models[kind], shape_of(kind, ram=0), tmp_path, 20, 7)
    assert all(timing.more <= 0 for timing in found), told(kind, found)
    assert all(timing.exact for timing in found), told(kind, found)
    assert any(timing.ahead for timing in found), told(kind, found)


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
async def test_a_switch_while_reading_ahead_costs_the_other_conversation_nothing_where_states_are_parked(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    found = await played(models[kind], shape_of(kind, slots=2), tmp_path, 20, 8, switch=True)
    assert all(timing.turn <= timing.alone for timing in found), told(kind, found)
    assert all(timing.exact for timing in found), told(kind, found)


async def test_its_tokens_stand_in_a_line_of_their_own(start: Start) -> None:
    async with start() as play:
        id = await cold(play)
        before = play.service.store.warmups()
        await play.service.conversations.open(id)
        await rested(play)
        figures = await play.say(id, "Two?")
        await rested(play)
        ledger = play.service.store.warmups(0.0, id)
        assert before.tokens == 0 and ledger.tokens == sum(ahead.evaluated for ahead in play.ahead) > 300
        assert figures.evaluated_tokens is not None and figures.evaluated_tokens < 40
        assert figures.evaluated_tokens + figures.cached_tokens == figures.prompt_tokens  # type: ignore[operator]


async def test_a_cancelled_one_is_counted_as_far_as_it_came(start: Start) -> None:
    async with start() as play:
        id = await cold(play, LONG * 4)
        await play.service.conversations.open(id)
        await until(lambda: bool(play.ahead and play.ahead[-1].reached))
        await play.service.servers.link().lane.stop_spare()
        figures = await play.say(id, "Two?")
        (made,) = play.ahead[-1:]
        assert 0 < made.reached < len(made.prompt)
        assert play.service.store.warmups(0.0, id).tokens == made.evaluated
        assert figures.cached_tokens == figures.predicted_cached == made.reached


@pytest.mark.parametrize("attached", [True, False])
async def test_a_question_goes_on_with_its_own(start: Start, attached: bool) -> None:
    """One wait with one bar; the figures stay the server's, and what was prefilled for it is told with them."""
    async with start() as play:
        id, blocks = await cold(play, LONG if attached else LONG * 4), [ContextBlock("paste", "log", LONG * 3)]
        bars: list[PromptProgress] = []
        earlier = 0
        await play.service.conversations.open(id)
        if attached:
            await rested(play)
            earlier = sum(ahead.evaluated for ahead in play.ahead)  # of the history
            play.ahead.clear()
            play.service.warm_up.prepare(id, blocks)
        await until(lambda: bool(play.ahead and play.ahead[-1].reached))
        (made,) = play.ahead[-1:]
        assert not made.done
        play.service.warm_up.sent.add(id)
        play.service.warm_up.prepare(id, ())  # the composer is empty when it is sent
        await play.service.turns.send(id, Question("Two?", tuple(blocks) if attached else ()))
        play.service.warm_up.sent.discard(id)
        conversation = play.service.conversations.loaded[id]
        live = conversation.live
        assert live is not None
        await until(lambda: (bars.append(live.prefill) if live.prefill else None) or live.ended is not None)  # type: ignore[func-returns-value]
        figures = await play.answered(id)
        assert made.done and play.ahead[-1] is made
        assert figures.cached_tokens == figures.predicted_cached == len(made.prompt)
        assert figures.ahead_tokens == earlier + made.evaluated > 1_000
        assert f"{earlier + made.evaluated:,} prefilled while you typed" in answer_words(figures)
        assert {bar.cached for bar in bars} == {made.cached}, "one bar, from where its warm-up began"
        done = [bar.processed for bar in bars]
        assert done == sorted(done) and done[0] < len(made.prompt) < done[-1] == figures.prompt_tokens
        stored = play.service.store.tree(id)[conversation.path()[-1].id].figures
        assert stored is not None and stored.ahead_tokens == figures.ahead_tokens


@pytest.mark.parametrize("instead", ["another text", "nothing", "another conversation"])
async def test_another_question_does_not_wait_for_it(start: Start, instead: str) -> None:
    async with start() as play:
        id = await cold(play)
        other = next(record.id for record in play.service.conversations.all() if record.id != id)
        await play.service.conversations.open(id)
        await rested(play)
        play.ahead.clear()
        play.service.warm_up.prepare(id, [ContextBlock("paste", "log", LONG * 4)])
        await until(lambda: bool(play.ahead and not play.ahead[-1].done and play.ahead[-1].reached))
        (made,) = play.ahead[-1:]
        asked = other if instead == "another conversation" else id
        block = ContextBlock("paste", "log", "Another one.")
        await play.service.turns.send(asked, Question("Two?", (block,) if instead == "another text" else ()))
        figures = await play.answered(asked)
        assert not made.done
        assert figures.ahead_tokens is None or instead != "another conversation"


async def test_stopping_a_question_ends_the_warm_up_that_it_waits_for(start: Start) -> None:
    async with start() as play:
        id = await cold(play, LONG * 4)
        await play.service.conversations.open(id)
        await until(lambda: bool(play.ahead and play.ahead[-1].reached))
        await play.service.turns.send(id, Question("Two?"))
        live = play.service.conversations.loaded[id].live
        assert live is not None
        await until(lambda: live.ahead is not None)
        await play.service.conversations.stop(id)
        await play.service.conversations.wait(id)
        answer = play.service.conversations.loaded[id].path()[-1]
        assert answer.state is State.CANCELLED and answer.figures is None
        assert not play.ahead[-1].done and play.service.servers.link().lane.is_free


async def test_typing_and_work_on_other_conversations_do_not_stop_it(start: Start) -> None:
    async with start() as play:
        id = await cold(play, LONG * 4)
        await play.service.conversations.open(id)
        await until(lambda: bool(play.ahead and play.ahead[-1].reached))
        other = next(record.id for record in play.service.conversations.all() if record.id != id)
        play.service.warm_up.typing_began(id)
        await play.service.conversations.set_draft(id, "What about")
        await play.service.conversations.rename(other, "Another title")
        await until(lambda: play.ahead[-1].done)
        assert len(play.ahead) == 1


async def test_one_that_never_reached_the_server_changes_nothing(start: Start) -> None:
    async with start() as play:
        id = await cold(play)
        other = next(record.id for record in play.service.conversations.all() if record.id != id)

        async def never(*given: Any) -> None:
            await asyncio.Event().wait()

        play.cache.access.prefill = never  # type: ignore[method-assign, assignment]
        await play.service.conversations.open(id)
        await until(lambda: play.service.tracker.warming == id)
        figures = await play.say(other, "Two?")
        assert figures.cached_tokens == figures.predicted_cached and figures.evaluated_tokens < 40  # type: ignore[operator]
        assert play.service.store.warmups().tokens == 0


Ahead = Callable[[Tokens, Callable[[PromptProgress], None]], Awaitable[Any]]


async def cut(play: Play, id: str, ahead: Ahead, came: int = 0) -> tuple[int, SpeedFit | None]:
    """Have a cold conversation warmed up by `ahead` and end it; `came`: the tokens that its slot has afterwards. Gives
    the tokens that the ledger counts, and the speed then."""
    seen: list[Tokens] = []

    async def prefill(prompt: Tokens, progressed: Callable[[PromptProgress], None], slot: int | None = None) -> Any:
        seen.append(prompt)
        return await ahead(prompt, progressed)

    async def slots() -> list[SlotCount]:
        return [SlotCount(came, 9_999)]

    cache, spare = play.cache, play.service.servers.link().lane
    cache.access.prefill = prefill  # type: ignore[method-assign, assignment]
    await play.service.conversations.open(id)
    await until(lambda: bool(seen))
    if came:
        cache.access.slot_counts = slots  # type: ignore[method-assign]
    await spare.stop_spare()
    await cache.cancelled.free()
    await rested(play)
    await play.service.core.writer.write(lambda: None)  # what was noted is stored
    play.service.speeds.measured()
    return play.service.store.warmups().tokens, play.service.speeds.fit(id)


async def test_one_cut_in_its_first_batch_says_nothing_of_speed(start: Start) -> None:
    """The server's batch ends long after the request: its tokens in the request's time were 21,176 tok/s."""
    async with start() as play:
        id = await cold(play)
        before = play.service.speeds.fit(id)

        async def unheard(prompt: Tokens, progressed: Callable[[PromptProgress], None]) -> None:
            await asyncio.Event().wait()

        tokens, speed = await cut(play, id, unheard, came=300)
        assert tokens >= 290 and speed == before


async def test_one_cut_later_counts_its_last_batch_at_the_speed_of_those_before(start: Start) -> None:
    async with start() as play:
        id = await cold(play)

        async def heard(prompt: Tokens, progressed: Callable[[PromptProgress], None]) -> None:
            progressed(PromptProgress(len(prompt), 0, 100, elapsed_ms=2_000.0))
            await asyncio.Event().wait()

        tokens, _ = await cut(play, id, heard, came=300)
        (sample,) = play.service.store.warmup_samples(*place_of(play))
        assert tokens == 300 and sample == SpeedSample(0, 300, 6.0)


@pytest.mark.parametrize("batches", [0, 1])
async def test_one_that_failed_counts_as_what_it_did(start: Start, batches: int) -> None:
    """Whatever its slot holds afterwards: another client may have used it."""
    async with start() as play:
        id = await cold(play)
        before = play.service.speeds.fit(id)

        async def refused(prompt: Tokens, progressed: Callable[[PromptProgress], None]) -> None:
            for _ in range(batches):
                progressed(PromptProgress(len(prompt), 0, 100, elapsed_ms=2_000.0))
            raise failure(Trouble.REFUSED, Fault.TOLD, sentence="Busy.")

        tokens, speed = await cut(play, id, refused, came=400)
        assert tokens == 100 * batches
        samples = play.service.store.warmup_samples(*place_of(play))
        assert samples == [SpeedSample(0, 100, 2.0)] * batches and (speed == before or batches)


async def test_a_whole_one_is_timed_by_the_server(start: Start) -> None:
    """Its own time would count how long it waited for another client's request."""
    async with start() as play:
        id = await cold(play)

        async def whole(prompt: Tokens, progressed: Callable[[PromptProgress], None]) -> PrefillResult:
            return PrefillResult(len(prompt), 0, 0, 4_000.0)

        tokens, _ = await cut(play, id, whole)
        assert play.service.store.warmup_samples(*place_of(play)) == [SpeedSample(0, tokens, 4.0)]


def place_of(play: Play) -> tuple[str, str]:
    info = play.service.servers.link().info
    assert info is not None
    return info.place, info.model


# -- when it is done -------------------------------------------------------------------------------------------------


async def test_a_cold_conversation_is_read_ahead_when_it_is_opened(start: Start) -> None:
    async with start() as play:
        id = await cold(play)
        await play.service.conversations.open(id)
        await rested(play)
        assert len(play.ahead) == 1
        assert (await play.say(id, "Two?")).evaluated_tokens < 20  # type: ignore[operator]


async def test_a_warm_conversation_is_left_alone(start: Start) -> None:
    async with start() as play:
        conversation = await play.service.new_conversations.create(LONG)
        await play.say(conversation.id, "One?")
        await rested(play)
        play.ahead.clear()
        await play.service.conversations.open(conversation.id)
        await rested(play)
        assert play.ahead == []


async def test_a_new_conversations_system_prompt_is_read_ahead(start: Start) -> None:
    async with start() as play:
        conversation = await play.service.new_conversations.create(LONG)
        await rested(play)
        assert len(play.ahead) == 1 and play.ahead[0].evaluated > 400
        assert (await play.say(conversation.id, "One?")).cached_tokens == len(play.ahead[0].prompt)


async def test_what_a_template_drops_from_an_answer_is_read_ahead_after_it(start: Start) -> None:
    async with start(kind="forgetful") as play:
        conversation = await play.service.new_conversations.create("Be brief.")
        await play.service.options.set_template_options(
            conversation.id, {"preserve_reasoning": False, "enable_thinking": False}
        )
        await play.service.options.set_parameters(
            conversation.id, replace(play.service.settings.parameters, max_tokens=60)
        )
        await play.say(conversation.id, LONG)
        await rested(play)
        play.ahead.clear()
        await play.say(conversation.id, LONG)
        await rested(play)
        (made,) = play.ahead
        assert made.evaluated > 10, "the answer, without what stood in front of it"
        figures = await play.say(conversation.id, "Three?")
        assert figures.evaluated_tokens < 20, figures  # type: ignore[operator]


async def test_an_attachment_is_read_ahead_while_the_question_is_typed(start: Start) -> None:
    async with start() as play:
        conversation = await play.service.new_conversations.create("Be brief.")
        await play.say(conversation.id, "One?")
        await rested(play)
        block = ContextBlock("file", "log.txt", LONG)
        play.service.warm_up.prepare(conversation.id, [block])
        await rested(play)
        assert play.ahead[-1].evaluated > 400
        await play.service.turns.send(conversation.id, Question("What is in it?", (block,)))
        assert (await play.answered(conversation.id)).evaluated_tokens < 30  # type: ignore[operator]


async def test_the_conversation_that_is_looked_at_is_read_ahead_when_another_ones_answer_ends(start: Start) -> None:
    async with start() as play:
        id = await cold(play)
        other = await play.service.new_conversations.create("Be brief, too.", reuse=False)
        await rested(play)
        play.ahead.clear()
        await play.service.turns.send(other.id, Question("One?"), parameters=long_answer(play))
        await play.service.conversations.open(id)
        await rested(play)
        assert play.ahead == []
        await play.service.conversations.wait(other.id)
        await rested(play)
        assert len(play.ahead) == 1 and (await play.say(id, "Two?")).evaluated_tokens < 20  # type: ignore[operator]


# -- when it is not --------------------------------------------------------------------------------------------------


def long_answer(play: Play):  # type: ignore[no-untyped-def]
    return replace(play.service.settings.parameters, max_tokens=400)


async def test_nothing_is_read_ahead_while_another_conversation_streams(start: Start) -> None:
    async with start(shape_of("dense", slots=2)) as play:
        id = await cold(play)
        other = await play.service.new_conversations.create("Be brief, too.", reuse=False)
        await rested(play)
        play.ahead.clear()
        await play.service.turns.send(other.id, Question("One?"), parameters=long_answer(play))
        for _ in range(5):
            await play.service.conversations.open(id)
            await rested(play)
            assert other.id in play.service.conversations.streaming() and play.ahead == []
        await play.service.conversations.stop(other.id)


@pytest.mark.parametrize("why", ["setting", "battery", "nobody"])
async def test_it_can_be_off(start: Start, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    async with start() as play:
        id = await cold(play)
        if why == "setting":
            play.service.core.settings = changed(play.service.settings, "cache.warm_up", False)
        elif why == "battery":
            monkeypatch.setattr(warm_up, "on_battery", lambda: True)
        else:
            play.service.warm_up.enabled = False
        await play.service.conversations.open(id)
        await rested(play)
        assert play.ahead == []
        if why == "battery":
            play.service.core.settings = changed(play.service.settings, "cache.warm_up_on_battery", True)
            await play.service.conversations.open(id)
            await rested(play)
            assert len(play.ahead) == 1


@pytest.mark.parametrize(
    ("supplies", "found"),
    [
        ({}, False),
        ({"AC": {"type": "Mains", "online": "1"}, "BAT0": {"type": "Battery", "status": "Discharging"}}, False),
        ({"AC": {"type": "Mains", "online": "0"}, "BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"AC": {"type": "Mains", "online": "0"}, "BAT0": {"type": "Battery", "status": "Full"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Discharging\n"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Charging"}, "usb": {"type": "USB", "online": "1"}}, False),
        ({"mouse": {"type": "Battery", "scope": "Device", "status": "Discharging"}}, False),
        ({"odd": {}, "BAT1": {"type": "Battery"}}, False),
    ],
)
def test_the_battery_is_known_by_what_the_system_says(
    tmp_path: Path, supplies: dict[str, dict[str, str]], found: bool
) -> None:
    for name, values in supplies.items():
        (tmp_path / name).mkdir()
        for key, value in values.items():
            (tmp_path / name / key).write_text(value)
    assert on_battery(tmp_path) is found
    assert not on_battery(tmp_path / "nothing here")


# -- a send goes first -----------------------------------------------------------------------------------------------


class Proxy:
    """Passes connections on, and notes which requests for reading ahead are open when a chat request begins."""

    def __init__(self, url: str) -> None:
        self.to = urlsplit(url)
        self.chats = 0
        self.beside: list[str] = []
        """The requests that a chat request has found open."""
        self._ahead: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def passing(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        head = await client.readuntil(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].decode()
        if path.endswith("/chat/completions"):
            self.chats += 1
            self.beside += ["/completion" for connection in self._ahead if not gone(*connection)]
        elif path.endswith("/completion"):
            self._ahead.append((client, back))
        server, on = await asyncio.open_connection(self.to.hostname, self.to.port)
        on.write(head)

        async def answer() -> None:
            while data := await server.read(65536):
                back.write(data)
            back.close()

        answering = asyncio.create_task(answer())
        self._tasks.add(answering)
        while data := await client.read(65536):
            on.write(data)
        on.close()


def gone(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> bool:
    """Whether the client has closed a connection, also where the event loop has not come to reading that yet."""
    if client.at_eof() or back.is_closing():
        return True
    with socket.socket(fileno=os.dup(back.get_extra_info("socket").fileno())) as raw:
        raw.setblocking(False)
        try:
            return not raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False


async def test_it_is_closed_before_the_chat_request_goes_out(models: dict[str, Path], tmp_path: Path) -> None:
    async with serving(models["dense"], ALONE) as url:
        proxy = Proxy(url)
        listening = await asyncio.start_server(proxy.passing, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        async with playing(f"http://127.0.0.1:{port}", tmp_path / "data", ALONE, ahead=True) as play:
            for _ in range(6):
                id = await cold(play, LONG * 4)
                requests = len(play.ahead)
                await play.service.conversations.open(id)
                await until(lambda: len(play.ahead) > requests and play.ahead[-1].reached > 0)  # noqa: B023
                await play.say(id, "Two?")
        assert proxy.chats == 18 and proxy.beside == []
        listening.close()


# -- what is read ----------------------------------------------------------------------------------------------------


class Clock:
    """Moves a little whenever it is asked, and as far as one likes."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


async def test_what_is_read_is_a_strict_prefix_of_what_is_sent(start: Start) -> None:
    """Over a random walk, with attachments, time stamps that fall due in between, edits and other branches."""
    chance, checked, with_blocks = random.Random(5), 0, 0
    async with start(shape_of("dense", ram=0)) as play:
        service, clock = play.service, Clock()
        service.clock = clock
        talks = [await service.new_conversations.create(text(chance, [60]), reuse=False) for _ in range(3)]
        for number in range(36):
            at = chance.randrange(len(talks))
            if (talks[at].record.context_used or 0) > 2500:
                talks[at] = await service.new_conversations.create(text(chance, [60]), reuse=False)
            talk = talks[at]
            play.ahead.clear()
            await service.conversations.open(talk.id)
            blocks = [
                ContextBlock("file", f"{number}-{at}.txt", text(chance, [40, 90]))
                for at in range(chance.choice([0, 0, 1, 2]))
            ]
            for count in range(len(blocks)):
                service.warm_up.prepare(talk.id, blocks[: count + 1])
                if chance.random() < 0.5:
                    await rested(play)
                clock.now += timedelta(minutes=chance.choice([0, 2]))
            if chance.random() < 0.8:
                await rested(play)
            clock.now += timedelta(minutes=chance.choice([0, 0, 1]))
            sent: list[TrackedTurn] = []
            send = play.cache.sent
            play.cache.sent = noted(send, sent)  # type: ignore[method-assign]
            await service.turns.send(talk.id, Question(text(chance, [1, 20]), tuple(blocks)))
            await play.answered(talk.id)
            play.cache.sent = send  # type: ignore[method-assign]
            whole = [made for made in play.ahead if made.done]
            if whole:
                last, prompt = whole[-1].prompt, sent[0].request.tokens
                assert prompt is not None and prompt.starts_with(last) and len(last) < len(prompt), number
                checked, with_blocks = checked + 1, with_blocks + bool(blocks)
            await rested(play)
            clock.now += timedelta(minutes=chance.choice([0, 3, 11]))
    assert checked >= 14 and with_blocks >= 5, (checked, with_blocks)


Send = Callable[..., TrackedTurn]


def noted(send: Send, sent: list[TrackedTurn]) -> Send:
    """As `send`, and every chat request is noted."""

    def noting(*given: Any, **named: Any) -> TrackedTurn:
        sent.append(tracked := send(*given, **named))
        return tracked

    return noting
