"""Misses that are caused on purpose, each in ways that chance varies: kvchat names what was done to the server.

One of each kind; with KVCHAT_FULL=1 ten of each: six minutes.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from causes_kit import STEADY, THOUGHTS, WORDS, Chat, free_port, served, sleeps, told, until

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.store import Store

pytestmark = pytest.mark.engine
EACH = 10 if os.environ.get("KVCHAT_FULL") else 1
SHAPES: tuple[dict[str, Any], ...] = ({}, {"slots": 2}, {"slots": 4, "n_ctx": 8192, "kv_unified": True})
APART = "Boats drift under a pale moon while the rain falls on the old pier and its stones. "


class Scene:
    """A server, kvchat on it, and what is done to them."""

    def __init__(self, models: dict[str, Path], folder: Path, seed: int) -> None:
        self.models, self.folder, self.seed = models, folder, seed
        self.chance = random.Random(seed)
        self.servers, self.chats = ExitStack(), list[Chat]()
        self.port = free_port()

    def serve(self, kind: str = "", **options: Any) -> str:
        """Start a server, in place of the one before."""
        self.servers.close()
        kind = kind or self.chance.choice(["dense", "hybrid", "sliding"])
        return self.servers.enter_context(
            served(self.models[kind], port=self.port, slot_save_path=f"{self.folder}/", **options)
        )

    def kvchat(self, folder: str = "data", parameters: Parameters = STEADY, **cache: bool) -> Chat:
        settings = changed(Settings(), "server.base_url", f"http://127.0.0.1:{self.port}")
        settings = replace(settings, parameters=parameters, cache=replace(settings.cache, **cache))  # type: ignore[arg-type]
        self.chats.append(Chat(ChatService(Store.open(self.folder / folder), settings)))
        return self.chats[-1]

    async def close(self) -> None:
        for chat in self.chats:
            await chat.close()
        self.servers.close()

    def system(self, words: str = WORDS) -> str:
        return f"You are keeper {self.chance.randrange(1 << 20)}. {words * self.chance.randint(6, 20)}"

    async def talk(self, chat: Chat, system: str = "", least: int = 2) -> str:
        """A conversation of some turns."""
        id = await chat.begin(system or self.system())
        await chat.turns(id, self.chance.randint(least, 5), self.chance.randint(4, 12))
        return id

    async def open_anew(self, chat: Chat, id: str) -> Chat:
        """The same kvchat, or half of the time one that is started now."""
        if self.seed % 2:
            return chat
        await chat.close()
        chat = self.kvchat()
        await chat.service.conversations.open(id)
        return chat

    def post(self, path: str, **body: Any) -> None:
        httpx.post(f"http://127.0.0.1:{self.port}{path}", timeout=60, json=body).raise_for_status()

    def client_asks(self, system: str) -> None:
        """Another program does."""
        said = self.chance.choice(["Who are you?", "What is it? " * 9, APART * 5])
        messages = [{"role": "system", "content": system}, {"role": "user", "content": said}]
        self.post("/v1/chat/completions", messages=messages, max_tokens=4)


async def client_that_begins_alike(scene: Scene) -> TurnFigures:
    scene.serve(**scene.chance.choice(SHAPES), cache_ram_mib=scene.chance.choice([0, 8192]))
    chat, system = scene.kvchat(), scene.system()
    id = await scene.talk(chat, system)
    chat = await scene.open_anew(chat, id)
    for _ in range(scene.chance.randint(1, 3)):
        scene.client_asks(system)
    return await chat.say(id)


async def client_that_begins_unlike(scene: Scene) -> TurnFigures:
    shape = scene.chance.choice(SHAPES)
    scene.serve(**shape, cache_ram_mib=0)
    chat = scene.kvchat()
    id = await scene.talk(chat)
    chat = await scene.open_anew(chat, id)
    for at in range(shape.get("slots", 1)):
        scene.client_asks(f"{at}. {APART * scene.chance.randint(3, 30)}")
    return await chat.say(id)


async def second_kvchat(scene: Scene, folder: str = "data") -> TurnFigures:
    shape = scene.chance.choice(SHAPES)
    scene.serve(**shape, cache_ram_mib=0)
    chat, other = scene.kvchat(), scene.kvchat(folder)
    id = await scene.talk(chat)
    for _ in range(shape.get("slots", 1)):
        await scene.talk(other, scene.system(APART))
    return await chat.say(id)


async def kvchat_of_another_user(scene: Scene) -> TurnFigures:
    return await second_kvchat(scene, "other")


async def server_restarted(scene: Scene) -> TurnFigures:
    kind, shape = scene.chance.choice(["dense", "hybrid", "sliding"]), scene.chance.choice(SHAPES)
    scene.serve(kind, **shape)
    chat = scene.kvchat()
    id = await scene.talk(chat)
    chat = await scene.open_anew(chat, id)
    scene.serve(kind, **shape)
    if scene.chance.random() < 0.5:
        scene.client_asks(APART * 3)
    return await chat.say(id)


async def model_swapped(scene: Scene) -> TurnFigures:
    shape = scene.chance.choice(SHAPES)
    first, then = scene.chance.sample(["dense", "hybrid", "sliding"], 2)
    scene.serve(first, **shape)
    chat = scene.kvchat()
    id = await scene.talk(chat)
    chat = await scene.open_anew(chat, id)
    scene.serve(then, **shape)
    await chat.service.turns.send(id, Question("And now? "))
    await chat.service.conversations.wait(id)
    assert chat.branch(id)[-1].state is State.ERROR, "its model is there no more"
    await chat.service.options.set_model(id, str(scene.models[then]))
    await chat.service.turns.regenerate(id, chat.branch(id)[-1].id)
    return await chat.answered(id)


async def model_slept(scene: Scene) -> TurnFigures:
    url = scene.serve(**scene.chance.choice(SHAPES), sleep_idle_seconds=1)
    chat = scene.kvchat()
    id = await scene.talk(chat)
    chat = await scene.open_anew(chat, id)
    await until(lambda: sleeps(url))
    return await chat.say(id)


async def slot_erased(scene: Scene) -> TurnFigures:
    shape = scene.chance.choice(SHAPES)
    scene.serve(**shape, cache_ram_mib=scene.chance.choice([0, 8192]))
    chat = scene.kvchat()
    id = await scene.talk(chat)
    chat = await scene.open_anew(chat, id)
    for slot in range(shape.get("slots", 1)):
        scene.post(f"/slots/{slot}?action=erase")
    return await chat.say(id)


async def host_cache_full(scene: Scene) -> TurnFigures:
    scene.serve("dense", cache_ram_mib=1)
    chat, long = scene.kvchat(), scene.chance.randint(50, 70)
    ids = [
        await chat.begin(f"Keeper {name} wrote this. {WORDS * long}")
        for name in "ABCDEFGH"[: scene.chance.randint(6, 8)]
    ]
    for id in (*ids[:2], *ids):  # the first was parked, and came back
        await chat.turns(id, 1)
    return await chat.say(ids[0])


async def checkpoint_limit(scene: Scene) -> TurnFigures:
    scene.serve("hybrid", **scene.chance.choice(SHAPES), n_ctx_checkpoints=scene.chance.randint(1, 2))
    chat = scene.kvchat()
    id = await scene.talk(chat, least=5)
    questions = chat.questions(id)
    if scene.chance.random() < 0.5:
        await chat.service.turns.edit(id, questions[scene.chance.randint(1, 2)].id, "Something else, then?")
        return await chat.answered(id)
    await chat.service.branches.delete_turn(id, questions[scene.chance.randint(1, 2)].id)
    return await chat.say(id)


async def sliding_window(scene: Scene) -> TurnFigures:
    scene.serve("sliding", **scene.chance.choice(SHAPES[::2]))
    chat = scene.kvchat()
    id = await scene.talk(chat)
    await scene.talk(chat, scene.system(APART))
    return await chat.say(id)


async def thoughts_dropped(scene: Scene) -> TurnFigures:
    scene.serve("forgetful", **scene.chance.choice(SHAPES))
    chat = scene.kvchat(parameters=THOUGHTS)
    id = await chat.begin(scene.system())
    await chat.service.options.set_template_options(id, {"preserve_reasoning": False})
    for _ in range(scene.chance.randint(1, 4)):
        await chat.say(id, WORDS * scene.chance.randint(1, 6))
    return await chat.say(id)


async def another_conversation(scene: Scene) -> TurnFigures:
    """As many as there are slots."""
    shape, alike = scene.chance.choice(SHAPES), scene.chance.random() < 0.5
    scene.serve(**shape, cache_ram_mib=0)
    chat, system = scene.kvchat(), scene.system()
    id = await scene.talk(chat, system)
    for _ in range(shape.get("slots", 1)):
        await scene.talk(chat, system if alike and not shape else scene.system(APART))
    return await chat.say(id)


MISSES: dict[Callable[[Scene], Awaitable[TurnFigures]], Cause] = {
    client_that_begins_alike: Cause.OTHER_CLIENT,
    client_that_begins_unlike: Cause.OTHER_CLIENT,
    second_kvchat: Cause.SLOT_TAKEN,
    kvchat_of_another_user: Cause.OTHER_CLIENT,
    server_restarted: Cause.RESTARTED,
    model_swapped: Cause.OTHER_MODEL,
    model_slept: Cause.UNLOADED,
    slot_erased: Cause.OTHER_CLIENT,
    host_cache_full: Cause.CACHE_FULL,
    checkpoint_limit: Cause.CHECKPOINT,
    sliding_window: Cause.CHECKPOINT,
    thoughts_dropped: Cause.REASONING,
    another_conversation: Cause.SLOT_TAKEN,
}


@pytest.fixture
async def scene(models: dict[str, Path], tmp_path: Path, seed: int) -> AsyncIterator[Scene]:
    scene = Scene(models, tmp_path, seed)
    yield scene
    await scene.close()


@pytest.mark.parametrize("seed", range(EACH))
@pytest.mark.parametrize("miss", MISSES, ids=lambda miss: miss.__name__)
async def test_what_was_done_is_named(scene: Scene, miss: Callable[[Scene], Awaitable[TurnFigures]]) -> None:
    told(await miss(scene), MISSES[miss])
