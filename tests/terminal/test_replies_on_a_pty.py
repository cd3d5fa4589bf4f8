"""Whatever a terminal answers, and whenever: nothing is typed, nothing acts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kvchat.store import Store
from terminal_output import Terminal
from terminal_replies import REPLIES
from toyserver import ToyServer

pytestmark = pytest.mark.process


async def test_no_reply_is_typed_or_acts_before_and_after_the_first_frame(own_folders: Path) -> None:
    async with ToyServer() as server:
        with Terminal(["-m", "kvchat.cli", "--base-url", server.url], environment()) as terminal:
            await terminal.begins()
            await terminal.send("".join(REPLIES.values()).encode())
            await terminal.shows("› b", "b")
            for reply in REPLIES.values():
                await terminal.send(reply.encode() * 2)
            await terminal.shows("› be", "e")
            for reply in map(str.encode, REPLIES.values()):
                for piece in (reply[:2], *(reply[at : at + 1] for at in range(2, len(reply)))):
                    await terminal.send(piece)  # an ESC goes with what follows it: alone it is a key soon
                    await asyncio.sleep(0.001)
            await terminal.shows("› bed", "d")
            await terminal.shows("Hello", "\r")
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    store = Store.open(own_folders / "data")
    (row,) = (row for row in store.conversations() if row.turns)
    assert [node.text for node in store.tree(row.id).path(row.head)][1:2] == ["bed"]
    store.close()


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TMUX", "STY")}
    return {**plain, "TERM": "xterm-256color", "COLORTERM": "truecolor", **more}
