"""Mentions in questions: what reads a file, what is only text, and what is said where one cannot be followed."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from retrieval_kit import asked, documents_service, indexed, written

from kvchat.chat.background.worker import Worker
from kvchat.chat.errors import ChatError
from kvchat.chat.events import Noticed
from kvchat.chat.question import Question
from kvchat.chat.question import retrieval as module
from kvchat.chat.service import ChatService
from kvchat.cli import parser
from kvchat.cli.ask.command import ask
from kvchat.cli.ask.question import read_question
from kvchat.documents import retrieval_plan as looking
from kvchat.documents.attachments import attached
from kvchat.documents.library import Library
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock
from kvchat.prompt.message import Node, Role
from toyserver import ToyServer

LAMP = "How often does the lamp turn?"
MAIL = "Write a mail to user@example.org, please."


@pytest.fixture
async def service(server: ToyServer, tmp_path: Path) -> AsyncIterator[ChatService]:
    async with documents_service(server.url, tmp_path / "data") as service:
        await indexed(service, written(tmp_path / "handbook"))
        await service.new_conversations.create("Be brief.")
        yield service


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the working folder."""
    path = tmp_path / "work" / "secret.txt"
    path.parent.mkdir()
    path.write_text("the key is 1234\n")
    monkeypatch.chdir(path.parent)
    return path


@pytest.fixture
def held() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@asynccontextmanager
async def occupied(service: ChatService, held: threading.Event) -> AsyncIterator[None]:
    """The documents' thread is at something long, such as a look at a slow drive."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(
        service.documents._reader.do(lambda: (loop.call_soon_threadsafe(begun.set), held.wait(120)))
    )
    await begun.wait()
    try:
        yield
    finally:
        held.set()
        await task


def id_of(service: ChatService) -> str:
    return service.conversations.all()[0].id


def files(question: Node) -> list[ContextBlock]:
    return [block for block in question.message.blocks if block.kind == FILE]


@pytest.mark.parametrize(
    "text",
    [
        "What does this do?\n\n```sh\ncurl -d @{file} http://example.org\n```\n",
        "What does `curl -d @{file} x` do?",
        "> see @{file}\n\nWhat is meant?",
        "    curl -d @{file} x\n\nWhat is that?",
        "What is -F file=@{file} for?",
        "It says '@{file}'.",
        "Escaped: \\@{file} is text.",
    ],
)
async def test_code_quotes_and_what_stands_inside_words_attach_no_file(service, secret, text):
    text = text.format(file=secret)
    question = await asked(service, id_of(service), text)
    assert not files(question) and question.text == text


async def test_a_file_of_the_disk_goes_along_where_a_word_begins(service, secret):
    question = await asked(service, id_of(service), f"Sum up\n@{secret}, please. Not `@/etc`.")
    assert [block.text for block in files(question)] == ["the key is 1234\n"]


@pytest.mark.parametrize(
    ("name", "mention"),
    [
        ("plain name.txt", "@./plain\\ name.txt"),
        ("plain name.txt", '@"./plain name.txt"'),
        ("plain\\ name.txt", "@./plain\\ name.txt"),
        ("u\u0308ber.txt", "@./\u00fcber.txt"),
        ("\u00fcber.txt", "@./u\u0308ber.txt"),
        ("A\u0308rger/u\u0308ber uns.txt", "@./\u00c4rger/\u00fcber\\ uns.txt"),
    ],
)
async def test_a_file_is_found_however_its_name_is_typed(service, secret, name, mention):
    path = secret.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("The key is green.\n")
    question = await asked(service, id_of(service), f"What says {mention} of it?")
    assert [block.text for block in files(question)] == ["The key is green.\n"]


async def test_a_name_of_a_mac_is_found_in_a_collection(service, tmp_path):
    notes = written(tmp_path / "notes", {"A\u0308rger/u\u0308ber.md": "# Ship\n\nThe ship is green.\n"})
    await indexed(service, notes, "notes")
    id = id_of(service)
    assert "green" in files(await asked(service, id, "@notes/\u00c4rger/\u00fcber.md What colour?"))[0].text
    scope = await service.documents.with_library(lambda library: library.scope_of("notes/\u00c4rger"))
    assert scope == "docs/notes/A\u0308rger/"


@pytest.mark.parametrize(
    "text",
    [
        "alias: { '@/': './src' } - what is this?",
        "import x from @/components/Button fails",
        "Meet me @~ 5 pm.",
        "What does @./ mean?",
        "What is @~root ?",
        "Explain @../ in paths",
        "chown user:@/tmp ?",
        "What is in @/lib ?",
        "@./nothing here",
        "mail me@example.md, or @example.com, or ask @user.name",
    ],
)
async def test_a_sign_in_front_of_what_names_no_file_is_only_text(service, text):
    question = await asked(service, id_of(service), text)
    assert not files(question) and question.text == text


async def test_a_file_that_is_not_there_is_told(service, tmp_path):
    with pytest.raises(ChatError, match=r"There is no file .*lamb\.md"):
        await service.turns.send(id_of(service), Question(f"@{tmp_path}/handbook/lamb.md How often?"))
    with pytest.raises(ChatError, match=r"There is no handbook/lamb\.md"):
        await service.turns.send(id_of(service), Question("@handbook/lamb.md How often?"))
    with pytest.raises(ChatError, match=r"There is no file lamb\.md here"):
        await service.turns.send(id_of(service), Question("What is in @lamb.md?"))
    assert len(service.conversations.get(id_of(service)).path()) == 1


@pytest.mark.parametrize("text", ["-", "Well?"])
async def test_what_is_piped_in_reads_no_files_and_searches_nowhere(
    service,
    server,
    secret,
    tmp_path,
    monkeypatch,
    text,
):
    (tmp_path / "mail").write_text(f"@handbook {LAMP}\n@{secret}\n")
    with (tmp_path / "mail").open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        question = read_question(text)
    arguments = parser(["ask"]).parse_args(["ask", "--json", "-"])
    arguments.continue_, arguments.conversation, arguments.trunk = False, None, ""
    await ask(service, arguments, question)
    assert str(secret).encode() in server.chats[0].body
    assert b"1234" not in server.chats[0].body and b"twelve seconds" not in server.chats[0].body


async def test_the_files_that_were_shown_are_those_that_are_sent(service, secret):
    id, text = id_of(service), f"@{secret} What is it?"
    shown = await service.retrieval.retrieve(id, text)
    secret.write_text("the key is 5678\n")
    await service.turns.send(id, Question(text, passages=tuple(one.block for one in shown.passages), files=shown.files))
    await service.conversations.wait(id)
    assert [block.text for block in files(service.conversations.get(id).path()[1])] == ["the key is 1234\n"]


async def test_a_file_that_is_gone_is_told_unless_it_was_captured_before(service, secret):
    id, text = id_of(service), f"@{secret} What is it?"
    shown = await service.retrieval.retrieve(id, text)
    secret.unlink()
    with pytest.raises(ChatError, match="There is no file"):
        await service.turns.send(id, Question(text, passages=tuple(one.block for one in shown.passages)))
    await service.turns.send(id, Question(text, passages=tuple(one.block for one in shown.passages), files=shown.files))
    await service.conversations.wait(id)
    assert [block.text for block in files(service.conversations.get(id).path()[1])] == ["the key is 1234\n"]


async def test_one_file_under_two_paths_is_sent_once(service, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "handbook")
    assert files(await asked(service, id_of(service), f"@{tmp_path}/link/lamp.md What is this?"))
    assert not files(await asked(service, id_of(service), "@handbook/lamp.md How often?"))


async def test_a_mail_address_does_not_wait_for_the_documents(service, held):
    id = id_of(service)
    async with occupied(service, held):
        await service.turns.send(id, Question(MAIL))
        assert not held.is_set() and service.conversations.get(id).path()[1].text == MAIL
    await service.conversations.wait(id)


async def test_a_plain_question_goes_without_what_cannot_be_searched_in_time(service, held, monkeypatch):
    monkeypatch.setattr(module, "SEARCH_S", 0.05)
    id = id_of(service)
    await service.retrieval.set_retrieval(id, "always", ["handbook"])
    async with occupied(service, held):
        await service.turns.send(id, Question(LAMP))
        assert not held.is_set()
    await service.conversations.wait(id)
    assert PASSAGE not in [block.kind for block in service.conversations.get(id).path()[1].message.blocks]


async def test_a_place_that_is_not_indexed_yet_is_told_and_its_small_files_go(service, tmp_path):
    notes = written(tmp_path / "notes", {"ship.md": "# Ship\n\nThe ship is green.\n", "more/a.md": "# A\n\nAlpha.\n"})
    await service.documents.with_library(lambda library: library.add(str(notes), "notes"))
    id = id_of(service)
    service.documents._known_names = frozenset()
    for text in ("@notes What colour has the ship?", "@notes/more/ What is Alpha?"):
        with pytest.raises(ChatError, match="search index"):
            await service.turns.send(id, Question(text))
    assert "green" in files(await asked(service, id, "@notes/ship.md What colour?"))[0].text


async def test_a_place_that_is_just_being_indexed_says_so(service, tmp_path):
    from kvchat.documents.collection import IndexingProgress

    await service.documents.with_library(lambda library: library.add(str(written(tmp_path / "notes")), "notes"))
    service.documents._known_names = frozenset()
    service.documents._indexing["notes"] = IndexingProgress("notes", 0, 0, 0, 0, 0, 0.0)
    found = await service.retrieval.retrieve(id_of(service), f"@notes {LAMP}")
    del service.documents._indexing["notes"]
    assert "notes is still being indexed" in found.problems[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("@handbook zebra xylophone quokka", "Nothing new found in @handbook."),
        ("@handbook/tower/ zebra xylophone quokka", "Nothing new found in @handbook/tower."),
        ("@handbook/tower/ @handbook/cellar/ zebra?", "Nothing new found in @handbook/tower or @handbook/cellar."),
        ("@handbook", "Nothing to look for in @handbook: write a question with it."),
        (f"@handbook {LAMP}", ""),
        ("No @mention of it", ""),
    ],
)
async def test_a_mention_that_brings_nothing_says_so(service, text, words):
    told = []
    service.events.subscribe(lambda event: told.append(event.text) if isinstance(event, Noticed) else None)
    found = await service.retrieval.retrieve(id_of(service), text)
    assert (found.nothing, found.problems) == (words, ())
    question = await asked(service, id_of(service), text)
    assert told == ([words] if words else []), "it is sent all the same"
    assert question.text == text


async def test_a_mention_of_what_the_branch_has_says_so(service, secret):
    told = []
    service.events.subscribe(lambda event: told.append(event.text) if isinstance(event, Noticed) else None)
    id = id_of(service)
    secret.rename(secret.with_name("plan.txt"))
    assert files(await asked(service, id, "@plan.txt What is it?")) and not told
    assert not files(await asked(service, id, "@plan.txt Once more?"))
    assert told == ["plan.txt is in this conversation already and has not changed since."]
    assert await asked(service, id, f"@handbook {LAMP}") and await asked(service, id, f"@handbook {LAMP}")
    assert told[1:] == ["Nothing new found in @handbook."]
    secret.with_name("plan.txt").write_text("the plan is 5678\n")
    assert files(await asked(service, id, "@plan.txt And now?")) and len(told) == 2


async def test_ask_says_that_a_mention_brings_nothing(service, capsys):
    arguments = parser(["ask"]).parse_args(["ask", "@handbook zebra?"])
    arguments.continue_, arguments.conversation, arguments.trunk = False, None, ""
    assert await ask(service, arguments, Question("@handbook zebra?")) == 0
    assert "kvchat: Nothing new found in @handbook.\n" in capsys.readouterr().err


async def test_a_question_about_a_locked_index_is_not_sent_without_its_documents(service, tmp_path):
    other = sqlite3.connect(tmp_path / "data" / "index.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(ChatError, match="mention"):
            await service.turns.send(id_of(service), Question(f"@handbook {LAMP}"))
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize(
    "text",
    [
        "What is @handbook's lamp?",
        "@handbook，lamp turn？",
        "(@handbook)lamp turns often",
        "@handbook—the lamp turns?",
        "**@handbook** lamp turn",
        "@handbook/lamp.md's text",
    ],
)
async def test_a_mention_in_prose_is_followed(service, text):
    found = await service.retrieval.retrieve(id_of(service), text)
    assert found.passages or found.files


async def test_many_mentions_read_the_collections_once(service, monkeypatch):
    read, plain = [], Library.collections
    monkeypatch.setattr(Library, "collections", lambda self: read.append(1) or plain(self))
    await service.retrieval.retrieve(id_of(service), "@handbook @foo @handbook/lamp.md " * 500 + LAMP)
    assert len(read) <= 3  # once for the mentions, and for the file that is named


async def test_texts_that_nobody_asks_about_any_more_are_not_looked_up(service, secret, held, monkeypatch):
    read = []
    monkeypatch.setattr(looking, "attached", lambda *args: read.append(1) or attached(*args))
    id = id_of(service)
    async with occupied(service, held):
        for number in range(8):
            task = asyncio.create_task(service.retrieval.retrieve(id, f"@{secret} What is {number}?"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
    assert files(await asked(service, id, f"@{secret} What is it?")) and len(read) == 1


async def test_a_cancelled_piece_of_work_is_done_unless_it_may_be_dropped(held):
    worker, done = Worker("test"), []
    first = asyncio.create_task(worker.do(lambda: held.wait(120)))
    others = [
        asyncio.create_task(worker.do(lambda name=name: done.append(name), droppable=name == "look"))
        for name in ("write", "look")
    ]
    await asyncio.sleep(0)
    for task in others:
        task.cancel()
    await asyncio.wait(others)
    held.set()
    await first
    await worker.do(lambda: None)
    worker.end()
    assert done == ["write"]


async def test_an_edit_has_a_mentioned_file_once(service, tmp_path):
    id, notes = id_of(service), tmp_path / "notes.txt"
    notes.write_text("".join(f"line {number} of the log\n" for number in range(60)))
    block = await service.retrieval.attach(id, str(notes))
    await service.turns.send(id, Question("See [notes.txt: 60 lines]", (block,)))
    await service.conversations.wait(id)
    question = [node for node in service.conversations.get(id).path() if node.role is Role.USER][-1]
    await service.turns.edit(id, question.id, f"See [notes.txt: 60 lines] and @{notes}")
    await service.conversations.wait(id)
    assert len(files(service.conversations.get(id).path()[1])) == 1
