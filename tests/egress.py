"""kvchat in a process that writes down every place that it connects to or looks up."""

from __future__ import annotations

import asyncio
import subprocess
import sys

GUARD = """
import os, sys

def heard(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        with open(os.environ["KVCHAT_TEST_HEARD"], "a") as file:
            where = arguments[1] if event in ("socket.connect", "socket.sendto") else tuple(arguments[:2])
            file.write(f"{where!r}\\n")

sys.addaudithook(heard)
from kvchat.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""A program: `KVCHAT_TEST_HEARD` names the file in which each stands on a line."""


async def guarded(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", GUARD, *arguments]
    return await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, env=environment, check=False, stdin=subprocess.DEVNULL
    )
