"""NO_COLOR: not one colour; what the colours said is said by attributes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from kvchat.ui.terminal.colourless import COLOURLESS
from terminal_output import Terminal, pieces
from toyserver import ToyServer, tokens

COLOURED = re.compile(r"(?:^|;)(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;|$)")
ANSWER = "A `name`, a **word** and a [link](http://x.test):\n\n```python\ndef f():\n    return 1  # one\n```\n\n> said"
F1, F2, F4, F5 = "\x1bOP", "\x1bOQ", "\x1bOS", "\x1b[15~"
ESCAPE = "\x1b[27u"
LOOKS = [
    ("Help", F1),
    ("Totals and server", F2),
    ("Markdown", F4),
    ("Memory", F5),
    ("temperature", "\x0f"),
    ("Conversations", "\x13"),
    ("find an action", "\x10"),
]
"""Words of screens and the keys that open them."""


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **more}


def colours(output: bytes) -> set[str]:
    codes = (
        found[1]
        for piece in pieces(output)
        if piece.kind == "csi" and (found := re.fullmatch(r"([\d;]*)m", piece.body))
    )
    return {code for code in codes if COLOURED.search(code)}


def test_a_mark_in_the_background_is_reversed_and_everything_else_keeps_its_attributes() -> None:
    styles = {
        "plain": Style(),
        "red": Style(color="red", bold=True),
        "marked": Style(bgcolor="blue"),
        "ground": Style(bgcolor="default", dim=True),
        "cursor": Style(bgcolor="blue", reverse=True),
        "clickable": Style(color="red", meta={"@click": "x"}, underline=True),
    }
    found = {
        segment.text: segment.style
        for segment in COLOURLESS.apply([Segment(name, style) for name, style in styles.items()], Color(0, 0, 0))
        if segment.style
    }
    for style in found.values():
        assert style.color is not None and style.color.is_default
        assert style.bgcolor is not None and style.bgcolor.is_default
    assert {name for name, style in found.items() if style.reverse} == {"marked"}
    assert found["red"].bold and found["ground"].dim and found["clickable"].underline
    assert found["clickable"].meta == {"@click": "x"}
    assert COLOURLESS.apply([Segment("x")], Color(0, 0, 0)) == [Segment("x")]


@pytest.mark.process
async def test_no_screen_has_a_colour(own_folders: Path) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens(ANSWER, reasoning=["Let me see."]), tokens("Second."))
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(NO_COLOR="1")) as terminal:
            await terminal.shows("this machine")
            await terminal.shows("said", "a question", "\r")
            for words, key in LOOKS:
                await terminal.shows(words, key)
                await terminal.shows("newline", ESCAPE)
            await terminal.shows("▌ New conversation", "\x10")
            await terminal.shows("newline", ESCAPE)
            await terminal.shows("1/", "\x06", "return")
            await terminal.reverses("return")
            await terminal.shows("NO_COLOR is set", ESCAPE, "/theme", "\r")
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert colours(terminal.output) == set()
    assert not (own_folders / "config" / "config.toml").exists()


@pytest.mark.process
async def test_an_empty_no_color_is_none(own_folders: Path) -> None:
    with Terminal(["-m", "kvchat.cli", "--base-url", "http://127.0.0.1:9"], environment(NO_COLOR="")) as terminal:
        await terminal.shows("newline")
        await terminal.press("\x11")
        assert await terminal.ended() == 0
    shades = {code for code in colours(terminal.output) if not re.search(r"[34]8;2;(\d+);\1;\1(?:;|$)", code)}
    assert shades  # Textual's shades of grey would be all there is


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["config"], ["ask", "a question"], ["show", "zzz"]])
async def test_no_command_has_a_colour(own_folders: Path, arguments: list[str]) -> None:
    async with ToyServer() as server:
        with Terminal(
            ["-m", "kvchat.cli", "--base-url", server.url, *arguments], environment(NO_COLOR="1")
        ) as terminal:
            await terminal.ended()
    assert not any(piece.kind == "csi" for piece in pieces(terminal.output))
