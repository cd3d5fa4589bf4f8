"""The rail beside the messages: three marks that differ without colour, on every row, and nothing moves for them."""

from __future__ import annotations

from typing import Any

from kvchat.reports.rail import Stretch, Where
from kvchat.ui.widgets.transcript.styles import RAIL


async def test_every_row_shows_where_its_tokens_are(make_app: Any, items: Any) -> None:
    shown = [items.question(1), items.answer(1, "\n\n".join("abcdefgh")), items.question(2), items.answer(2, "x")]
    app = make_app(shown)
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.pause()
        before = [line[1:] for line in app.lines()]
        q1, a1, q2, _ = (item.node_id for item in app.transcript.items)
        app.transcript.set_rail({q1: Stretch(Where.SLOT), a1: Stretch(Where.STORED, 0.5), q2: Stretch(Where.NOWHERE)})
        await pilot.pause()
        lines = app.lines()
        rail = "".join(line[:1] or " " for line in lines)
        heights = {entry.item.node_id: entry.height for _, entry in app.transcript._column.made()}
        half = sum((row + 0.5) / heights[a1] <= 0.5 for row in range(heights[a1]))
        assert rail.startswith("┃" * heights[q1] + "╎" * half + "│" * (heights[a1] - half) + "│" * heights[q2])
        assert set(rail[heights[q1] + heights[a1] + heights[q2] :]) == {" "}, "what is not told has no mark"
        assert [line[1:] for line in lines] == before, "only the rail has changed"


def test_the_marks_differ_without_colour() -> None:
    """In a slot, kept elsewhere, to be prefilled, unknown."""
    assert len({glyph for glyph, _ in RAIL.values()}) == 4
    assert RAIL[Where.SLOT][1] == RAIL[Where.STORED][1] != RAIL[Where.NOWHERE][1]
