"""Documents on a real server with a real model: passages are read once, stay, and change nothing before them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("xllamacpp")

from retrieval_kit import asked, documents_service, indexed, written

from engine_fixture import running_server
from kvchat.chat.question import Question
from kvchat.prompt.context import PASSAGE
from recorder import Recorder, recording

pytestmark = pytest.mark.engine
TURNS = (
    "@handbook How often does the lamp turn?",
    "And what does that mean at sea?",
    "@handbook/tower/ When is the tower painted?",
    "Say it in three words.",
    "Who pays for paint?",
    "@handbook What is hoisted in a storm?",
    "@handbook/boats.txt How deep must the water be?",
    "Thank you.",
    "@handbook/cellar/ Where is the oil kept?",
    "Is that much?",
    "@handbook How long does a watch of the keeper last?",
    "Good night.",
)
MENTIONING = [turn for turn, text in enumerate(TURNS) if "@" in text]


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    with running_server(slots=1, context=8192, cache_ram=0) as server:
        async with recording(server.base_url) as recorder:
            yield recorder


async def test_passages_are_read_once_and_an_index_made_anew_changes_no_byte(recorder, tmp_path):
    folder = written(tmp_path / "handbook")
    async with documents_service(recorder.base_url, tmp_path / "data") as service:
        await indexed(service, folder)
        id = (await service.new_conversations.create("Answer from the context.")).id
        sent = [await asked(service, id, text) for text in TURNS]
        figures = [node.figures for node in service.conversations.get(id).path() if node.figures]
        path = service.conversations.get(id).path()
    assert len(MENTIONING) == 6
    for turn in MENTIONING:
        assert any(block.ref for block in sent[turn].message.blocks), (TURNS[turn], sent[turn].message.blocks)
    texts = [block.text for node in sent for block in node.message.blocks if block.kind == PASSAGE]
    assert len(texts) == len(set(texts)), "a passage was sent twice on one branch"
    for turn in figures[1:]:
        assert turn.evaluated_tokens <= turn.new_tokens + 8, turn
    systems = {str(request.body["messages"][0]) for request in recorder.chats}
    assert len(systems) == 1, "the system message changed"
    for earlier, later in zip(recorder.chats, recorder.chats[1:], strict=False):
        assert later.body["messages"][: len(earlier.body["messages"])] == earlier.body["messages"]

    async with documents_service(recorder.base_url, tmp_path / "data") as service:
        await service.conversations.open(id)
        before = service.conversations.get(id).path()
        await service.turns.send(id, Question("@handbook How many stairs has the tower?"))
        await service.conversations.wait(id)
        kept = recorder.chats[-1].body
    for name in ("index.db", "index.db-journal", "index.db.lock"):
        (tmp_path / "data" / name).unlink(missing_ok=True)
    async with documents_service(recorder.base_url, tmp_path / "data") as service:
        await service.conversations.open(id)
        await service.branches.delete_turn(id, service.conversations.get(id).path()[-1].id)
        assert (
            [node.wire for node in service.conversations.get(id).path()]
            == [node.wire for node in before]
            == [node.wire for node in path]
        )
        await service.documents.look_for_changes()
        await service.documents._indexers["handbook"]
        await service.turns.send(id, Question("@handbook How many stairs has the tower?"))
        await service.conversations.wait(id)
    assert recorder.chats[-1].body["messages"] == kept["messages"]
