"""Plain mode on the real server: the prompt's figures are the server's, and the next turn finds the cache."""

from __future__ import annotations

import re

from plain_kit import plain

from engine_fixture import running_server
from kvchat.config import Settings, changed

FIGURES = re.compile(r"Cached ([\d,]+) of ([\d,]+) prompt tokens; [<\d. ]+ s to the first token\.\n$")


async def test_a_conversation_is_prefilled_once() -> None:
    settings = changed(changed(Settings(), "parameters.max_tokens", 12), "parameters.temperature", 0.0)
    with running_server() as server:
        async with plain(server.base_url, settings=settings) as run:
            await run.type("What is a lighthouse?")
            first = await run.type("And what is a ship, in one sentence?")
            found = FIGURES.search(first)
            assert found is not None, first
            cached, prompt = (int(number.replace(",", "")) for number in found.groups())
            assert 0 < prompt - cached < 40
            said = await run.type("/regenerate")
            assert "Answer:\n" in said and "wasted" not in said
            assert "This conversation is warm" in await run.type("/cache")
