"""Conversations whose model calls tools, through random acts and ends at any moment: `loops_walk.py` says what is
checked, and as a script does long walks."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from loops_walk import walked

from tries import tries

ACTS = 14


@pytest.mark.parametrize("seed", range(tries("loop_walks", 3)))
async def test_whatever_is_done_in_loops_each_request_is_lawful(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    logging.disable()
    try:
        await walked(tmp_path, seed, ACTS, monkeypatch.setattr)
    finally:
        logging.disable(logging.NOTSET)
