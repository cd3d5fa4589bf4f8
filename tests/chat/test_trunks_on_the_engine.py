"""A trunk on the real engine: prefilled part by part, gone on with after it was ended, and every conversation that
begins with it evaluates its own question alone, after a restart too."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine_fixture import small_model
from kvchat.chat import trunks
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.trunks import Trunks
from kvchat.config import Settings, changed
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import tiny_models

pytestmark = pytest.mark.engine

SLACK = 16
WORDS = ("lamp", "fog", "keeper", "harbour", "boat", "light", "storm", "rope", "tide", "stone", "bell", "night")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder with some 20,000 tokens of text."""
    folder, draw = tmp_path / "book", random.Random(1)
    folder.mkdir()
    for chapter in range(10):
        lines = [" ".join(draw.choice(WORDS) for _ in range(20)) + "." for _ in range(95)]
        (folder / f"chapter{chapter}.md").write_text("\n".join(lines))
    return folder


@asynccontextmanager
async def running(tmp_path: Path, model: Path, **options: object) -> AsyncIterator[tuple[ChatService, Trunks]]:
    settings = Settings()
    for name, value in {
        "engine.model": os.fspath(model),
        "engine.threads": 1,
        "engine.slots": 1,
        "engine.context_size": 28672,
        **options,
    }.items():
        settings = changed(settings, name, value)
    data = tmp_path / "data"
    service = ChatService(Store.open(data), settings, snapshots=data / "snapshots", lanes=data / "lanes")
    try:
        assert service.trunks is not None
        yield service, service.trunks
    finally:
        await service.aclose()


async def first_turn(service: ChatService, found: Trunks, question: str) -> TurnFigures:
    conversation, _ = await found.begin("book")
    await service.turns.send(conversation.id, Question(question), parameters=Parameters(temperature=0.0, max_tokens=4))
    await service.conversations.wait(conversation.id)
    figures = conversation.path()[-1].figures
    assert figures is not None
    return figures


async def test_twenty_thousand_tokens_are_prefilled_once(
    tmp_path: Path, tiny: Path, book: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kvchat")
    async with running(tmp_path, tiny) as (service, found):
        trunk, _ = await found.add("book", [str(book)])
        task = asyncio.create_task(found.prefill(trunk))
        async with asyncio.timeout(300):
            while not (saved := service.servers.links.snapshots.known(trunk.id)):  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        part = saved[0].tokens
    async with running(tmp_path, tiny) as (service, found):
        done = await found.prefill(trunk)
        assert done.tokens >= 20_000 and done.done == done.tokens
        assert done.saved, (
            service.servers.links.snapshots.why_not,
            [snapshot.tokens for snapshot in service.servers.links.snapshots.known(trunk.id)],
        )
        assert trunks.PART <= part < done.tokens
        spent = service.store.warmups(conversation=trunk.id).tokens
        assert spent <= done.tokens + 2 * part, "what was saved is not evaluated again"
        again = await found.prefill(trunk)
        (path,) = [path for id, path in service.claims.paths().items() if id == trunk.id]
        assert len(path) == 1 and list(await service.servers.links.snapshots.kept()) == [trunk.id], (
            "no other state takes its place"
        )
        assert again == done and service.store.warmups(conversation=trunk.id).tokens == spent
    async with running(tmp_path, tiny) as (service, found):
        for number in range(10):
            figures = await first_turn(service, found, f"What does chapter {number} say of the keeper?")
            question = (figures.prompt_tokens or 0) - done.tokens
            assert 0 < question < 200 and figures.evaluated_tokens <= question + SLACK
        assert len(service.conversations.all()) == 10


async def test_what_changed_is_told_and_the_old_conversations_keep_theirs(
    tmp_path: Path, tiny: Path, book: Path
) -> None:
    async with running(tmp_path, tiny) as (service, found):
        small = book / "chapter0.md"
        trunk, _ = await found.add("book", [str(small)])
        await found.prefill(trunk)
        conversation, changes = await found.begin("book")
        assert changes == [] and (await found.begin("book"))[0].id == conversation.id, "an empty one is used again"
        root = conversation.path()[0]
        small.write_text("Something else.")
        assert (await found.begin("book"))[1] == ["chapter0.md"]
        newer, _ = await found.add("book", [str(small)])
        assert newer.root != trunk.root and conversation.path()[0] == root
        assert (await found.begin("book"))[0].id != conversation.id
        assert not service.servers.links.snapshots.known(trunk.id), "the state of the old one is gone"
        await found.remove("book")
        assert found.names() == [] and service.claims.paths() == {}


async def test_more_than_the_window_holds_is_refused(tmp_path: Path, tiny: Path, book: Path) -> None:
    from kvchat.chat.errors import ChatError

    async with running(tmp_path, tiny, **{"engine.context_size": 4096}) as (_, found):
        with pytest.raises(ChatError, match=r"These files have 2\d,\d{3} tokens, the server's window holds 4,096"):
            await found.add("book", [str(book)])
        assert found.names() == []
