"""A run that ends with its answer does not look at the slots after it: the next one knows all the same what was done to
them in between, and by whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from causes_kit import WORDS, Chat, Start, free_port, served

from kvchat.chat.question import Question
from kvchat.figures.cause import Cause

pytestmark = pytest.mark.engine


class Place:
    """A server that is started again."""

    def __init__(self, model: Path, slots: int) -> None:
        self.model, self.slots, self.port, self.running = model, slots, free_port(), ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.running.close()
        self.running.enter_context(
            served(self.model, self.slots, port=self.port, cache_ram_mib=0, slot_save_path="/tmp/")
        )


def nothing(place: Place) -> None:
    """Nobody has done anything."""


def client(place: Place) -> None:
    """Another program has used every slot."""
    for slot in range(place.slots):
        messages = [
            {"role": "system", "content": f"{slot}{slot} boats. {WORDS * 9}"},
            {"role": "user", "content": "Who?"},
        ]
        httpx.post(
            f"{place.url}/v1/chat/completions", json={"messages": messages, "max_tokens": 4}, timeout=30
        ).raise_for_status()


def erased(place: Place) -> None:
    for slot in range(place.slots):
        httpx.post(f"{place.url}/slots/{slot}?action=erase", json={}, timeout=30).raise_for_status()


def restarted(place: Place) -> None:
    place.start()


DONE: dict[Callable[[Place], None], Cause | None] = {
    nothing: None,
    client: Cause.OTHER_CLIENT,
    erased: Cause.OTHER_CLIENT,
    restarted: Cause.RESTARTED,
}


def opened(start: Start, place: Place, *, brief: bool) -> Chat:
    """kvchat: for one answer, or not."""
    chat = start(place.url)
    chat.service.servers.links.is_brief = brief
    return chat


@pytest.mark.parametrize(("kind", "slots"), [("dense", 1), ("dense", 2), ("hybrid", 1), ("sliding", 1)])
@pytest.mark.parametrize("done", DONE, ids=lambda done: done.__name__)
@pytest.mark.parametrize("then", ["ask", "app"])
async def test_what_was_done_after_an_ask_is_named(
    start: Start, models: dict[str, Path], slots: int, kind: str, done: Callable[[Place], None], then: str
) -> None:
    place = Place(models[kind], slots)
    with place.running:
        begun = int(time.time())
        chat = opened(start, place, brief=True)
        id = await chat.begin()
        await chat.say(id, f"Who keeps the log? {WORDS * 4}")
        await chat.close()
        chat = opened(start, place, brief=True)
        await chat.service.conversations.open(id)
        figures = await chat.say(id, f"And who reads it? {WORDS}")
        assert figures.cause is None and figures.predicted_cached == figures.cached_tokens
        await chat.close()
        done(place)
        chat = opened(start, place, brief=then == "ask")
        await chat.service.conversations.open(id)
        figures = await chat.say(id, "And then?")
        assert figures.cause == DONE[done], figures
        if figures.cause == Cause.OTHER_CLIENT:
            found = figures.evidence
            assert found is not None and found["slot"] in range(slots) and (found["tokens"] is None) is (done is erased)
            since, seen = found["since"], found["seen"]
            assert isinstance(since, int) and isinstance(seen, int) and begun <= since <= seen <= time.time()
        if done is nothing:
            assert figures.predicted_cached == figures.cached_tokens


@pytest.mark.parametrize("slots", [1, 2])
async def test_an_ask_beside_the_open_app_is_no_other_client(start: Start, models: dict[str, Path], slots: int) -> None:
    place = Place(models["dense"], slots)
    with place.running:
        app = opened(start, place, brief=False)
        id = await app.begin()
        await app.turns(id, 2)
        ask = opened(start, place, brief=True)
        for number in range(slots):
            other = await ask.begin(f"{number}{number} boats. {WORDS * 9}")
            await ask.service.turns.send(other, Question("Who rows?"))
            await ask.answered(other)
        await ask.close()
        figures = await app.say(id, "And then?")
        assert figures.cause == Cause.SLOT_TAKEN, figures
