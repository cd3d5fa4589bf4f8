"""Plain mode in this process: on a service of its own, with texts typed one after the other and what is said read."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kvchat.chat.service import ChatService
from kvchat.cli.plain_output import Printer
from kvchat.config import Settings, changed
from kvchat.config.layers import layered
from kvchat.memory.memories import open_memories
from kvchat.paths import find
from kvchat.plain.chat import Typed
from kvchat.plain.run import First, PlainMode
from kvchat.plain.speaker import Speaker
from kvchat.store import Store

NEW = First()


@dataclass
class Plain:
    """A run of plain mode."""

    mode: PlainMode
    service: ChatService
    out: io.StringIO
    answers: list[str | None]
    """What is answered to the questions to come."""
    asked: list[str]
    """The questions so far, and what stood in the line."""

    @property
    def said(self) -> str:
        return self.out.getvalue()

    async def type(self, text: str, *answers: str | None, pasted: bool = False) -> str:
        """Type a text, with answers to what is asked; what is said then."""
        self.answers += answers
        before = len(self.said)
        await self.mode.take(Typed(text, pasted))
        assert not self.answers, f"nobody asked for {self.answers}"
        return self.said[before:]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


@asynccontextmanager
async def plain(
    url: str,
    *,
    first: First = NEW,
    folder: Path | None = None,
    state_seconds: float = 1000.0,
    settings: Settings | None = None,
) -> AsyncIterator[Plain]:
    """Plain mode on a server. `state_seconds`: before states are said; none are, unless a test is about them."""
    out, answers, asked = io.StringIO(), list[str | None](), list[str]()

    async def ask(prompt: str, text: str) -> str | None:
        asked.append(prompt + text)
        out.write(prompt)
        assert answers, f"nobody answers: {prompt}\n{out.getvalue()}"
        answer = answers.pop(0)
        out.write(f"{answer}\n")
        return answer

    paths = find(None, None)
    wanted = changed(settings or Settings(), "server.base_url", url)
    store = Store.open(folder)
    service = ChatService(
        store,
        wanted,
        memories=lambda: open_memories(paths, wanted, store, service.memory.session) if folder else None,
    )
    mode = PlainMode(service, Speaker(Printer(out), ask), paths, lambda: layered(paths.config), state_seconds)
    try:
        await mode.begin(first, ())
        yield Plain(mode, service, out, answers, asked)
    finally:
        await mode.aclose()
