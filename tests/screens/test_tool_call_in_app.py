"""An answer that calls a tool, on the screen and afterwards."""

from __future__ import annotations

import pytest
from app_kit import Drive

from kvchat.prompt.message import State
from toyserver import ToyServer, event, sse, tokens


def calling(*words: str) -> list[bytes]:
    function = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    deltas = [*({"content": word} for word in words), {"tool_calls": [call]}]
    return [
        *(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas),
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]


@pytest.mark.parametrize(("words", "state"), [((), State.EMPTY), (("Let me look.",), State.DONE)])
async def test_a_tool_call_is_told_by_its_name_and_the_conversation_goes_on(
    drive: Drive, server: ToyServer, words: tuple[str, ...], state: State
) -> None:
    server.on_chat(sse(calling(*words)), tokens("Rain."))
    async with drive() as app:
        await app.say("What is the weather in Oslo?")
        assert app.path[-1].state is state
        shown = app.prose.replace("┃ ", "")
        assert 'The model called the tool get_weather({"city":"Oslo"}).' in shown
        assert "This conversation has no such tool; ask for an answer in words." in shown
        assert ("r retry" in app.prose) == (state is State.EMPTY)
        await app.say("In words, please.")
        assert app.said[-1] == "Rain."
        markdown = "".join(app.service.exports.text([app.conversation.id], "md"))
    assert "get_weather" in markdown
