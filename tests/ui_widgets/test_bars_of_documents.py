"""What the header and the status line say about documents, and what gives way to what."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual.widget import Widget

from kvchat.ui.runs import plain
from kvchat.ui.widgets import header_text
from kvchat.ui.widgets.header_text import HeaderState
from kvchat.ui.widgets.statusline import Header, StatusLine

Hosting = Callable[..., Any]
READY = HeaderState("/models/SmolLM2-135M.gguf", "llama.cpp", "loopback", context_used=3812, context_size=8192)
HANDBOOK = ("▤ handbook, logbooks?", "▤ 2?", "▤?")


def line(widget: Widget) -> str:
    """The widget's line as it stands on the screen."""
    strip = widget.screen._compositor.render_strips()[widget.region.y]
    return strip.crop(widget.region.x, widget.region.right).text


@pytest.mark.parametrize(
    ("width", "words", "bar"),
    [
        (60, "▤?  ", False),
        (80, "▤ handbook, logbooks?  ", False),
        (120, "▤ handbook, logbooks?  ", True),
        (200, "▤ handbook, logbooks?  ", True),
    ],
)
async def test_what_is_searched_stands_beside_the_meter_whose_bar_gives_way(
    hosting: Hosting,
    width: int,
    words: str,
    bar: bool,
) -> None:
    header = Header()
    async with hosting(header).run_test(size=(width, 24)) as pilot:
        header.set_state(READY)
        await pilot.pause()
        without = line(header)
        header.set_documents(HANDBOOK)
        await pilot.pause()
        text = line(header)
        assert words in text and "3,812/8,192" in text and ("▕" in text) is bar
        assert text.startswith(" kvchat   SmolLM2-1")
        header.set_documents(())
        await pilot.pause()
        assert line(header) == without


async def test_a_hostile_name_in_the_header_is_signs(hosting: Hosting) -> None:
    header = Header()
    async with hosting(header).run_test(size=(120, 24)) as pilot:
        header.set_state(READY)
        header.set_documents(("▤ [/x]\x1b[2J\n",))
        await pilot.pause()
        assert "▤ [/x]␛[2J" in line(header)


async def test_indexing_stands_in_front_of_the_memory_and_a_remark_gives_way(hosting: Hosting) -> None:
    status = StatusLine()
    async with hosting(status).run_test(size=(100, 24)) as pilot:
        status.set_background("indexing handbook 43 %")
        await pilot.pause()
        assert line(status).rstrip().endswith("indexing handbook 43 %")
        status.set_memory("2 noted", "F5")
        status.set_aside("3 turns: 12 s saved in all")
        await pilot.pause()
        assert line(status).rstrip().endswith(" · indexing handbook 43 % · memory: 2 noted (F5)")
        status.set_aside("a remark that is far too long to stand there beside both of the others")
        await pilot.pause()
        assert line(status).split("  ")[-1].strip() == "indexing handbook 43 % · memory: 2 noted (F5)"
        status.set_background("")
        await pilot.pause()
        assert "indexing" not in line(status)


def test_what_is_cut_in_the_header_says_so_once() -> None:
    for width, title, model in product(
        range(16, 90), ("", "What is the capital of Norway?"), ("SmolLM2-135M-Instruct.Q4_1", "qwen3:8b", "toy")
    ):
        said = plain(header_text.left(replace(READY, title=title, model=model, embedded=True), width))
        assert cell_len(said) <= width and "……" not in said, (width, title, model, said)
