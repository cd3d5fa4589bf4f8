"""How much `kvchat ask` asks a real llama-server beside its question, and that it knows what it did not ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engine_fixture import running_server
from kvchat.backends.http.transport import Exchange
from kvchat.store import Store

pytestmark = pytest.mark.engine

QUESTION = "/v1/chat/completions"
MOST = 6


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths that are asked for, in order."""
    paths: list[str] = []
    original = Exchange.__init__

    def counted(self, endpoint, method, path, **rest):
        paths.append(path)
        original(self, endpoint, method, path, **rest)

    monkeypatch.setattr(Exchange, "__init__", counted)
    return paths


async def test_it_sends_six_requests_beside_the_question_and_still_knows_what_the_server_holds(run, asked, own_folders):
    with running_server(slots=4) as server:

        async def ask(*words: str) -> str:
            asked.clear()
            done = await run("--base-url", server.base_url, "ask", "--json", "--max-tokens", 12, *words)
            assert asked.count(QUESTION) == 1 and len(asked) <= 1 + MOST, (asked, done.err)
            assert asked.index(QUESTION) <= 3, "no more is asked before it"
            return json.loads(done.out)["conversation"]

        first = await ask("Tell me of the lighthouse.")
        await ask("Tell me of the lantern.")
        await ask("--conversation", first, "And who keeps it, and since when?")
        await ask("Tell me of the lighthouse keeper.")
        await ask("--continue-answer")
    store = Store.open(own_folders / "data")
    found = [
        node.figures
        for conversation in store.conversations()
        for node in store.tree(conversation.id)
        if node.figures is not None
    ]
    store.close()
    told = [figures for figures in found if figures.predicted_cached is not None]
    assert len(told) >= len(found) - 1, "of the first nothing was known"
    assert all(figures.predicted_cached == figures.cached_tokens for figures in told)
