"""`kvchat memory` whose output cannot be written."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("line", ["list", "list --json", "path", "add likes tea"])
async def test_a_full_disk_is_one_sentence(environment: dict[str, str], line: str) -> None:
    process = await asyncio.create_subprocess_shell(
        f"exec {sys.executable} -m kvchat.cli memory {line} >/dev/full", env=environment,
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    _, err = await process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"kvchat: ") and err.count(b"\n") == 1 and b"output cannot be written" in err
