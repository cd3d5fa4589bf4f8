"""The first frame needs neither the conversation service nor a store: they are loaded when it stands."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = (
    "httpx",
    "sqlite3",
    "kvchat.store",
    "kvchat.chat.service",
    "kvchat.chat.turns.turns",
    "kvchat.chat.events",
    "kvchat.backends.dialect",
    "kvchat.documents",
    "kvchat.memory",
)


@pytest.mark.process
def test_what_the_first_frame_does_not_need_is_not_loaded_for_it() -> None:
    code = "import sys, kvchat.cli.app, kvchat.ui.app; print(*[n for n in sys.argv[1:] if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *LATER], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
