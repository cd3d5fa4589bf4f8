"""Sources in the transcript: the key, the clicks, and what costs nothing while an answer streams."""

from __future__ import annotations

from typing import Any

from kvchat.prompt.context import PASSAGE, ContextBlock
from kvchat.ui.widgets.transcript.styles import GUTTER
from kvchat.ui.widgets.transcript.widget import Transcript

SIZE = (80, 24)
BLOCK = ContextBlock(PASSAGE, "[1] handbook/a.md:1-2", "Trim it.", "docs/handbook/a.md#1-2")
SOURCES = ((1, BLOCK), (2, ContextBlock(PASSAGE, "[2] handbook/b.md:3", "Oil.", "docs/handbook/b.md#3")))


def asked(app: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(message.node, message.numbers) for message in app.of(Transcript.SourcesRequested)]


async def test_a_click_on_a_citation_or_on_a_source_asks_for_it(make_app: Any, items: Any) -> None:
    app = make_app([items.question(0), items.answer(0, "It is trimmed [1] and filled [1, 2].", sources=SOURCES)])
    async with app.run_test(size=SIZE) as pilot:
        lines = app.lines()
        for words in ("[1] and", "[1, 2].", "handbook/b.md", "Sources", "It is"):
            y = next(y for y, line in enumerate(lines) if words in line)
            await pilot.click(Transcript, offset=(lines[y].index(words), y))
            await pilot.pause(0.6)  # two clicks in one place would be a double click
        assert asked(app) == [("a0", (1,)), ("a0", (1, 2)), ("a0", (2,))]
        assert app.transcript.selected == "a0"
    assert GUTTER == 2


async def test_a_click_on_an_unfolded_passage_asks_for_it(make_app: Any, items: Any) -> None:
    app = make_app([items.question(0, blocks=(BLOCK,))])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("up", "enter")
        lines = app.lines()
        y = next(y for y, line in enumerate(lines) if "[1] handbook/a.md:1-2" in line)
        await pilot.click(Transcript, offset=(12, y))
        assert asked(app) == [("q0", (1,))]


async def test_the_sources_come_when_the_answer_has_ended(make_app: Any, items: Any) -> None:
    app = make_app([items.question(0), items.streaming(0)])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.stream_text("a0", "It is trimmed [1].")
        await pilot.pause(0.2)
        assert "It is trimmed [1]." in "\n".join(app.lines()) and "Sources" not in "\n".join(app.lines())
        app.transcript.end_stream(items.answer(0, "It is trimmed [1].", sources=SOURCES[:1]))
        await pilot.pause()
        assert "  Sources  [1] handbook/a.md:1-2" in app.lines()
