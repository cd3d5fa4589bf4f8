"""The command line as a process of its own, beside a toy server in this one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-m", "kvchat.cli")


@dataclass
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


Run = Callable[..., Awaitable[Done]]


@pytest.fixture
def environment(own_folders: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Runs `kvchat ARGUMENTS` and gives back status, standard output and standard error."""

    async def run(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *map(str, arguments), env={**environment, **(env or {})}, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        out, err = await process.communicate(stdin)
        return Done(process.returncode or 0, out.decode(), err.decode())

    return run
