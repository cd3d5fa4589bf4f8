"""Every way to write an answer, in the app: the transcript shows the text, whole and once, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from app_kit import Drive

from answer_ways import KEPT
from kvchat.prompt.message import State
from toyserver import ToyServer, raw

LOOKED_AT = {
    "think, split": "thought in 2 words",
    "only its end": "thought in 2 words",
    "im_end": "Hello there.",
    "only reasoning": "The model reasoned and gave no answer. It is folded above",
    "reasoning up to the length": "Cut at max tokens: The model reasoned and gave no answer.",
    "filtered": "Interrupted: A content filter of the server stopped the answer.",
    "a refusal": "The answer is empty: The model refused to answer: I cannot.",
    "aborted": "it may not be whole",
}
"""What is on the screen."""


@pytest.mark.parametrize("names", [LOOKED_AT, pytest.param(KEPT, marks=pytest.mark.slow)], ids=["looked at", "all"])
@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "document"])
async def test_the_transcript_shows_the_text_and_how_it_ended(
    drive: Drive, server: ToyServer, streamed: bool, names: Iterable[str]
) -> None:
    async with drive() as app:
        for name in names:
            way = KEPT[name]
            server.on_chat(raw(way.http(streamed=streamed)))
            await app.grow("Say hello")
            shown = app.chat.transcript.items[-1]
            assert (shown.text, shown.reasoning, shown.state) == (way.text, way.thought, way.state), name
            assert way.note in shown.note or way.state is State.LENGTH
            if name in LOOKED_AT:
                prose = app.prose.rpartition("Say hello")[2].replace("┃ ", "")
                assert LOOKED_AT[name] in prose, (name, prose)
                assert ("thought in" in prose) == bool(way.thought), name
                assert not way.text or prose.count(way.text) == 1, (name, prose)
