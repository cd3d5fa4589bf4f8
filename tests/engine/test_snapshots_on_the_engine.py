"""Snapshots with the real engine: saved at its end, checked, restored at its start, and reused by the next turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine_fixture import small_model
from kvchat.backends.dialect import Backend, ChatTurn, ReasoningDelta, Reported, StreamEvent, TextDelta
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.process import Engine
from kvchat.backends.identify import connect
from kvchat.chat.cache.states.snapshots import Refused, Restored, SlotContent, Snapshots
from kvchat.chat.server.connection import Connector
from kvchat.chat.server.embedded import EmbeddedEngine
from kvchat.config import Settings, changed
from kvchat.prompt.message import Message, Node, Role, node, system_message
from kvchat.prompt.request import Parameters, wires_of
from kvchat.text.notes import note_sentence
from kvchat.text.snapshots import snapshot_sentence

pytestmark = pytest.mark.engine


@asynccontextmanager
async def running(folder: Path, **options: int) -> AsyncIterator[tuple[Backend, Snapshots]]:
    """An engine of its own, and snapshots that work with it."""
    engine = Engine()
    chosen = EngineOptions(
        small_model(), threads=1, snapshots=folder, **{"context_size": 2048, "batch_size": 64, **options}
    )  # type: ignore[arg-type]
    endpoint = await engine.start(chosen)
    try:
        backend = await connect(endpoint.base_url, api_key=endpoint.api_key, embedded=True)
        snapshots = Snapshots(folder)
        await snapshots.use(backend, chosen)
        yield backend, snapshots
        await backend.aclose()
    finally:
        await engine.stop()


async def told(backend: Backend, path: list[Node], text: str) -> tuple[list[Node], int, int]:
    """Ask; the path that the answer leads to, the tokens of the prompt, and how many of them were reused."""
    question = node(path[-1], Message(Role.USER, text), 1.0)
    said: list[str] = []
    figures = Reported()

    def emit(event: StreamEvent) -> None:
        nonlocal figures
        if isinstance(event, Reported):
            figures = event
        elif isinstance(event, TextDelta | ReasoningDelta):
            said.append(event.text)

    wires = wires_of([*path, question])
    ended = await backend.chat(ChatTurn(wires, "c1", parameters=Parameters(temperature=0, max_tokens=8)), emit)
    assert ended.error is None, note_sentence(ended.note)
    answer = node(question, Message(Role.ASSISTANT, "".join(said)), 2.0)
    return [*path, question, answer], figures.prompt_tokens or 0, figures.cached_tokens or 0


def held(path: list[Node], slot: int = 0) -> SlotContent:
    return SlotContent(slot, "c1", path[-1].digest.hex(), 0, tuple(n.digest.hex() for n in path))


def digests(path: list[Node]) -> list[str]:
    return [n.digest.hex() for n in path]


BEGINNING = [node(None, system_message("You answer briefly."), 0.0)]
LONG = " ".join(f"river {index}" for index in range(230))


async def test_after_a_restart_the_next_turn_reuses_what_was_saved_and_harm_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    async with running(folder) as (backend, snapshots):
        path, prompt, _ = await told(backend, BEGINNING, LONG)
        assert prompt > 1000
        (saved,) = await snapshots.save_on_quit(backend, [held(path)])
    file = folder / saved.snapshot.file
    whole = file.read_bytes()
    assert {item.stat().st_mode & 0o777 for item in folder.iterdir()} == {0o600}

    async with running(folder) as (backend, snapshots):
        (restored,) = await snapshots.refill(backend)
        assert (restored.slot, restored.conversation, restored.tokens) == (0, "c1", saved.snapshot.tokens)
        assert len(restored.ids) == restored.tokens
        longer, _, reused = await told(backend, path, "And the sea?")
        assert reused >= 0.98 * restored.tokens

        # The slot now holds more than the file. A harmed file must not cost it.
        for harm in (whole[:-1000], whole[:9000] + bytes([whole[9000] ^ 8]) + whole[9001:]):
            snapshot = snapshots.best_for(digests(path))
            assert snapshot is not None
            file.write_bytes(harm)
            refused = await snapshots.restore(backend, 0, snapshot)
            assert isinstance(refused, Refused) and not refused.slot_emptied
            assert "refused" in snapshot_sentence(refused.why)
            assert not file.exists() and snapshots.best_for(digests(path)) is None
            saved = (await snapshots.save_on_quit(backend, [held(longer)]))[0]
            file, path = folder / saved.snapshot.file, longer
            whole = file.read_bytes()
        _, prompt, cached = await told(backend, longer, "And the lake?")
        assert cached >= 0.98 * saved.snapshot.tokens and prompt - cached < 40


async def test_a_snapshot_for_other_slots_is_refused_and_the_conversation_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    async with running(folder, context_size=512) as (backend, snapshots):
        path, _, _ = await told(backend, BEGINNING, "Tell me about rivers. " * 10)
        saved = await snapshots.save(backend, SlotContent(0, "c1", path[-1].digest.hex()))
        assert saved is not None
    async with running(folder, context_size=512, slots=2) as (backend, snapshots):
        assert await snapshots.refill(backend) == ()
        refused = await snapshots.restore(backend, 0, saved.snapshot)
        assert isinstance(refused, Refused) and "another shape" in snapshot_sentence(refused.why)
        _, prompt, reused = await told(backend, path, "And the sea?")
        assert prompt > reused == 0
    async with running(folder, context_size=512) as (backend, snapshots):
        assert isinstance(await snapshots.restore(backend, 0, saved.snapshot), Restored)


async def test_the_app_fills_the_slots_again_after_a_restart(tmp_path: Path) -> None:
    settings = changed(
        changed(changed(Settings(), "engine.threads", 1), "engine.context_size", 512),
        "engine.model",
        os.fspath(small_model()),
    )
    path, cached = BEGINNING, 0
    for text in ("Tell me about rivers. " * 10, "And the sea?"):
        connector = Connector(settings, lambda: None, engine=EmbeddedEngine(settings.engine, tmp_path / "snapshots"))
        try:
            path, _, cached = await told(await connector.ready(), path, text)
        finally:
            await asyncio.wait_for(connector.aclose(), 120)
    assert cached > 60


async def test_with_snapshots_off_nothing_is_written(tmp_path: Path) -> None:
    settings = changed(
        changed(changed(Settings(), "engine.snapshots", False), "engine.context_size", 512),
        "engine.model",
        os.fspath(small_model()),
    )
    connector = Connector(settings, lambda: None, engine=EmbeddedEngine(settings.engine, tmp_path / "snapshots"))
    try:
        await told(await connector.ready(), BEGINNING, "Hello.")
    finally:
        await connector.aclose()
    assert not (tmp_path / "snapshots").exists()
