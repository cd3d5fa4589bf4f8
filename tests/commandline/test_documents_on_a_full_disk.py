"""`kvchat documents` whose output cannot be written."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("A gull.\n")
    return tmp_path / "notes"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("line", ["list", "list --json", "status --json", "add FOLDER", "add FOLDER --json"])
async def test_a_full_disk_is_one_sentence(run: Any, notes: Path, line: str) -> None:
    done = await run("documents", *(str(notes) if word == "FOLDER" else word for word in line.split()), out="/dev/full")
    assert done.status == 1
    assert done.err.startswith("kvchat: ") and done.err.count("\n") == 1 and "output cannot be written" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
async def test_python_adds_nothing_to_that_sentence_at_its_end(environment: dict[str, str], notes: Path) -> None:
    process = await asyncio.create_subprocess_shell(
        f"exec {sys.executable} -m kvchat.cli documents add {notes} >/dev/full",
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
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
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert out.startswith(b"birds/n") and err == b""
