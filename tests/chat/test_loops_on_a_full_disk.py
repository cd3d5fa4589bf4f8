"""The disk is full, or read-only, from some moment of a loop of calls on: it is said, nothing is carried out that could
not be noted down, what is sent is what a strict server takes, and nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvchat.chat.events import ConversationChanged
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.tools.files import ReadFile
from kvchat.chat.tools.steps import NOT_STORED
from kvchat.prompt.message import Role, State
from kvchat.transfer.formats import Source
from lossless_reading import read_lossless
from strict_history import check_sent, check_tree
from toyserver import ToyServer, Visit, calls, tokens

READS = [json.dumps({"path": f"{number}.txt"}) for number in range(6)]
LOOP = [READS[:1], READS[1:3], READS[3:]]
LONG = "y" * 40_000
"""More than the last page of the file has room for."""


class Disk:
    """The one that the store is on."""

    def __init__(self, service: ChatService, kind: str) -> None:
        self._connection = service.store.database._connection
        self._kind = kind

    def fail(self) -> None:
        if self._kind == "read-only":
            self._connection.execute("PRAGMA query_only = ON")
        else:
            pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
            self._connection.execute(f"PRAGMA max_page_count = {pages}")

    def mend(self) -> None:
        self._connection.execute("PRAGMA query_only = OFF")
        self._connection.execute("PRAGMA max_page_count = 1000000")


@pytest.fixture(params=["full", "read-only"])
def disk(request: pytest.FixtureRequest, service: ChatService) -> Disk:
    service.tools.give(["read_file"])
    return Disk(service, request.param)


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read, in order."""
    (tmp_path / "work").mkdir()
    for number in range(6):
        (tmp_path / "work" / f"{number}.txt").write_text(f"lamp {number} {LONG}")
    monkeypatch.chdir(tmp_path / "work")
    ran: list[str] = []
    run = ReadFile.run

    async def noted(self, conversation, given):
        ran.append(given["path"])
        return await run(self, conversation, given)

    monkeypatch.setattr(ReadFile, "run", noted)
    return ran


async def turn(service: ChatService, server: ToyServer, disk: Disk, moment: int) -> str:
    """A turn of three rounds of calls; `moment`: the round as whose answer is asked for the disk fails, or, with 10
    more, as its first call has begun."""
    answers = [calls(*some, text="I look. ") for some in LOOP] + [tokens("Done.", prompt=60)]

    def hooked(at: int):
        async def answer(visit: Visit) -> None:
            if at == moment:
                disk.fail()
            await answers[at](visit)

        return answer

    server.on_chat(*(hooked(at) for at in range(4)))
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)

    def look(event: object) -> None:
        results = [one for one in conversation.tree if one.role is Role.TOOL]
        if moment >= 10 and isinstance(event, ConversationChanged) and len(results) == [1, 2, 4][moment - 10]:
            disk.fail()

    service.events.subscribe(look)
    await service.turns.send(conversation.id, Question("What do they say?"))
    await service.conversations.wait(conversation.id)
    return conversation.id


@pytest.mark.parametrize("moment", [0, 1, 2, 3, 10, 11, 12])
@pytest.mark.parametrize("recovers", [True, False])
async def test_a_disk_that_fails_in_a_loop(
    service: ChatService,
    make,
    server: ToyServer,
    disk: Disk,
    ran: list[str],
    tmp_path: Path,
    moment: int,
    recovers: bool,
) -> None:
    id = await turn(service, server, disk, moment)
    conversation = service.conversations.load(id)
    path = conversation.path()
    assert path[-1].text == "Done." and path[-1].state is State.DONE
    assert service.conversations.unsaved.reason
    results = {one.message.call.given()["path"]: one for one in path if one.role is Role.TOOL}
    assert len(results) == 6
    for name, one in results.items():
        assert one.text.startswith(NOT_STORED) is (name not in ran), "told as it was"
    assert len(ran) == len({*ran})
    check_sent(server)
    check_tree(conversation.tree)
    known = Source(conversation.record, conversation.tree)
    if recovers:
        disk.mend()
        assert await service.conversations.unsaved.retry() == []
        assert service.conversations.unsaved.reason == ""
        stored = service.store.tree(id)
    else:
        rescued = await service.aclose([tmp_path])
        assert rescued is not None and rescued.path is not None
        (source,) = read_lossless(rescued.path.read_text())
        stored = source.tree
    assert {(one.id, one.parent, one.wire, one.state) for one in stored} == {
        (one.id, one.parent, one.wire, one.state) for one in known.tree
    }
    check_tree(stored)
    if not recovers:
        other = make(server.url)
        assert not (await other.imports.run([rescued.path])).skipped
        service = other
        found = await other.conversations.open(id)
        assert [one.wire for one in found.path()] == [one.wire for one in path]
        assert (await other.imports.run([rescued.path])).unchanged == 1
    server.on_chat(tokens("Yes.", prompt=90))
    await service.turns.send(id, Question("Go on?"))
    await service.conversations.wait(id)
    assert service.conversations.load(id).path()[-1].text == "Yes."
    check_sent(server)
    check_tree(service.conversations.load(id).tree)
