"""Whatever bytes a terminal sends, kvchat lives, and gives the terminal back as it was."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from terminal_output import Terminal
from tries import tries

pytestmark = pytest.mark.process

KVCHAT = ["-m", "kvchat.cli", "--base-url", "http://127.0.0.1:9"]
KEYS, PASTED = 160, 40_000
"""The most random bytes in a row, as keys and in a paste."""
CTRL_Q, ESC, F11 = "\x11", "\x1b[27u", "\x1b[23~"
KINDS = {
    "a Latin-1 key": b"\xe9",
    "a Latin-1 key in a word": b"caf\xe9 cr\xe8me",
    "an X10 mouse report": b"\x1b[M \xa0\xff",
    "a raw paste": "Grüße\r".encode("latin-1") * 3,
    "a Latin-1 paste": b"\x1b[200~caf\xe9\x1b[201~",
    "NULs": b"\0\0\0",
    "half a character": "漢".encode()[:2],
    "a surrogate": b"\xed\xa0\x80",
    "a key's release": b"\x1b[97;1:3u",
    "no character's number": b"\x1b[1114112;1u",
    "a number without end": b"\x1b[" + b"9" * 20 + b";1u",
    "a terminal of no size": b"\x1b[48;0;0;0;0t\x1b[<0;1;1M",
    "a terminal of a billion columns": b"\x1b[48;30;1000000000;0;0t",
    "an endless sequence": b"\x1b[" + b"1;" * 40 + b"\x1b]" + b"x" * 90,
}


CASES = range(1, tries("terminal_inputs", 3) + 1)


def environment() -> dict[str, str]:
    return os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "EDITOR": "true"}


@pytest.mark.parametrize("name", KINDS)
async def test_foreign_bytes_are_lived_with(name: str) -> None:
    with Terminal(KVCHAT, environment()) as terminal:
        await terminal.shows("newline")
        await terminal.send(KINDS[name])
        await terminal.shows("still here", "still here")
        await terminal.press(CTRL_Q)
        assert await terminal.ended() == 0
        assert terminal.left_on == []
        assert terminal.last_words == ""


def input_of(seed: int, size: int) -> bytes:
    """Random bytes of every kind that a terminal can send: keys, pastes, mouse, reports, what is none of these. A key
    costs a thousand times what a byte of a paste does, so most of it is pasted. Ctrl+D may quit, and is left out."""
    chance = random.Random(seed)

    def some(most: int) -> bytes:
        return chance.randbytes(chance.randrange(1, most))

    def report() -> bytes:
        figures = bytes(chance.choices(b"0123456789;:<?>", k=chance.randrange(12)))
        return b"\x1b[" + figures + bytes(chance.choices(b"uMmtR~y"))

    kinds = [
        lambda: some(KEYS),
        lambda: b"\x1b[200~" + some(PASTED) + b"\x1b[201~",
        report,
        report,
        lambda: b"\x1b[M" + chance.randbytes(3),
        lambda: b"\x1b]" + some(60) + b"\x07",
        lambda: b"\x1bP" + some(40) + b"\x1b\\",
        lambda: "Grüße, 漢字 \U0001f600".encode(chance.choice(["utf-8", "utf-16", "gb18030"])),
    ]
    made = bytearray()
    while len(made) < size:
        made += chance.choice(kinds)()
    return bytes(made[:size]).replace(b"\x04", b"")


@pytest.mark.slow
@pytest.mark.parametrize("seed", CASES)
async def test_a_megabyte_of_anything_is_lived_with(own_folders: Path, seed: int) -> None:
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config" / "config.toml").write_text('[keys]\nquit = "f11"\n')
    with Terminal(KVCHAT, environment()) as terminal:
        await terminal.shows("newline")
        await terminal.send(input_of(seed, 1_000_000))
        await terminal.send(b"\x1b[201~")
        async with asyncio.timeout(280):
            # As many screens as were opened are closed first. A terminal that is given back echoes keys.
            while terminal.process.poll() is None and b"\x1b[?1049l" not in terminal.output:
                await terminal.press(ESC, F11)
        assert await terminal.ended() == 0, terminal.last_words
        assert terminal.left_on == []


async def test_the_key_of_the_editor_pressed_several_times_leaves_the_terminal_whole() -> None:
    with Terminal(KVCHAT, environment()) as terminal:
        await terminal.shows("newline")
        await terminal.send(b"abc" + b"\x07" * 3)
        await terminal.shows("still here", "still here")
        await terminal.press(CTRL_Q)
        assert await terminal.ended() == 0
        assert terminal.left_on == []
