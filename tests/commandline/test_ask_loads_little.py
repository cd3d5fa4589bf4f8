"""What `ask` does not load where it has no use for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from toyserver import ToyServer, tokens

pytestmark = pytest.mark.process


async def test_where_nothing_is_remembered_recall_is_not_loaded() -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("Yes."))
        command = (
            "import sys; from kvchat.cli import main; "
            f"code = main(['--base-url', {server.url!r}, 'ask', '--no-stdin', 'Hello?']); "
            "print('kvchat.memory.recall' in sys.modules, code)"
        )
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", command, stdout=subprocess.PIPE)
        said, _ = await child.communicate()
    assert said.decode().split() == ["Yes.", "False", "0"]
