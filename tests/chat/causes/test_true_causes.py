"""The cause that is told is the true one: what a model cannot do, and what really took a state."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from causes_kit import WORDS, Chat, Start, another_program_asks, free_port, meddling, served, told

from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.price import Act
from kvchat.chat.cache import warm_up
from kvchat.chat.cache.tracker import RECENT_S
from kvchat.chat.turns import answer_run
from kvchat.figures.accounting import NOISE
from kvchat.figures.cause import Cause
from kvchat.text.cache import accuracy
from kvchat.text.prices import price_lines

pytestmark = pytest.mark.engine

APART = "Boats drift under a pale moon while the rain falls on the old pier and its stones. "


async def two(chat: Chat) -> tuple[str, str]:
    """Two conversations with system prompts of their own, and two turns each."""
    ids = await chat.begin("You keep the light. " + WORDS * 6), await chat.begin("You count ships. " + APART * 6)
    for id in ids:
        await chat.turns(id, 2, words=10)
    return ids


# -- what the model's cache cannot do ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"slots": 4, "n_ctx": 4096, "kv_unified": True}], ids=["one slot", "four in one"]
)
async def test_a_switch_on_a_sliding_window_is_its_rewind_limit(
    models: dict[str, Path], start: Start, options: dict[str, Any]
) -> None:
    with served(models["sliding"], **options) as url:
        chat = start(url)
        ids = await two(chat)
        for id in (*ids, *ids):
            told(await chat.say(id), Cause.CHECKPOINT, "can only go back to token", "not to", "--swa-full")
        assert (await chat.say(ids[1])).cause is None, "no switch"


async def test_a_switch_on_a_dense_model_costs_nothing_and_says_nothing(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"]) as url:
        chat = start(url)
        ids = await two(chat)
        for id in (*ids, *ids):
            figures = await chat.say(id)
            assert figures.cause is None and (figures.wasted_tokens or 0) <= NOISE


async def test_a_dense_model_has_no_rewind_limit(models: dict[str, Path], start: Start) -> None:
    """A request that lands in an empty slot reuses nothing: that is not what the model cannot do."""
    empty: dict[str, int] = {}
    with served(models["dense"], slots=2) as real:
        async with meddling(real, lambda request: request.update(empty)) as url:
            chat = start(url)
            id = await chat.begin()
            await chat.turns(id, 3)
            cache = chat.service.servers.link(id).cache
            taken = next(slot for slot, held in enumerate(cache.simulated.best.slots) if held)  # type: ignore[union-attr]
            empty["id_slot"] = 1 - taken
            await chat.service.turns.regenerate(id, chat.branch(id)[-1].id)
            told(await chat.answered(id), Cause.SLOT_TAKEN, f"Slot {taken} held", f"but slot {1 - taken} answered")


# -- whose rules are not known ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tested", [True, False])
async def test_of_a_build_that_no_test_ran_no_cause_comes_from_a_prediction_and_all_is_about(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch, tested: bool
) -> None:
    monkeypatch.setattr("kvchat.cache.llamacpp.trust.is_tested", lambda _: tested)
    with served(models["dense"]) as url:
        chat = start(url, detour=False)
        first, second = await chat.begin("A keeper. " * 60), await chat.begin("Some ships. " * 60)
        for one in (first, second, first):  # it came back: this server parks
            await chat.turns(one, 1)
        id, other = await chat.begin(), await chat.begin()
        await chat.turns(id, 4, words=20)
        await chat.turns(other, 1)
        assert chat.service.tracker.warmth(id).exact is tested
        price = await chat.service.prices.exact(id, "regenerate", chat.branch(id)[-1].id)
        assert price.exact is tested and ("~" in price_lines(price)[0].partition(" token")[0]) is not tested
        assert ((await chat.say(id)).cause == Cause.NOT_LOOKED_UP) is tested
        assert (await chat.service.cache_reports.report(id)).exact is tested


async def test_a_build_that_no_test_ran_becomes_sure_by_what_it_does_and_stays_so_in_the_next_run(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.cache.llamacpp.trust.is_tested", lambda _: False)
    with served(models["dense"]) as url:
        chat = start(url)
        one, other, turns = await chat.begin("A keeper. " * 60), await chat.begin("Some ships. " * 60), 0
        await chat.turns(one, 1)
        assert "a build not tested yet: 0 of 20 in a row" in accuracy(await chat.service.cache_reports.report(one))
        while not chat.service.tracker.warmth(one).exact:
            turns += 1
            assert turns <= 14, accuracy(await chat.service.cache_reports.report(one))
            for id in (one, other):
                await chat.turns(id, 1)
                await chat.service.turns.regenerate(id, chat.branch(id)[-1].id)
                await chat.answered(id)
        said = accuracy(await chat.service.cache_reports.report(one))
        assert "in a row" not in said and said.startswith("exact in ")
        await chat.close()
        again = start(url)
        await again.looked_at(one)
        assert again.service.tracker.warmth(one).exact
        assert (await again.service.prices.exact(one, "regenerate", again.branch(one)[-1].id)).exact


# -- prices of acts on a server that was started again -----------------------------------------------------------------


@pytest.mark.parametrize("act", ["regenerate", "edit", "delete"])
async def test_a_price_looks_whether_the_server_was_started_again(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    monkeypatch.setattr("kvchat.chat.cache.tracker.QUICK_S", 5.0)  # this machine may be busy
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.turns(id, 3)
        asked = chat.questions(id)[-1].id
        warm = await chat.service.prices.exact(id, act, asked)
        assert warm.cause is None and warm.tokens is not None and warm.tokens < 100
    await asyncio.sleep(RECENT_S)
    assert not (await chat.service.prices.exact(id, act, asked)).exact, "nobody answers: it is not known"
    with served(models["dense"], port=port):
        price = await chat.service.prices.exact(id, act, asked)
        assert price.cause is Cause.RESTARTED and price.worth_asking
        assert "the server holds nothing any more: server restarted." in price_lines(price, act)[1]
        if act == "regenerate":
            await chat.service.turns.regenerate(id, chat.branch(id)[-1].id)
            assert price.tokens == (await chat.answered(id)).evaluated_tokens


# -- what took a state -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["learnt", "known"])
async def test_going_back_to_an_old_branch_accuses_the_newer_branch(
    models: dict[str, Path], start: Start, known: bool
) -> None:
    """Another conversation used the slot in between: it only had the state parked, and that came back."""
    with served(models["dense"]) as url:
        chat = start(url)
        if known:
            shape = Shape(ram_bytes=8192 << 20, token_bytes=268.0)
            chat.service.servers.link().connector.cache_shape = lambda: shape  # type: ignore[method-assign]
        id, other = await two(chat)
        await chat.turns(id, 3, words=10)
        await chat.turns(other, 1)
        await chat.service.turns.edit(id, chat.questions(id)[1].id, f"Something else, then? {APART}")
        assert (await chat.answered(id)).cause is None
        assert await chat.service.branches.undo(id)
        told(await chat.say(id), Cause.SLOT_TAKEN, "Another branch of this conversation took its slot")


async def test_a_conversation_that_did_not_run_over_the_state_is_not_accused(
    models: dict[str, Path], start: Start
) -> None:
    with served(models["dense"], cache_ram_mib=0) as url:
        chat = start(url)
        first, second = await two(chat)
        await chat.service.conversations.rename(second, "The second")
        third = await chat.begin("You know the tides. " + APART * 6)
        told(await chat.say(first), Cause.SLOT_TAKEN, "“The second” took")
        await chat.say(third)
        await chat.service.conversations.rename(third, "The third")
        await chat.say(second)
        told(await chat.say(first), Cause.SLOT_TAKEN, "“The third” took")


async def test_the_host_cache_was_not_full_where_there_is_none(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"], cache_ram_mib=0) as url:
        chat = start(url)
        ids = await two(chat)
        for id in ids:
            told(await chat.say(id), Cause.SLOT_TAKEN, "took this conversation's slot", "--cache-ram")


# -- a short run for each turn, as `kvchat ask` makes them -------------------------------------------------------------


class Asks:
    """A person who asks with one short run of kvchat after the other."""

    def __init__(self, start: Start, url: str) -> None:
        self._start = start
        self._url = url

    async def begin(self, system: str, title: str) -> str:
        chat = self._start(self._url)
        id = await chat.begin(system)
        await chat.say(id, WORDS * 10)
        await chat.service.conversations.rename(id, title)
        await chat.close()
        return id

    async def ask(self, id: str, words: str = "And then?") -> Any:
        chat = self._start(self._url)
        await chat.service.conversations.open(id)
        figures = await chat.say(id, words)
        await chat.close()
        return figures


@pytest.mark.parametrize(
    ("options", "wasted"),
    [
        ({"cache_ram_mib": 0}, True),
        ({}, False),
        ({"slots": 2}, False),
        ({"slots": 4, "n_ctx": 4096, "kv_unified": True}, False),
    ],
    ids=["one slot, no host cache", "one slot", "two slots", "four in one"],
)
async def test_runs_one_after_the_other_know_who_used_which_slot_last(
    models: dict[str, Path], start: Start, options: dict[str, Any], wasted: bool
) -> None:
    with served(models["dense"], **options) as url:
        asks = Asks(start, url)
        light = await asks.begin("You keep the light. " + WORDS * 6, "The light")
        ships = await asks.begin("You count ships. " + APART * 6, "The ships")
        for turn in range(3):
            for id, taker in ((light, "The ships"), (ships, "The light")):
                figures = await asks.ask(id)
                if wasted:
                    told(figures, Cause.SLOT_TAKEN, f"“{taker}” took this conversation's slot")
                else:
                    assert figures.cause is None and (figures.wasted_tokens or 0) <= NOISE, figures
                assert figures.predicted_cached == figures.cached_tokens or not turn, figures


async def test_a_run_knows_that_another_program_was_there_before(models: dict[str, Path], start: Start) -> None:
    with served(models["dense"], cache_ram_mib=0) as url:
        asks = Asks(start, url)
        light = await asks.begin("You keep the light. " + WORDS * 6, "The light")
        another_program_asks(url)
        told(await asks.ask(light), Cause.OTHER_CLIENT, "Another program used the model")
        another_program_asks(url)
        await asks.begin("You count ships. " + APART * 6, "The ships")
        told(await asks.ask(light), Cause.OTHER_CLIENT, "Another program used the model")


async def test_another_kvchat_is_not_another_program(models: dict[str, Path], start: Start) -> None:
    """The app is open while somebody asks in a shell, and the other way round."""
    with served(models["dense"], cache_ram_mib=0) as url:
        app, asks = start(url), Asks(start, url)
        light = await app.begin("You keep the light. " + WORDS * 6)
        await app.say(light, WORDS * 10)
        await app.service.conversations.rename(light, "The light")
        ships = await asks.begin("You count ships. " + APART * 6, "The ships")
        app.service.conversations.list_changed()
        told(await app.say(light), Cause.SLOT_TAKEN, "“The ships” took this conversation's slot")
        told(await asks.ask(ships), Cause.SLOT_TAKEN, "“The light” took this conversation's slot")


async def test_a_run_knows_that_the_server_was_started_anew(models: dict[str, Path], start: Start) -> None:
    port = free_port()
    with served(models["dense"], port=port) as url:
        asks = Asks(start, url)
        light = await asks.begin("You keep the light. " + WORDS * 6, "The light")
    with served(models["dense"], port=port):
        another_program_asks(url)
        told(await asks.ask(light), Cause.RESTARTED, "The server restarted")


# -- a server that was started anew ------------------------------------------------------------------------------------


async def test_a_server_that_was_started_anew_is_not_warm_and_reading_ahead_says_why(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    monkeypatch.setattr(warm_up, "on_battery", lambda: False)
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        chat.service.warm_up.enabled = True
        id = await chat.begin()
        await chat.looked_at(id)
        await chat.say(id, WORDS * 10)
        await chat.rested()
        assert chat.service.tracker.warmth(id).heat == "warm"
    with served(models["dense"], port=port):
        told_while, heats = [], []
        chat.service.events.subscribe(
            lambda _: (
                told_while.append(chat.service.tracker.warmup_progress),
                heats.append(chat.service.tracker.warmth(id).heat),
            )
        )
        chat.service.warm_up.typing_began(id)
        await chat.rested()
        assert {progress.cause for progress in told_while if progress is not None} == {Cause.RESTARTED}
        assert "cold" in heats and chat.service.tracker.warmth(id).heat == "warm"
        assert (await chat.say(id)).cause is None, "it was read ahead"


async def test_without_reading_ahead_the_mark_is_right_all_the_same(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "REST_S", 0.0)
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url, warm_up=False)
        chat.service.warm_up.enabled = True
        id = await chat.begin()
        await chat.looked_at(id)
        await chat.say(id, WORDS * 10)
    with served(models["dense"], port=port):
        await chat.looked_at(id)
        assert chat.service.tracker.warmth(id).heat == "cold"


async def test_the_prefill_after_a_restart_says_why_while_it_runs(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event is told at once: an answer that is over within `SCREEN_SECONDS` tells nothing of its prefill."""
    monkeypatch.setattr(answer_run, "SCREEN_SECONDS", 0.0)
    port = free_port()
    with served(models["dense"], port=port) as url:
        chat = start(url)
        id = await chat.begin()
        await chat.say(id, WORDS * 10)
    with served(models["dense"], port=port):
        seen = []
        chat.service.events.subscribe(
            lambda _: (
                seen.append(live.progress)
                if (live := chat.conversation(id).live) is not None and live.progress is not None
                else None
            )
        )
        told(await chat.say(id), Cause.RESTARTED, "The server restarted")
        assert seen and {progress.cause for progress in seen} == {Cause.RESTARTED}


@pytest.mark.parametrize("act", ["regenerate", "edit", "delete"])
async def test_a_price_right_after_an_answer_knows_a_restart_between(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    monkeypatch.setattr("kvchat.chat.cache.tracker.QUICK_S", 5.0)  # this machine may be busy
    port = free_port()
    with served(models["dense"], port=port):
        chat = start(f"http://127.0.0.1:{port}")
        id = await chat.begin()
        await chat.turns(id, 2)
    with served(models["dense"], port=port):
        await asyncio.sleep(RECENT_S)  # a tiny model is loaded sooner than that
        price = await chat.service.prices.exact(id, act, chat.questions(id)[-1].id)
        assert price.cause is Cause.RESTARTED


async def test_a_price_that_did_not_wait_is_right_the_next_time(
    models: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.chat.cache.tracker.QUICK_S", 0.0)
    port = free_port()
    with served(models["dense"], port=port):
        chat = start(f"http://127.0.0.1:{port}")
        id = await chat.begin()
        await chat.turns(id, 2)
    monkeypatch.setattr("kvchat.chat.cache.tracker.RECENT_S", 0.0)
    with served(models["dense"], port=port):
        asked = chat.questions(id)[-1].id
        assert not (await chat.service.prices.exact(id, "regenerate", asked)).exact

        async def is_told() -> bool:
            return (await chat.service.prices.exact(id, "regenerate", asked)).cause is Cause.RESTARTED

        for _ in range(500):
            if await is_told():
                break
            await asyncio.sleep(0.02)
        figures = chat.branch(id)[-1].figures
        price = await chat.service.prices.exact(id, "regenerate", asked)
        assert figures is not None and price.tokens == figures.prompt_tokens
