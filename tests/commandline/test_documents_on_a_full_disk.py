"""`kvchat documents` whose output cannot be written."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("line", ["list", "list --json", "status --json", "add FOLDER", "add FOLDER --json"])
async def test_a_full_disk_is_one_sentence(environment: dict[str, str], tmp_path: Path, line: str) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A gull.\n")
    line = line.replace("FOLDER", str(tmp_path / "notes"))
    process = await asyncio.create_subprocess_shell(
        f"exec {sys.executable} -m kvchat.cli documents {line} >/dev/full", env=environment,
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE)
    _, err = await process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"kvchat: ") and err.count(b"\n") == 1 and b"output cannot be written" in err


async def test_a_reader_that_goes_away_is_no_trouble(environment: dict[str, str], tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"n{number}.txt").write_text(f"A gull of number {number} {'and more ' * 80}\n")
    kvchat = f"{sys.executable} -m kvchat.cli documents"
    process = await asyncio.create_subprocess_shell(
        f"{kvchat} add {tmp_path} --name birds >/dev/null; {kvchat} search gull -n 200 | head -n 1; "
        f"{kvchat} search gull -n 200 --json | head -n 1",
        env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    assert out.startswith(b"birds/n") and err == b""
