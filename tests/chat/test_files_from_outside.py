"""Mentions that count, and files that go only with the person's yes: what the service keeps to, whoever calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from retrieval_kit import documents_service, indexed, written

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING, MentionScope, OutsideError, mentioned_in, outside
from kvchat.chat.service import ChatService
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock
from kvchat.prompt.drafts import PASTE, Span
from kvchat.prompt.message import Role
from toyserver import ToyServer


@pytest.fixture
def work(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; beside it and in the home folder lie other files."""
    for path, text in (
        ("work/notes.txt", "notes\n"),
        ("other/plan.txt", "plan\n"),
        ("home/.ssh/key", "secret\n"),
        ("home/list.txt", "eggs\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
async def service(server: ToyServer, tmp_path: Path, work: Path) -> AsyncIterator[ChatService]:
    async with documents_service(server.url, tmp_path / "data") as service:
        await indexed(service, written(tmp_path / "handbook"))
        await service.new_conversations.create("Be brief.")
        yield service


def id_of(service: ChatService) -> str:
    return service.conversations.all()[0].id


async def asked(service: ChatService, text: str, meant: MentionScope) -> list[str]:
    """The texts of the files that went with a question."""
    id = id_of(service)
    await service.turns.send(id, Question(text, meant=meant))
    await service.conversations.wait(id)
    question = [node for node in service.conversations.get(id).path() if node.role is Role.USER][-1]
    return [block.text for block in question.message.blocks if block.kind == FILE]


async def test_only_the_signs_that_count_mention_something(service: ChatService) -> None:
    text = "@handbook/lamp.md @./notes.txt @handbook/boats.txt"
    assert await asked(service, text, NOTHING) == []
    pasted = (Span(0, 18, PASTE), Span(31, len(text), PASTE))
    assert await asked(service, text, MentionScope(pasted)) == ["notes\n"]
    found = await service.retrieval.retrieve(id_of(service), text, meant=MentionScope(pasted))
    assert found.mentions == ((18, 30),)
    assert found.pasted == ("handbook/lamp.md", "handbook/boats.txt")


async def test_what_was_pasted_is_never_looked_for_on_the_disk(
    service: ChatService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvchat.documents import retrieval_plan

    monkeypatch.setattr(retrieval_plan._MentionReader, "of", lambda *args: pytest.fail("it was followed"))
    found = await service.retrieval.retrieve(id_of(service), "see @/net/evil/x and @Override", meant=NOTHING)
    assert (found.files, found.problems, found.pasted) == ((), (), ("/net/evil/x",))


@pytest.mark.parametrize("name", ["../other/plan.txt", "~/.ssh/key", "~/list.txt", "./link.txt"])
async def test_a_file_from_outside_goes_only_with_a_yes_to_where_it_really_is(
    service: ChatService,
    server: ToyServer,
    work: Path,
    name: str,
) -> None:
    (work / "link.txt").symlink_to("../home/.ssh/key")
    text = f"what is @{name} ?"
    with pytest.raises(OutsideError) as caught:
        await asked(service, text, MentionScope())
    assert server.posts == 0 and len(service.conversations.get(id_of(service)).path()) == 1
    real = (work / Path(name).expanduser()).resolve()
    assert caught.value.paths == (str(real),) and str(real) in str(caught.value)
    with pytest.raises(OutsideError):
        await asked(service, text, MentionScope(agreed=frozenset({name, str(work / "notes.txt")})))
    assert await asked(service, text, MentionScope(agreed=frozenset({str(real)}))) == [real.read_text()]


async def test_a_secret_goes_only_with_a_yes_wherever_it_is(
    service: ChatService, server: ToyServer, work: Path
) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQ\n"
    for name, text in (("prod.env", "TOKEN=swordfish\n"), ("notes.md", key)):
        (work / name).write_text(text)
        with pytest.raises(OutsideError, match=f"{name} may hold keys or passwords"):
            await asked(service, f"what is @{name} ?", MentionScope())
        assert server.posts == 0
    block = await service.retrieval.attach(id_of(service), str(work / "prod.env"))
    with pytest.raises(OutsideError, match="may hold keys or passwords"):
        await service.turns.send(id_of(service), Question("what is it?", (block,)))
    assert server.posts == 0
    agreed = MentionScope(agreed=frozenset({str(work / "notes.md")}))
    assert await asked(service, "what is @notes.md ?", agreed) == [key]
    assert await asked(service, "and @notes.md ?", MentionScope()) == [], "it was given"


async def test_files_that_were_shown_need_the_yes_too(service: ChatService) -> None:
    id = id_of(service)
    shown = await service.retrieval.retrieve(id, "see @~/.ssh/key")
    assert [file.ref for file in shown.outside] == [shown.files[0].ref]
    with pytest.raises(OutsideError):
        await service.turns.send(id, Question("see @~/.ssh/key", passages=(), files=shown.files))


async def test_a_file_that_the_conversation_was_given_needs_no_second_yes(service: ChatService, tmp_path: Path) -> None:
    key = tmp_path / "home" / ".ssh" / "key"
    assert await asked(service, "@~/.ssh/key ?", MentionScope(agreed=frozenset({str(key)})))
    key.write_text("another secret\n")
    assert await asked(service, "@~/.ssh/key now?", MentionScope())
    await service.new_conversations.create("Be brief.")
    with pytest.raises(OutsideError):
        await asked(service, "@~/.ssh/key ?", MentionScope())


async def test_a_link_in_a_collection_leads_outside(service: ChatService, tmp_path: Path) -> None:
    notes = written(tmp_path / "notes", {"a.md": "# A\n\nAlpha.\n"})
    (notes / "b.md").symlink_to(tmp_path / "home" / ".ssh" / "key")
    await indexed(service, notes, "notes")
    assert await asked(service, "@notes/a.md ?", MentionScope()) == ["# A\n\nAlpha.\n"]
    with pytest.raises(ChatError):
        await asked(service, "@notes/b.md ?", MentionScope())
    with pytest.raises(OutsideError):
        await asked(service, f"@{notes}/b.md ?", MentionScope())


async def test_an_edit_keeps_to_the_same(service: ChatService, tmp_path: Path) -> None:
    id = id_of(service)
    await asked(service, "hello", MentionScope())
    question = service.conversations.get(id).path()[1]
    with pytest.raises(OutsideError):
        await service.turns.edit(id, question.id, "see @~/.ssh/key")
    await service.turns.edit(id, question.id, "see @~/.ssh/key", meant=NOTHING)
    await service.conversations.wait(id)
    assert not [block for block in service.conversations.get(id).path()[1].message.blocks if block.kind == FILE]


def block(path: Path) -> ContextBlock:
    return ContextBlock(FILE, path.name, "x", f"{path}#0123456789abcdef")


@pytest.mark.parametrize(
    ("folder", "path", "is_outside"),
    [
        ("home", "home/list.txt", False),
        ("home", "home/.ssh/key", True),
        ("home", "home/a/.env", True),
        (".", "home/list.txt", False),
        (".", "home/.ssh/key", True),
        (".", "other/plan.txt", True),
        ("home/.ssh", "home/.ssh/key", True),
        ("work", "work/.hidden", False),
        ("work", "workshop/x", True),
    ],
)
def test_hidden_files_of_the_home_folder_belong_to_no_wider_folder(
    work: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    path: str,
    is_outside: bool,
) -> None:
    found = outside([block(tmp_path / path)], [str(tmp_path / folder)], [])
    assert bool(found) is is_outside
    monkeypatch.chdir(tmp_path / folder)
    assert bool(outside([block(tmp_path / path)], [], [])) is is_outside


def test_a_working_folder_that_is_gone_holds_nothing(work: Path, tmp_path: Path) -> None:
    there = block(tmp_path / "other" / "plan.txt")
    (work / "notes.txt").unlink()
    work.rmdir()
    assert [file.path for file in outside([there], [], [])] == [str(tmp_path / "other" / "plan.txt")]


def test_what_counted_in_a_question_is_told_by_what_it_brought(work: Path) -> None:
    text = "@./notes.txt @handbook/tower/ @handbook/lamp.md @~/.ssh/key @notes me@./notes.txt"
    blocks = [
        block(work / "notes.txt"),
        ContextBlock(FILE, "[2] handbook/lamp.md", "x", "/h/lamp.md#0123456789abcdef"),
        ContextBlock(PASSAGE, "[3] handbook/tower/paint.md:1-3", "x", "docs/handbook/tower/paint.md#1-3"),
    ]

    def brought(blocks: list[ContextBlock]) -> list[str]:
        return [text[span.start : span.end] for span in mentioned_in(text, blocks)]

    assert brought(blocks) == ["@./notes.txt", "@handbook/tower/", "@handbook/lamp.md"]
    assert brought(blocks[:1]) == ["@./notes.txt"] and brought([]) == []
    changed = ContextBlock(
        FILE,
        "[4] change of handbook/lamp.md since it was attached",
        "x",
        "/h/lamp.md#0123456789abcdef..0123456789abcdef",
    )
    assert brought([changed]) == ["@handbook/lamp.md"]
    text = "@notes.txt ?"
    assert brought([block(work / "notes.txt")]) == ["@notes.txt"]
