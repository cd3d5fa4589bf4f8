"""Images on real llama.cpp servers: one that sees (a tiny model with random eyes), and ones that do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engine_fixture import running_server, small_model
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import Role, State
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from picture_samples import picture
from tiny_models import IMAGE_TOKENS, tiny_models, tiny_projector
from tiny_server import tiny_server

pytestmark = pytest.mark.engine
Maker = Callable[[str], ChatService]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Maker]:
    made: list[ChatService] = []

    def make(url: str) -> ChatService:
        settings = changed(Settings(), "server.base_url", url)
        word = httpx.post(f"{url}/tokenize", json={"content": " sea"}).json()["tokens"]
        settings = replace(
            settings, parameters=Parameters(temperature=0.0, max_tokens=12, extra={"logit_bias": [[word[0], 100]]})
        )
        made.append(ChatService(Store.open(tmp_path / "data"), settings))
        return made[-1]

    yield make
    for service in made:
        await service.aclose()


@pytest.fixture
def lamp(tmp_path: Path) -> Path:
    path = tmp_path / "lamp.png"
    path.write_bytes(picture())
    return path


async def say(service: ChatService, id: str, text: str, *attached: Path) -> None:
    blocks = tuple([await service.retrieval.attach(id, str(path)) for path in attached])
    await service.turns.send(id, Question(text, blocks))
    await service.conversations.wait(id)


async def test_an_image_is_prefilled_once_and_never_again(make: Maker, tmp_path: Path, lamp: Path) -> None:
    model = tiny_models(tmp_path, small_model(), ("dense",))["dense"]
    sea = tmp_path / "sea.png"
    sea.write_bytes(picture(text="sea"))
    with tiny_server(model, mmproj=str(tiny_projector(tmp_path)), n_parallel=1, n_ctx=4096) as url:
        service = make(url)
        id = (await service.new_conversations.create("Be brief.")).id
        for text, attached in (
            ("Begin.", ()),
            ("What is this?", (lamp,)),
            ("And why?", ()),
            ("And this?", (sea,)),
            ("Which?", ()),
        ):
            await say(service, id, text, *attached)
            await asyncio.wait_for(service.warm_up.ended(), 60)
        path = service.conversations.load(id).path()
        answers = [node for node in path if node.role is Role.ASSISTANT]
        assert [node.state for node in answers] == [State.LENGTH] * 5
        figures = [node.figures for node in answers if node.figures is not None]
        assert [(one.wasted_tokens or 0) <= 1 for one in figures] == [True] * 5
        # The second and the fourth carry an image more than the one before; the others only their words.
        evaluated = [one.evaluated_tokens or 0 for one in figures]
        assert min(evaluated[1], evaluated[3]) > IMAGE_TOKENS > max(evaluated[2], evaluated[4])
        assert [one.predicted_cached is None for one in figures[1:]] == [True] * 4


async def test_the_small_real_model_is_not_asked_about_an_image(make: Maker, lamp: Path) -> None:
    with running_server() as server:
        service = make(server.base_url)
        id = (await service.new_conversations.create("Be brief.")).id
        with pytest.raises(ChatError, match=r"Nothing was sent: SmolLM2.* cannot see images\. Choose a model that can"):
            await say(service, id, "What is this?", lamp)
        assert len(service.conversations.load(id).path()) == 1
        slots = (await asyncio.to_thread(httpx.get, f"{server.base_url}/slots")).json()
        assert all(not slot.get("n_prompt_tokens") for slot in slots)  # it has evaluated nothing
