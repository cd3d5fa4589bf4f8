"""Prompts that go as token ids to a real server, and the law that they keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import Node, Role
from kvchat.prompt.token_ids import known_ids
from kvchat.store import Store

WORDS = '("sea " | "boat " | "moon " | "rain " | "old ")'


@asynccontextmanager
async def serving(url: str, folder: Path, *, token_ids: bool) -> AsyncIterator[ChatService]:
    settings = changed(Settings(), "server.base_url", url)
    settings = changed(changed(settings, "cache.token_ids", token_ids), "memory.enabled", False)
    service = ChatService(Store.open(folder), settings)
    try:
        yield service
    finally:
        await service.aclose()


async def last(service: ChatService, id: str) -> Node:
    await service.conversations.wait(id)
    return service.conversations.get(id).path()[-1]


def answers(path: list[Node]) -> list[Node]:
    return [node for node in path if node.role is Role.ASSISTANT]


def wasted(path: list[Node]) -> list[int]:
    """Of each turn but the first."""
    return [answer.figures.wasted_tokens for answer in answers(path)[1:]]


def holds_the_law(path: list[Node]) -> None:
    """Each prompt is the one before, what was sampled behind it, and what is new; as the server counted it."""
    said = answers(path)
    for before, after in pairwise(said):
        sent = known_ids([node.ids for node in path[: path.index(before) + 1]], before.ids.scope).tokens
        assert after.ids.before == len(sent)
        assert after.figures.prompt_tokens == len(sent) + len(after.ids.added)
        assert after.figures.prompt_tokens - before.figures.prompt_tokens == len(before.ids.sampled) + len(
            after.ids.added
        )
