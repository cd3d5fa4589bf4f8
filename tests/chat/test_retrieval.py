"""What goes with a question: mentions, searched collections, files; and what stays as it was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from retrieval_kit import asked, documents_service, indexed, written

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.citations import number_of
from kvchat.prompt.context import FILE, NOTE, PASSAGE
from kvchat.prompt.message import Node
from toyserver import ToyServer

LAMP = "How often does the lamp turn?"


@pytest.fixture
async def service(server: ToyServer, tmp_path: Path) -> AsyncIterator[ChatService]:
    async with documents_service(server.url, tmp_path / "data") as service:
        await indexed(service, written(tmp_path / "handbook"))
        await service.new_conversations.create("Be brief.")
        yield service


def id_of(service: ChatService) -> str:
    return service.conversations.all()[0].id


def kinds(question: Node) -> list[str]:
    return [block.kind for block in question.message.blocks]


async def test_a_conversation_that_was_not_told_to_search_sends_nothing_of_its_own_accord(service):
    question = await asked(service, id_of(service), LAMP)
    assert not {PASSAGE, FILE, NOTE} & set(kinds(question))


async def test_a_mention_brings_numbered_passages_and_stays_in_the_text(service):
    question = await asked(service, id_of(service), f"@handbook {LAMP}")
    passages = [block for block in question.message.blocks if block.kind == PASSAGE]
    assert [number_of(block) for block in passages] == list(range(1, len(passages) + 1))
    assert any("twelve seconds" in block.text for block in passages)
    assert question.text == f"@handbook {LAMP}" and question.wire.decode().count("@handbook") == 1
    assert kinds(question).index(NOTE) < kinds(question).index(PASSAGE)


async def test_what_is_found_in_mode_ask_is_offered_and_sent_only_when_it_is_taken(service):
    id = id_of(service)
    await service.retrieval.set_retrieval(id, "ask", ["handbook"])
    found = await service.retrieval.retrieve(id, LAMP)
    assert found.passages and not found.taken
    assert PASSAGE not in kinds(await asked(service, id, LAMP))
    await service.turns.send(id, Question(LAMP, passages=tuple(one.block for one in found.passages[:1])))
    await service.conversations.wait(id)
    question = service.conversations.get(id).path()[-2]
    assert [block.text for block in question.message.blocks if block.kind == PASSAGE] == [found.passages[0].text]


async def test_mode_always_takes_what_is_found_along_until_it_is_switched_off(service):
    id = id_of(service)
    await service.retrieval.set_retrieval(id, "always", ["handbook"])
    assert PASSAGE in kinds(await asked(service, id, LAMP))
    await service.retrieval.set_retrieval(id, "off", [])
    assert PASSAGE not in kinds(await asked(service, id, "Where is the oil kept in the cellar?"))


async def test_mode_always_sends_nothing_that_has_nothing_to_do_with_the_question(service):
    id = id_of(service)
    await service.retrieval.set_retrieval(id, "always", ["handbook"])
    for text in ("Thank you!", "What do you think?", "Write a haiku about penguins in spring."):
        assert PASSAGE not in kinds(await asked(service, id, text)), text


async def test_a_small_file_goes_whole_once_and_then_only_its_change(service, tmp_path):
    id, file = id_of(service), tmp_path / "handbook" / "lamp.md"
    file.write_text(file.read_text() + "".join(f"\nOn day {day} the brass is polished.\n" for day in range(40)))
    first = await asked(service, id, "@handbook/lamp.md What is this?")
    assert [block.text for block in first.message.blocks if block.kind == FILE] == [file.read_text()]
    again = await asked(service, id, "@handbook/lamp.md And now?")
    assert FILE not in kinds(again)
    file.write_text(file.read_text().replace("twelve", "fifteen"))
    assert await service.retrieval.changed_files(id) == [str(file)]
    changed = await asked(service, id, "@handbook/lamp.md And now?")
    [block] = [block for block in changed.message.blocks if block.kind == FILE]
    assert "change of" in block.source and "+The lamp turns once in fifteen seconds" in block.text
    assert "whale-free" not in block.text
    assert service.conversations.get(id).path()[1].wire == first.wire


async def test_an_edited_question_finds_its_passages_anew_and_the_old_branch_stays(service):
    id = id_of(service)
    old = await asked(service, id, f"@handbook {LAMP}")
    await service.turns.edit(id, old.id, "@handbook Where is the oil kept?")
    await service.conversations.wait(id)
    new = service.conversations.get(id).path()[1]
    assert any("copper cans" in block.text for block in new.message.blocks)
    assert next(number_of(block) for block in new.message.blocks if block.kind == PASSAGE) == 1
    assert service.conversations.get(id).tree[old.id].wire == old.wire


@pytest.mark.parametrize("text", ["Mail me@example.org", "Use @dataclass here", "@media print", "a @b c", "@ what?"])
async def test_a_sign_that_means_no_document_is_only_text(service, text):
    question = await asked(service, id_of(service), text)
    assert not {PASSAGE, FILE, NOTE} & set(kinds(question)) and question.text == text


async def test_a_mention_that_cannot_be_followed_stops_the_question_with_a_sentence(service, tmp_path):
    id = id_of(service)
    with pytest.raises(ChatError, match="folder"):
        await service.turns.send(id, Question(f"@{tmp_path}/handbook What is in it?"))
    assert len(service.conversations.get(id).path()) == 1


async def test_a_removed_collection_is_found_no_more_and_its_files_stay(service, tmp_path):
    id = id_of(service)
    await service.documents.remove("handbook")
    question = await asked(service, id, f"@handbook {LAMP}")
    assert PASSAGE not in kinds(question) and (tmp_path / "handbook" / "lamp.md").exists()
    assert not service.documents.has_collections


@pytest.mark.parametrize("text", ["@hanbook What is in it?", "@handbok/lamp.md What is in it?"])
async def test_a_mistyped_collection_is_not_passed_over(service, text):
    with pytest.raises(ChatError, match="there is @handbook"):
        await service.turns.send(id_of(service), Question(text))


async def test_nothing_quoted_is_shown_to_a_server_before_the_person_agreed(service, monkeypatch):
    asked_about = []

    async def told(backend: object, text: str) -> frozenset[str]:
        asked_about.append(text)
        return frozenset()

    monkeypatch.setattr("kvchat.backends.tokens.special_texts", told)
    await asked(service, id_of(service), f"@handbook {LAMP}")
    assert any("twelve seconds" in text for text in asked_about)
    asked_about.clear()
    monkeypatch.setattr(service.servers.consent, "may_send_to", lambda *_: False)
    await service.turns.send(id_of(service), Question("@handbook/tower/ When is it painted?"))
    await service.conversations.wait(id_of(service))
    assert asked_about == []
