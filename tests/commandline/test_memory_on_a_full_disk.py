"""`kvchat memory` whose output cannot be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("line", ["list", "list --json", "path", "add likes tea"])
async def test_a_full_disk_is_one_sentence(run: Any, line: str) -> None:
    done = await run("memory", *line.split(), out="/dev/full")
    assert done.status == 1
    assert done.err.startswith("kvchat: ") and done.err.count("\n") == 1 and "output cannot be written" in done.err
