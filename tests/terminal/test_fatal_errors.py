"""An error that nobody handled: the terminal is given back, one sentence says so, the details are in the log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvchat.store import Store
from terminal_output import Terminal

pytestmark = pytest.mark.process

CODE = """
import sys
from textual import work
from kvchat.chat.service import ChatService
from kvchat.ui.app import KvchatApp
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.controllers.options import OptionController
from kvchat.ui.controllers.workspace import in_worker
from kvchat.ui.terminal.input import TerminalInput

def broken(*_, **__):
    raise ZeroDivisionError("lighthouse")

async def worker(self):
    broken()

{patch}
from kvchat.cli import main
sys.exit(main(['--base-url', 'http://127.0.0.1:9', *sys.argv[1:]]))
"""
PLACES = {
    "an action": ("ChatScreen.inspect = broken", "\x1bOQ"),
    "a worker": ("OptionController.parameters = in_worker('dialog')(worker)", "\x0f"),
    "a timer": ("ChatService.refresh = broken", ""),
    "reading keys": (
        "feed = TerminalInput.feed\n"
        "TerminalInput.feed = lambda self, data: broken() if '@' in data else feed(self, data)",
        "@",
    ),
    "the end": ("ChatService.aclose = broken", "\x11"),
}


def environment() -> dict[str, str]:
    return os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@pytest.mark.parametrize("place", PLACES)
async def test_a_fatal_error_is_one_sentence_and_status_1(own_folders: Path, place: str) -> None:
    patch, key = PLACES[place]
    log = own_folders / "data" / "kvchat.log"
    with Terminal(["-c", CODE.format(patch=patch)], environment(), columns=200) as terminal:
        await terminal.shows("newline")
        if place != "a timer":
            await terminal.shows("kept as it is", "kept as it is")
        await terminal.press(key)
        assert await terminal.ended() == 1
        assert terminal.left_on == []
        assert terminal.last_words == (
            f"kvchat: An internal error (ZeroDivisionError) ended kvchat; the details are in {log}."
        )
    assert "ZeroDivisionError: lighthouse" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    store = Store.open(own_folders / "data")
    assert list(store.drafts().values()) == ([] if place == "a timer" else ["kept as it is"])
    store.close()


@pytest.mark.parametrize("patch", ["ChatScreen.compose = broken", "KvchatApp.CSS = 'Screen { color }'"])
async def test_an_error_before_the_first_frame_is_one_sentence_too(own_folders: Path, patch: str) -> None:
    with Terminal(["-c", CODE.format(patch=patch)], environment(), columns=200) as terminal:
        assert await terminal.ended() == 1
        assert terminal.left_on == []
        assert "kvchat: An internal error (" in terminal.last_words  # a reply may come late, and be echoed before it
        assert terminal.last_words.count("\n") == 0
    assert (own_folders / "data" / "kvchat.log").read_text()


async def test_an_incognito_run_leaves_no_details_unless_asked_to(own_folders: Path) -> None:
    code = CODE.format(patch=PLACES["an action"][0])
    with Terminal(["-c", code, "--incognito"], environment(), columns=200) as terminal:
        await terminal.shows("newline")
        await terminal.press("\x1bOQ")
        assert await terminal.ended() == 1
        assert terminal.last_words == (
            "kvchat: An internal error (ZeroDivisionError) ended kvchat; --log FILE keeps the details."
        )
    assert not list(own_folders.rglob("*.log"))
    log = own_folders / "mine.log"
    with Terminal(["-c", code, "--incognito", "--log", str(log)], environment(), columns=200) as terminal:
        await terminal.shows("newline")
        await terminal.press("\x1bOQ")
        assert await terminal.ended() == 1
        assert terminal.last_words.endswith(f"the details are in {log}.")
    assert "ZeroDivisionError: lighthouse" in log.read_text()
