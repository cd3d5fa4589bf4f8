"""Talks with MCP servers as they are: whatever a server does, the right result or one sentence comes of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from mcp_talks import Addresses, Talk, held

from tries import tries

TALKS = tries("mcp_talks", 150)


async def test_every_talk_gives_the_right_result_or_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = random.randrange(1 << 30)
    failed = []
    async with Addresses() as addresses:
        for seed in range(first, first + TALKS):
            faults = await held(Talk(seed), addresses, tmp_path, monkeypatch)
            failed += [f"seed {seed}: {fault}" for fault in faults]
        assert addresses.strays == 0, "nothing goes to an address that is not in the file"
    assert not failed, f"{len(failed)} faults in {TALKS} talks:\n" + "\n".join(failed[:20])
