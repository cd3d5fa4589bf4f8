"""A service with memory whose background work begins as soon as it may, and what is asked of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kvchat.chat.background import jobs
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import MemorySettings, Settings, changed
from kvchat.memory.ledger import ExtractionLedger
from kvchat.memory.memories import Memories
from kvchat.prompt.request import Parameters
from kvchat.store import Store

QUICK: dict[str, Any] = {"rest_seconds": 0, "idle_seconds": 600, "consolidate": False, "worth_tokens": 0}


@asynccontextmanager
async def remembering(
    url: str,
    folder: Path,
    *,
    settings: Settings | None = None,
    begin: bool = True,
    reads_ahead: bool = False,
    max_tokens: int = 16,
    typing_s: float = 0.0,
    **memory: Any,
) -> AsyncIterator[ChatService]:
    """`typing_s`: how long after the last key the person counts as typing."""
    settings = changed(settings or Settings(), "server.base_url", url)
    settings = replace(
        settings,
        parameters=Parameters(temperature=0.0, max_tokens=max_tokens),
        memory=MemorySettings(**{**QUICK, **memory}),
    )
    store = Store.open(folder)
    service: ChatService

    def memories() -> Memories:
        return Memories.open(store, folder / "memory", folder / "index.db", session=service.memory.session)

    service = ChatService(store, settings, memories=memories, lanes=folder / "lanes")
    service.jobs.enabled = service.servers.connects_ahead = True
    service.warm_up.enabled = reads_ahead
    if begin:
        service.begin_background()
        service.jobs.typed_at = 0.0
    with patch.object(jobs, "TYPING_S", typing_s):
        try:
            await service.servers.connect()
            yield service
        finally:
            await service.aclose()


async def until(service: ChatService, holds: Callable[[], object], seconds: float = 240) -> None:
    told = asyncio.Event()
    stop = service.events.subscribe(lambda _: told.set())
    try:
        async with asyncio.timeout(seconds):
            while not holds():
                told.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):  # what is looked at may change without a word
                        await told.wait()
    finally:
        stop()


async def passed_over(service: ChatService) -> None:
    """Until the background has looked at its queue, over and over, and has done all that it may do by now."""
    for _ in range(3):
        looked, look = asyncio.Event(), service.jobs.start_due

        async def looking(look: Any = look, looked: asyncio.Event = looked) -> float | None:
            pause: float | None = await look()
            looked.set()
            return pause

        service.jobs.start_due = looking  # type: ignore[method-assign]
        service.jobs.wake()
        await looked.wait()
        service.jobs.start_due = look  # type: ignore[method-assign]
        await until(service, lambda: not service.jobs.at_work())


def pending(service: ChatService, id: str) -> int:
    return len(ExtractionLedger(service.store.database).pending(service.conversations.get(id).path()))


async def said(service: ChatService, id: str, text: str) -> None:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)


def is_extraction(visit: Any) -> bool:
    return b"json_schema" in visit.body
