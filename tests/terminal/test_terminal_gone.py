"""The window is closed: kvchat ends, also where it was told to ignore that."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time

import pytest

from kvchat.store import Store
from terminal_output import Terminal

pytestmark = pytest.mark.process


@pytest.mark.process
@pytest.mark.parametrize("ignores", [False, True], ids=["plain", "nohup"])
def test_kvchat_ends_properly_when_its_terminal_is_gone(own_folders, ignores):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN) if ignores else None
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "kvchat.cli", "--base-url", "http://127.0.0.1:9"])
    if ignores:
        signal.signal(signal.SIGHUP, before)
    seen, until = b"", time.monotonic() + 120
    while b"Message" not in seen and time.monotonic() < until:
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 65536)
    assert b"Message" in seen
    os.close(terminal)
    ended = 0
    while not ended and time.monotonic() < until:
        time.sleep(0.1)
        ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert ended and os.waitstatus_to_exitcode(status) == 0


async def test_kvchat_ends_when_nobody_tells_it_that_its_terminal_is_gone(own_folders):
    """Without a controlling terminal there is no signal: only reading and writing fail."""
    arguments = ["-m", "kvchat.cli", "--base-url", "http://127.0.0.1:9"]
    with Terminal(arguments, os.environ | {"TERM": "xterm-256color"}) as terminal:
        await terminal.shows("newline")
        await terminal.shows("what was written", "what was written")
        assert await terminal.closed() == 0
    store = Store.open(own_folders / "data")
    assert list(store.drafts().values()) == ["what was written"]
    store.close()
