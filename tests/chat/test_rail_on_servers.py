"""The rail on real servers: what each row shows is what the next request then takes from the cache."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Play, playing, serving, shape_of, text

from engine_fixture import small_model
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.prompt.extents import ends_of
from kvchat.prompt.message import Role
from kvchat.prompt.request import Parameters
from kvchat.reports.rail import Where
from kvchat.store import Store
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
STATES = 30
ACTS = ("ask", "ask", "switch", "switch", "new", "edit", "regenerate", "fork", "instructions", "warm up", "stranger")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "sliding", "hybrid"))


def shown(play: Play, conversation: OpenConversation) -> tuple[int, bool]:
    """The tokens that the rows of a conversation show as cached, and whether nothing is shown as known."""
    rows = play.service.rail.stretches(conversation.id)
    path = conversation.path()
    ends = ends_of(path)
    sizes = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    there = [rows[node.id] for node in path]
    told = all(stretch.where is Where.UNKNOWN for stretch in there)
    return sum(
        round(stretch.share * size)
        for stretch, size in zip(there, sizes, strict=True)
        if stretch.where in (Where.SLOT, Where.STORED)
    ), told


async def acted(
    play: Play, act: str, here: OpenConversation, others: list[OpenConversation], url: str, chance: random.Random
) -> OpenConversation:
    """Bring about another state; the conversation that is looked at then."""
    service = play.service
    questions = [node for node in here.path() if node.role is Role.USER]
    if act == "new" and len(others) < 4:
        here = await service.new_conversations.create(text(chance, [40, 120]), reuse=False)
    elif act == "switch":
        here = chance.choice(others)
    elif act == "fork" and questions:
        here = await service.branches.fork(here.id, chance.choice(questions).id)
    elif act == "instructions":
        await service.branches.set_instructions(here.id, text(chance, [30, 80]))
    elif act == "stranger":
        question = {"role": "user", "content": text(chance, [150])}
        async with httpx.AsyncClient(timeout=60) as client:
            await client.post(f"{url}/v1/chat/completions", json={"max_tokens": 2, "messages": [question]})
    await service.conversations.open(here.id)
    if act == "warm up":
        service.warm_up.enabled = True
        service.warm_up.soon(here.id, 0.0)
        await service.warm_up.ended()
        service.warm_up.enabled = False
    await play.cache.look()  # as every send does first
    service.rail.stretches(here.id)
    await service.core.rest()
    return here


async def sent(play: Play, act: str, here: OpenConversation, chance: random.Random) -> TurnFigures:
    """Ask; with `edit` or `regenerate` in the place of what was last."""
    last = here.path()
    if act == "regenerate" and len(last) > 2:
        await play.service.turns.regenerate(here.id, last[-1].id)
        return await play.answered(here.id)
    if act == "edit" and len(last) > 2:
        await play.service.turns.edit(here.id, last[-2].id, text(chance, [20]))
        return await play.answered(here.id)
    return await play.say(here.id, text(chance, [5, 60]))


@pytest.mark.parametrize(
    ("kind", "slots", "ram"), [("dense", 1, 0), ("dense", 2, 8192), ("sliding", 2, 8192), ("hybrid", 1, 8192)]
)
async def test_each_row_shows_what_the_next_request_takes_from_the_cache(
    models: dict[str, Path], tmp_path: Path, kind: str, slots: int, ram: int
) -> None:
    chance = random.Random(3)
    shape = shape_of(kind, slots=slots, ram=ram)
    async with serving(models[kind], shape, 4096 * slots) as url, playing(url, tmp_path / "data", shape) as play:
        here = await play.service.new_conversations.create(text(chance, [80]), reuse=False)
        await play.say(here.id, "One?")
        opened, wrong, known = [here], [], 0
        for number in range(STATES):
            act = chance.choice(ACTS)
            here = await acted(play, act, here, opened, url, chance)
            if here not in opened:
                opened.append(here)
            path = here.path()
            rows, unknown = shown(play, here)
            known += not unknown
            prefix = play.cache.prompts.known_prefix(play.service.core.branch_requests.after(here.record, path)) or ()
            figures = await sent(play, act, here, chance)
            assert figures.cached_tokens is not None
            kept = min(figures.cached_tokens, len(prefix))  # the question may begin as an earlier one did
            if act == "edit" and len(path) > 2:  # the rail is of the branch that stands there: its last turn goes
                rows, kept = min(rows, ends_of(path)[-3]), min(kept, ends_of(path)[-3])
            if act == "regenerate" and len(path) > 2:
                rows, kept = min(rows, ends_of(path)[-2]), min(kept, ends_of(path)[-2])
            if not unknown and abs(rows - kept) > NOISE:
                wrong.append((number, act, rows, kept))
        assert not wrong, wrong
        assert known >= STATES * 0.8


@pytest.mark.parametrize("slots", [1, 2])
async def test_each_row_is_right_after_restarts_and_with_snapshots(tmp_path: Path, slots: int) -> None:
    chance = random.Random(slots)
    settings = Settings()
    for name, value in {
        "engine.model": os.fspath(small_model()),
        "engine.threads": 1,
        "engine.slots": slots,
        "engine.context_size": 1024 * slots,
    }.items():
        settings = changed(settings, name, value)
    settings = replace(settings, parameters=Parameters(temperature=0.0, max_tokens=8))

    async def begun() -> Play:
        service = ChatService(Store.open(tmp_path), settings, snapshots=tmp_path / "snapshots")
        service.warm_up.enabled = False
        await service.servers.connect()
        return Play(service)

    play = await begun()
    try:
        made = await play.service.new_conversations.create("You answer briefly. " * 20, reuse=False)
        await play.say(made.id, text(chance, [80]))
        opened, here, wrong, sources = [made.id], made.id, [], set()
        for number, act in enumerate(
            (
                "restart",
                "new",
                "switch",
                "ask",
                "restart",
                "switch",
                "ask",
                "new",
                "switch",
                "restart",
                "switch",
                "ask",
                "new",
                "switch",
                "switch",
                "switch",
                "switch",
            )
        ):
            if act == "restart":
                await play.service.aclose()
                play = await begun()
            elif act == "new":
                here = (await play.service.new_conversations.create(text(chance, [60]), reuse=False)).id
                opened.append(here)
            elif act == "switch":
                here = chance.choice([id for id in opened if id != here])
            conversation = await play.service.conversations.open(here)
            await play.service.tracker.cache_of(await play.service.servers.link(here).connector.ready())
            await play.cache.look()
            play.service.rail.stretches(here)
            await play.service.core.rest()
            rows, unknown = shown(play, conversation)
            sources |= {stretch.where for stretch in play.service.rail.stretches(here).values()}
            prefix = play.cache.prompts.known_prefix(
                play.service.core.branch_requests.after(conversation.record, conversation.path())
            )
            figures = await play.say(here, text(chance, [20]))
            assert figures.cached_tokens is not None and prefix is not None and not unknown
            kept = min(figures.cached_tokens, len(prefix))
            if abs(rows - kept) > NOISE:
                wrong.append((number, act, rows, kept))
        assert not wrong, wrong
        assert {Where.SLOT, Where.STORED} <= sources, "no state came from a snapshot: the test shows nothing"
    finally:
        await play.service.aclose()


async def test_what_another_client_took_is_seen_when_the_person_comes_back(
    models: dict[str, Path], tmp_path: Path
) -> None:
    shape = shape_of("dense", slots=1, ram=0)
    async with serving(models["dense"], shape, 4096) as url, playing(url, tmp_path / "data", shape) as play:
        here = await play.service.new_conversations.create(text(random.Random(1), [80]), reuse=False)
        await play.say(here.id, "One?")
        play.service.rail.stretches(here.id)
        await play.service.core.rest()
        before = {stretch.where for stretch in play.service.rail.stretches(here.id).values()}
        async with httpx.AsyncClient(timeout=60) as client:
            await client.post(
                f"{url}/v1/chat/completions",
                json={"max_tokens": 2, "messages": [{"role": "user", "content": text(random.Random(2), [150])}]},
            )
        play.service.rail.look_again(here.id)
        await play.service.core.rest()
        after = list(play.service.rail.stretches(here.id).values())
    assert before == {Where.SLOT} and after[-1].where is Where.NOWHERE


async def test_a_server_that_tells_nothing_shows_nothing(tmp_path: Path) -> None:
    service = ChatService(Store.open(tmp_path), changed(Settings(), "server.base_url", "http://127.0.0.1:9"))
    try:
        made = await service.new_conversations.create()
        assert {stretch.where for stretch in service.rail.stretches(made.id).values()} == {Where.UNKNOWN}
    finally:
        await service.aclose()
