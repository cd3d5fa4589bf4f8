"""Messages of megabytes in the app at a terminal: it opens at the end, keys are echoed, Home and End go there."""

from __future__ import annotations

import json
import os
import sys
from asyncio import create_subprocess_exec, sleep
from pathlib import Path

import pytest

from terminal_output import Terminal
from toyserver import ToyServer

pytestmark = [pytest.mark.process, pytest.mark.slow]

LARGE = 5_000_000
TEXTS = {
    "a line": "word " * (LARGE // 5),
    "a wide line": "日本 a\u0301 " * (LARGE // 10),
    "a table": "| a | b |\n|---|---|\n" + "".join(f"| {number} | {number * 7} |\n" for number in range(100_000)),
    "nested lists": "".join("  " * depth + "- item\n" for depth in range(3000)),
    "short lines": "word\n" * 1_000_000,
}
SECONDS = 10.0
"""Of processor time for anything that takes 0.1 where nothing is laid out that is not seen."""
TAB, HOME, END, PAGE_UP = "\t", "\x1b[H", "\x1b[F", "\x1b[5~"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_message_of_megabytes_holds_up_no_key(text: str, tmp_path: Path, own_folders: Path) -> None:
    said = ["It begins.", f"{text}\n\nthe end of an answer", f"{text}\n\nthe end of a question", "That was all."]
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": content} for number, content in enumerate(said)]
    file = tmp_path / "said.json"
    file.write_text(json.dumps([{"messages": messages}]))
    command = [sys.executable, "-m", "kvchat.cli"]
    assert await (await create_subprocess_exec(*command, "import", str(file))).wait() == 0
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    async with ToyServer() as server:
        with Terminal([*command[1:], "--base-url", server.url, "-c"], environment) as terminal:

            def used() -> float:
                ticks = Path(f"/proc/{terminal.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

            await terminal.shows("That was all.")
            await terminal.shows("the end of a question")
            began = used()
            for typed in ("z", "zz", "zzz"):
                await terminal.shows(typed, "z")
            await terminal.press(TAB)
            await terminal.shows("It begins.", HOME)
            await terminal.shows("That was all.", END)
            for _ in range(3):
                await terminal.press(PAGE_UP)
                await sleep(0.2)
            await terminal.shows("That was all.", END)
            assert used() - began < SECONDS
