"""What a turn of the app asks a real llama-server beside its question: each thing once, and what can wait behind it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from engine_fixture import running_server
from kvchat.backends.http.transport import Exchange
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.request import Parameters
from kvchat.store import Store

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
SHORT = Parameters(temperature=0.0, max_tokens=16)


async def test_a_turn_asks_for_each_thing_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bytes]] = []
    original = Exchange.__init__

    def noted(self, endpoint, method, path, *, body=None, **rest):
        asked.append((path, body or b""))
        original(self, endpoint, method, path, body=body, **rest)

    monkeypatch.setattr(Exchange, "__init__", noted)
    with running_server(slots=4) as server:
        service = ChatService(Store.open(tmp_path), changed(Settings(), "server.base_url", server.base_url))
        try:
            conversation = await service.new_conversations.create()

            async def turn(text: str) -> None:
                asked.clear()
                await service.turns.send(conversation.id, Question(text), parameters=SHORT)
                await service.conversations.wait(conversation.id)
                cache = service.servers.link(conversation.id).cache
                assert cache is not None
                await cache.settled()

            await turn("Who keeps the lighthouse?")
            await turn("Since when does the keeper do that, and who was there before?")
            await turn("And who comes after?")
        finally:
            await service.aclose()
    paths = [path for path, _ in asked]
    assert paths[: paths.index(CHAT)] == ["/slots"], "these show who answers"
    assert len(paths) <= 1 + 4, paths
    assert Counter(paths)["/apply-template"] == 0, "the server shows how its template went on from the turn before"
    assert all(times == 1 for (path, _), times in Counter(asked).items() if path != "/slots")
    figures = conversation.path()[-1].figures
    assert figures is not None and figures.predicted_cached == figures.cached_tokens
