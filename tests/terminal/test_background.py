"""Light or dark by the terminal's answer, which comes late, in pieces, or never."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpus import corpus
from kvchat.ui.terminal.background import QUERY, is_light
from terminal_output import Terminal
from toyserver import ToyServer

LIGHT, DARK = "\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "\x1b]11;rgb:1212/1414/1c1c\x1b\\"


@corpus(
    ("colour", "light"),
    [
        ("rgb:ffff/ffff/ffff", True),
        ("rgb:0000/0000/0000", False),
        ("rgb:ff/ff/ff", True),
        ("rgb:0/0/0", False),
        ("rgba:fafa/fafa/fafa/ffff", True),
        ("rgb:fdf6/f6e3/e3d0", True),
        ("rgb:002b/3636/4242", False),
        ("rgb:8000/8000/8000", True),
        ("rgb:0000/0000/ffff", False),
        ("rgb:ffff/ffff/0000", True),
        ("", None),
        ("?", None),
        ("rgb:", None),
        ("rgb:ff/ff", None),
        ("rgb:fffff/0/0", None),
        ("#ffffff", None),
        ("white", None),
    ],
)
def test_a_colour_is_light_or_dark(colour: str, light: bool | None) -> None:
    assert is_light(colour) is light


# On a pseudo-terminal.


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TMUX", "STY")}
    return {**plain, "TERM": "xterm-256color", "COLORTERM": "truecolor", **more}


def ground(name: str) -> bytes:
    """The background of a theme, as it is written."""
    from kvchat.config.themes import load_theme
    from kvchat.paths import own_themes

    theme, _ = load_theme(own_themes() / f"{name}.toml")
    assert theme is not None and theme.background is not None
    parts = [int(theme.background[at : at + 2], 16) for at in (1, 3, 5)]
    return b"48;2;%d;%d;%d" % tuple(parts)


@pytest.mark.process
@pytest.mark.parametrize(
    "reads",
    [
        [LIGHT],
        ["\x1b", LIGHT[1:]],
        ["\x1b]11;rgb:ffff", "/ffff/ffff", "\x1b", "\\"],
        [LIGHT.replace("\x1b\\", "\x07")],
        list(LIGHT),
    ],
    ids=["whole", "after its ESC", "in pieces", "with BEL", "byte by byte"],
)
async def test_on_a_light_terminal_the_light_theme_is_taken(own_folders: Path, reads: list[str]) -> None:
    async with ToyServer() as server:
        slow = environment(ESCDELAY="5000")  # milliseconds: on a busy machine the pieces come late
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], slow) as terminal:
            await terminal.writes(QUERY.encode())
            assert b"\x1b[?2026h" in terminal.output.partition(QUERY.encode())[0]  # the first frame stands
            assert ground("kvchat-day") not in terminal.output
            await terminal.press("he", *reads, "llo")
            await terminal.writes(ground("kvchat-day"))
            await terminal.shows("› hello")
            assert "rgb" not in terminal.drawn
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert not (own_folders / "config" / "config.toml").exists()  # nobody chose it


@pytest.mark.process
async def test_a_late_answer_while_something_is_typed_and_the_answer_runs(own_folders: Path) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment()) as terminal:
            await terminal.shows("this machine")
            await terminal.shows("Hello", "a question", "\r")
            await terminal.shows("Help", "\x1bOP")
            await terminal.shows("newline", "\x1b")  # a lone ESC is still a key
            await terminal.shows("next", "next")
            await terminal.press(DARK[:9], DARK[9:], " word")
            await terminal.shows("› next word")
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert "rgb" not in terminal.drawn


@pytest.mark.process
@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ({"NO_COLOR": "1"}, ""),
        ({"TERM": "linux"}, ""),
        ({}, 'theme = "kvchat-night"\n'),
    ],
)
async def test_the_terminal_is_not_asked_where_its_answer_has_no_say(
    own_folders: Path, env: dict[str, str], settings: str
) -> None:
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config" / "config.toml").write_text(settings)
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment(**env)) as terminal:
            await terminal.shows("this machine")
            await terminal.shows("Hello", "a question", "\r")
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert b"\x1b]11;" not in terminal.output


@pytest.mark.process
async def test_who_wants_it_by_the_terminal_again_says_auto(own_folders: Path) -> None:
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config" / "config.toml").write_text('theme = "kvchat-night"\n')
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment()) as terminal:
            await terminal.shows("this machine")
            await terminal.press("/theme auto", "\r")
            await terminal.writes(QUERY.encode())
            await terminal.press(LIGHT)
            await terminal.writes(ground("kvchat-day"))
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert (own_folders / "config" / "config.toml").read_text() == 'theme = "auto"\n'
