"""What is stored of a request is what went over the wire."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.request import body_sha256
from kvchat.store import Store
from toyserver import ToyServer, error, tokens


async def test_the_digest_is_that_of_the_body_that_was_answered(
    make: Callable[..., ChatService], tmp_path: Path, server: ToyServer
) -> None:
    server.on_chat(tokens("One."), error(400, "Unrecognized request argument supplied: session_id"), tokens("Two."))
    service = make(server.url)
    conversation = await service.new_conversations.create()
    for text in ("one", "two"):
        await service.turns.send(conversation.id, Question(text))
        await service.conversations.wait(conversation.id)
    first, refused, second = (body_sha256(visit.body) for visit in server.chats)
    assert refused != second, "a field was left out"
    answers = [node.id for node in conversation.path()[2::2]]
    await service.aclose()
    store = Store.open(tmp_path / "data")
    kept = [store.request_of(answer).body_sha256 for answer in answers]  # type: ignore[union-attr]
    store.close()
    assert kept == [first, second]
