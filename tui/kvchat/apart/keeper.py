"""Foreign programs end with kvchat, however kvchat ends: closed, terminated, or killed.

Beside each program runs a shell, the keeper, which waits on a pipe that kvchat alone holds open. When the pipe ends and
kvchat has not ended the keeper, kvchat is gone: the keeper ends the program's process group. It does so on every
system, and ends what the program has started as well, which the parent-death signal of Linux does not.

A program begins as a shell too, which waits for a line on its input before it becomes the program: kvchat may be killed
between the start of the program and the word to its keeper, and then there is no line.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

WAITS_S = 1
"""Seconds that a program has to end with its input, and again after SIGTERM."""
GO = b"\n"
"""What a program that was started with `waiting_for_go` waits for on its input."""
_KEEP = (
    f'read -r group && {{ read -r _; sleep {WAITS_S}; kill -s TERM -- "-$group" && sleep {WAITS_S} '
    '&& kill -s KILL -- "-$group"; }'
)


class Keeper:
    """Watches over the process group of one program."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._shell = subprocess.Popen(
            ("sh", "-c", _KEEP),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )

    def keep(self, group: int) -> None:
        """Have this process group end with kvchat. Raises OSError."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{group}\n".encode())

    def release(self) -> None:
        """End the keeper alone: the group has ended."""
        self._shell.kill()
        self._shell.wait()
        assert self._shell.stdin is not None
        self._shell.stdin.close()


def waiting_for_go(command: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """A command line that waits for `GO` on its input, then becomes `command`. Some shells drop variables whose names
    they could not use: those are given on the command line."""
    dropped = [f"{name}={value}" for name, value in env.items() if not (name.isascii() and name.isidentifier())]
    return ("sh", "-c", 'read -r _ && exec "$@"', "sh", *(("env", *dropped) if dropped else ()), *command)
