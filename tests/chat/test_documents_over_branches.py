"""Documents when a question or its branch becomes another: numbers, changes of files, edits, forks, reading ahead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from retrieval_kit import asked, documents_service, indexed, written

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.citations import cited, sources
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock
from kvchat.prompt.drafts import decoded
from kvchat.prompt.message import Node, Role
from toyserver import ToyServer, tokens

LAMP = "How often does the lmap turn in seconds, clockwork?"
LINES = "".join(f"line {number} of the log\n" for number in range(60))


@pytest.fixture
async def service(server: ToyServer, tmp_path: Path) -> AsyncIterator[ChatService]:
    async with documents_service(server.url, tmp_path / "data") as service:
        await indexed(service, written(tmp_path / "handbook"))
        await service.new_conversations.create("Be brief.")
        yield service


@pytest.fixture
def id(service: ChatService) -> str:
    return service.conversations.all()[0].id


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text(LINES)
    return path


def last(service: ChatService, id: str) -> Node:
    conversation = service.conversations.get(id)
    assert conversation is not None
    return [node for node in conversation.path() if node.role is Role.USER][-1]


def of(kind: str, question: Node) -> list[ContextBlock]:
    return [block for block in question.message.blocks if block.kind == kind]


async def sent(service: ChatService, id: str, text: str, *blocks: ContextBlock) -> Node:
    await service.turns.send(id, Question(text, tuple(blocks)))
    await service.conversations.wait(id)
    return last(service, id)


async def edited(service: ChatService, id: str, text: str) -> Node:
    await service.turns.edit(id, last(service, id).id, text)
    await service.conversations.wait(id)
    return last(service, id)


async def test_a_number_that_an_answer_cites_is_given_to_nothing_else_when_its_turn_is_deleted(service, server, id):
    server.on_chat(tokens("Twelve seconds [1]."), tokens("Yes, as [1] says."), tokens("ok"))
    first = await asked(service, id, "@handbook How often does the lamp turn?")
    await asked(service, id, "Really?")
    await service.branches.delete_turn(id, first.id)
    question = await asked(service, id, "@handbook What is hoisted in a storm?")
    path = service.conversations.get(id).path()
    assert cited(path[2].text) == [1] and of(PASSAGE, question)
    assert 1 not in sources(path)


# -- a change without its file


async def _changed_and_gone(service: ChatService, id: str, notes: Path) -> ContextBlock:
    """What has changed in a file, whose turn is then deleted."""
    await asked(service, id, "Hello.")
    question = await sent(service, id, "See [notes.txt: 60 lines]", await service.retrieval.attach(id, str(notes)))
    notes.write_text(LINES.replace("line 7 ", "line seven "))
    change = await service.retrieval.attach(id, str(notes))
    assert change.source.startswith("change of")
    await service.branches.delete_turn(id, question.id)
    return change


async def test_instead_of_a_change_whose_file_is_gone_from_the_branch_the_file_goes_whole(service, id, notes):
    change = await _changed_and_gone(service, id, notes)
    count = len(change.text.splitlines())
    question = await sent(service, id, f"See [change of notes.txt: {count} lines] again", change)
    (file,) = of(FILE, question)
    assert "line seven " in file.text and "line 50 " in file.text
    assert question.text == "See [notes.txt: 60 lines] again", "or an edit would lose the file"


async def test_a_change_whose_file_is_gone_from_the_branch_and_was_changed_again_is_refused(service, id, notes):
    change = await _changed_and_gone(service, id, notes)
    notes.write_text("Nothing of it is left.\n")
    with pytest.raises(ChatError, match="attach it"):
        await service.turns.send(id, Question("See it", (change,)))
    assert last(service, id).text == "Hello."


async def test_a_change_whose_file_is_on_the_branch_goes_as_it_was_shown(service, id, notes):
    await sent(service, id, "See [notes.txt: 60 lines]", await service.retrieval.attach(id, str(notes)))
    notes.write_text(LINES.replace("line 7 ", "line seven "))
    change = await service.retrieval.attach(id, str(notes))
    notes.write_text("Nothing of it is left.\n")
    assert [block.text for block in of(FILE, await sent(service, id, "And now?", change))] == [change.text]


# -- an edit


async def test_an_edit_keeps_the_passages_that_were_taken(service, id):
    await service.retrieval.set_retrieval(id, "ask", ["handbook"])
    found = await service.retrieval.retrieve(id, LAMP)
    assert found.passages and not found.taken
    await service.turns.send(id, Question(LAMP, passages=tuple(one.block for one in found.passages[:1])))
    await service.conversations.wait(id)
    question = await edited(service, id, LAMP.replace("lmap", "lamp"))
    assert [block.text for block in of(PASSAGE, question)] == [found.passages[0].text]


async def test_an_edit_takes_no_passages_that_are_only_offered(service, id):
    await service.retrieval.set_retrieval(id, "ask", ["handbook"])
    await asked(service, id, LAMP)
    assert not of(PASSAGE, await edited(service, id, LAMP.replace("lmap", "lamp")))


async def test_passages_of_a_mention_go_with_it_when_it_is_edited_away(service, id):
    await service.retrieval.set_retrieval(id, "ask", ["handbook"])
    assert of(PASSAGE, await asked(service, id, f"@handbook {LAMP}"))
    assert not of(PASSAGE, await edited(service, id, "Good morning."))


async def test_an_edit_sends_a_file_in_one_state_only(service, id, notes):
    await sent(service, id, "See [notes.txt: 60 lines]", await service.retrieval.attach(id, str(notes)))
    notes.write_text("Quite another text.\n")
    question = await edited(service, id, f"See [notes.txt: 60 lines] and @{notes}")
    assert [block.text for block in of(FILE, question)] == [LINES]


async def test_an_edit_keeps_the_file_whose_label_stays_and_no_other_of_as_many_lines(service, id, notes):
    other = notes.with_name("other.txt")
    other.write_text(LINES.upper())
    blocks = [await service.retrieval.attach(id, str(path)) for path in (notes, other)]
    await sent(service, id, "See [notes.txt: 60 lines] and [other.txt: 60 lines]", *blocks)
    assert [block.text for block in of(FILE, await edited(service, id, "See [other.txt: 60 lines]"))] == [LINES.upper()]


# -- a fork, and reading ahead


async def test_a_fork_at_a_question_has_its_file_and_its_paste_in_the_draft(service, id, notes):
    block = await service.retrieval.attach(id, str(notes))
    paste = ContextBlock("paste", "pasted 1 (3 lines)", "one\ntwo\nthree")
    text = "See [notes.txt: 60 lines] and [pasted 1: 3 lines]"
    await sent(service, id, text, block, paste)
    draft = decoded((await service.branches.fork(id, last(service, id).id)).draft)
    assert draft.text == text
    chips = {draft.text[span.start : span.end]: span.block for span in draft.spans if span.is_chip}
    assert chips == {"[notes.txt: 60 lines]": block, "[pasted 1: 3 lines]": paste}


@pytest.mark.parametrize("text", ["How many stairs?", "@handbook How many stairs has the tower?"])
async def test_what_is_read_ahead_begins_what_is_sent_whatever_follows_it(service, server, id, notes, text):
    block = await service.retrieval.attach(id, str(notes))
    service.warm_up.prepare(id, [block])
    ahead = await service.questions.next_beginning(service.conversations.get(id))
    await sent(service, id, text, block)
    assert "line 59" in ahead
    assert server.chats[-1].json["messages"][-1]["content"].startswith(ahead)
