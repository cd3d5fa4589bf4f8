"""A window that the user changes: `kvchat ask --json` names it as the cause of what is prefilled again, and so do `stats`,
`cache` and an export."""

from __future__ import annotations

import json
from typing import Any

from kvchat.figures.cause import Cause
from standins.ollama import OllamaStandIn, StandInModel

QUESTION = "Tell me of the lamp that turned over the sea while the keeper wrote the log. " * 8


async def test_another_window_is_told_wherever_causes_are(run: Any) -> None:
    async with OllamaStandIn(StandInModel(), reports_cached=True) as server:

        async def ask(*words: str, window: int) -> dict[str, Any]:
            at = ("--base-url", server.url, "ask", "--json", *words)
            done = await run(*at, env={"KVCHAT_SERVER_CONTEXT_SIZE": str(window)})
            assert done.status == 0, done.err
            answer: dict[str, Any] = json.loads(done.out)
            return answer

        first = await ask(QUESTION, window=4096)
        same = await ask("-c", "And then?", window=4096)
        assert first["cause"] is same["cause"] is None
        other = await ask("-c", "And who keeps it?", window=8192)
        assert (other["cause"], other["context_size"]) == ("other_window", 8192)
        wasted = other["wasted_tokens"]
        assert wasted > 100

    found = json.loads((await run("stats", "--json")).out)
    assert found["waste"] == [{"cause": Cause.OTHER_WINDOW, "turns": 1, "tokens": wasted}]
    shown = " ".join((await run("stats")).out.split())
    assert f"window changed 1 answer {wasted:,} tokens" in shown
    told = (await run("cache")).out
    assert "a window of 8,192 tokens in place of 4,096" in " ".join(told.split())
    exported = (await run("export", first["conversation"], "--format", "json")).out
    assert '"other_window"' in exported
