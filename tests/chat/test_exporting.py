"""An export of everything opens nothing: it reads each conversation when its turn has come."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kvchat.chat.question import Question
from kvchat.transfer.formats import TransferError
from toyserver import tokens


async def test_an_export_of_all_leaves_no_conversation_in_memory(make, server, tmp_path):
    server.on_chat(tokens("Yes."))
    before = make(server.url)
    ids = []
    for number in range(5):
        ids.append((await before.new_conversations.create(reuse=False)).id)
        await before.turns.send(ids[-1], Question(f"question {number}"))
        await before.conversations.wait(ids[-1])
    service = make(server.url)
    await service.conversations.open(ids[1])
    shown = service.conversations.loaded[ids[1]]
    shown.record = replace(shown.record, title="as on the screen")
    path = await service.exports.write(ids, "md", tmp_path / "all.md")
    text = path.read_text()
    assert [text.index(f"question {number}") for number in range(5)] == sorted(
        text.index(f"question {number}") for number in range(5)
    )
    assert "as on the screen" in text
    assert [id for id in ids if service.conversations.get(id) is not None] == [ids[1]]


async def test_a_conversation_that_is_gone_is_told(service, tmp_path):
    with pytest.raises(TransferError, match="No conversation"):
        await service.exports.write(["ab" * 16], "md", tmp_path / "out.md")
    assert not (tmp_path / "out.md").exists()
