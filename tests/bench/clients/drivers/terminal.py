"""A program in a terminal of its own, driven by keys."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

SOCKET = "kvchat-clients"
KEY_S = 0.15


class Terminal:
    """A pane of 120x40 of tmux, on a socket of its own."""

    def __init__(self, command: str, environment: Mapping[str, str], folder: Path, name: str) -> None:
        """Start the shell command `command` in `folder` with `environment` and nothing else of ours but the path."""
        self._name = f"{name}-{os.getpid()}"
        self._run("kill-session", "-t", self._name)
        variables = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"} | dict(environment)
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        size = ("-x", "120", "-y", "40")
        self._run(
            "-f", "/dev/null", "new-session", "-d", "-s", self._name, *size, "-c", str(folder),
            f"exec env -u PYTHONPATH -u VIRTUAL_ENV {settings} {command}",
        )  # fmt: skip

    def _run(self, *arguments: str) -> str:
        return subprocess.run(["tmux", "-L", SOCKET, *arguments], capture_output=True, text=True).stdout

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", self._name)

    def wait(self, pattern: str, seconds: float = 90.0) -> None:
        """Until `pattern` is on the screen. Raises TimeoutError with the screen."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.screen):
            if time.monotonic() > end:
                raise TimeoutError(f"no {pattern!r} on the screen:\n{self.screen}")
            time.sleep(0.05)

    def type(self, text: str) -> None:
        self._run("send-keys", "-t", self._name, "-l", text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._run("send-keys", "-t", self._name, key)
            time.sleep(KEY_S)

    def submit(self, text: str, key: str = "Enter") -> None:
        self.type(text)
        time.sleep(0.4)
        self.press(key)

    def end(self) -> None:
        self._run("kill-session", "-t", self._name)
