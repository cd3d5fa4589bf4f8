"""What is typed while kvchat starts is not lost, the Enter neither."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.prompt.branching import asked
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import State, new_id, node, settled, system_message
from kvchat.store import Store
from terminal_output import Terminal
from toyserver import ToyServer, tokens
from whole_rows import add_nodes

pytestmark = pytest.mark.process

TURNS = 150
ESC = "\x1b[27u"


def environment() -> dict[str, str]:
    return os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


@pytest.fixture
def data(own_folders: Path) -> Path:
    """A store with a long conversation, and a draft in it."""
    store, now = Store.open(own_folders / "data"), datetime.now(UTC)
    root = node(None, system_message(""), now.timestamp())
    row = store.create(Conversation(new_id(), root.id, now.timestamp(), now.timestamp(), "long"), root)
    tree, nodes, head = store.tree(row.id), [], root.id
    for turn in range(TURNS):
        branch = asked(tree, head, f"question {turn}", [], now, None)
        question, waiting = branch.nodes
        answer = settled(waiting, question, f"answer {turn}, with **some** Markdown", "", State.DONE)
        for new in (question, answer):
            tree.put(new)
            nodes.append(new)
        head = answer.id
    add_nodes(store, replace(row, head=head, turns=TURNS), nodes)
    store.set_draft(row.id, "a draft")
    store.close()
    return own_folders / "data"


def said_last(data: Path) -> list[str]:
    """The last question and its answer, and the draft."""
    store = Store.open(data)
    (row,) = (row for row in store.conversations() if row.turns)
    said = [node.text for node in store.tree(row.id).path(row.head)][-2:]
    draft = store.draft(row.id)
    store.close()
    return [*said, draft]


@pytest.mark.parametrize("moment", ["before anything is drawn", "at the first byte", "at the first frame"])
async def test_what_is_typed_while_it_starts_is_sent_and_written(data: Path, moment: str) -> None:
    async with ToyServer(context_size=32_768) as server:  # the prompt fits, whenever the server is known
        server.on_chat(tokens("Well heard."))
        with Terminal(["-m", "kvchat.cli", "--continue", "--base-url", server.url], environment()) as terminal:
            if moment == "at the first byte":
                await terminal.begins()
            elif moment == "at the first frame":
                await terminal.frames()
            await terminal.send(b" and more\rnext")
            await terminal.shows("Well heard.")
            await terminal.shows("next")
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert said_last(data) == ["a draft and more", "Well heard.", "next"]


async def test_escape_in_one_read_with_the_key_of_a_dialog_closes_it(data: Path) -> None:
    """A letter after each pair is written where the keys belong then: nothing is open, and the answer runs on."""
    letters = "abcdefghij"
    keys = ["\x1bOP", "\x1bOQ", "\x1b[24~", "\x1bOS", "\x0f", "\x13", "\x12", "\x0c", "\x1b[15~", "\x1b[17~"]
    async with ToyServer(context_size=32_768) as server:  # the prompt fits, whenever the server is known
        server.on_chat(tokens("It runs", " on", hang_after=1))
        with Terminal(["-m", "kvchat.cli", "--continue", "--base-url", server.url], environment()) as terminal:
            await terminal.shows("It runs", "\r")
            for letter, key in zip(letters, keys, strict=True):
                await terminal.send(f"{key}{ESC}{letter}".encode())
            await terminal.shows(letters)
            assert "stopped" not in terminal.drawn
            await terminal.press("\x11")
            assert await terminal.ended() == 0
    assert said_last(data)[-1] == letters
