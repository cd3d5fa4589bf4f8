"""Parts of the service by themselves: none of them needs the real form of another one but the ground it stands on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.conversations.conversations import ConversationObserver, Conversations
from kvchat.chat.conversations.drafts import Drafts
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.conversations.shared import Head, RunningAct
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ConversationsChanged, EventBus, JobsChanged, Noticed, ServiceEvent
from kvchat.chat.exports import Exports
from kvchat.chat.ground import Ground
from kvchat.chat.question import Question
from kvchat.chat.question.builder import QuestionBuilder
from kvchat.chat.server.consent import Consent, has_agreed
from kvchat.chat.server.lane import Lane
from kvchat.config import Settings
from kvchat.memory.recall import PROFILE_SOURCE, Recalled
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.drafts import Draft, Unsent, unsent_in
from kvchat.prompt.message import Message, Role, State, new_id, node, system_message
from kvchat.store import Store, StoreError
from kvchat.store.jobs import Job
from kvchat.text.problems import StoreProblem

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(Store.open(tmp_path), Settings(), clock=lambda: NOON)
    yield made
    made.store.close()


@pytest.fixture
def conversations(ground: Ground) -> Conversations:
    return Conversations(ground)


async def begun(conversations: Conversations, title: str = "New conversation") -> OpenConversation:
    root = node(None, system_message("Be brief."), 1.0)
    return await conversations.insert(Conversation(new_id(), root.id, 1.0, 1.0, title), [root])


class Diary(ConversationObserver):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def opened(self, id: str, before: str) -> None:
        self.lines.append(f"opened after {before or 'none'}")

    async def deleting(self, id: str) -> None:
        self.lines.append("deleting")


class Busy:
    """Keeps conversations busy."""

    def __init__(self, *ids: str) -> None:
        self.ends = {id: asyncio.get_running_loop().create_future() for id in ids}

    def busy(self) -> Mapping[str, asyncio.Future[None]]:
        return self.ends

    def refuse(self, id: str) -> None:
        if id in self.ends:
            raise ChatError.of("It is busy.")

    async def stop(self, id: str) -> None:
        if (end := self.ends.pop(id, None)) is not None:
            end.set_result(None)

    async def work(self, id: str, spells: Sequence[tuple[int, int]]) -> None:
        """Be busy with it, then rest, for so many turns of the loop each."""
        for busy, rest in spells:
            self.ends[id] = asyncio.get_running_loop().create_future()
            for _ in range(busy):
                await asyncio.sleep(0)
            await self.stop(id)
            for _ in range(rest):
                await asyncio.sleep(0)


async def test_conversations_need_no_server(ground: Ground, conversations: Conversations) -> None:
    told: list[ServiceEvent] = []
    ground.events.subscribe(told.append)
    diary = Diary()
    conversations.observers.append(diary)
    one = await begun(conversations)
    other = await begun(conversations)
    assert diary.lines == ["opened after none", f"opened after {one.id}"] and conversations.looked_at == other.id
    await conversations.rename(one.id, "  The\nlight ")
    assert conversations.title(one.id) == "The light" and ConversationsChanged() in told
    await conversations.set_draft(one.id, "half a")
    await conversations.delete(one.id)
    assert diary.lines[-1] == "deleting" and [record.id for record in conversations.all()] == [other.id]
    await conversations.restore(one.id)
    assert {record.id for record in conversations.all()} == {one.id, other.id}
    assert conversations.load(one.id).draft == "half a"
    with pytest.raises(ChatError):
        conversations.find("nothing like that")


async def test_who_keeps_a_conversation_busy_is_asked_and_stopped(conversations: Conversations) -> None:
    one = await begun(conversations)
    busy = Busy(one.id)
    conversations.occupations.append(busy)
    assert conversations.streaming() == {one.id}
    with pytest.raises(ChatError, match="busy"):
        await conversations.for_act(one.id, Head.ANY, RunningAct(one.id))
    await conversations.delete(one.id)
    assert not conversations.streaming(), "what runs in it is stopped before it is put into the trash"
    with pytest.raises(ChatError, match="trash"):
        await conversations.for_act(one.id, Head.ANY, RunningAct(one.id))


SPELLS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4)


@given(st.lists(SPELLS, min_size=1, max_size=3), st.integers(0, 8))
def test_what_is_waited_for_is_what_keeps_it_busy(work: list[list[tuple[int, int]]], later: int) -> None:
    """Whatever keeps a conversation busy, and however that follows on each other: `wait` returns when nothing does, and
    the loop goes on meanwhile."""

    async def played() -> None:
        ground = Ground(Store.open(None), Settings(), clock=lambda: NOON)
        conversations = Conversations(ground)
        conversations.occupations += [Busy() for _ in work]
        workers = [
            asyncio.create_task(one.work("a", spells))  # type: ignore[attr-defined]
            for one, spells in zip(conversations.occupations, work, strict=True)
        ]
        for _ in range(later):
            await asyncio.sleep(0)
        await conversations.wait("a")
        assert "a" not in conversations.streaming()
        await asyncio.gather(*workers)
        ground.store.close()

    asyncio.run(played())


async def test_the_head_before_an_act_is_given_once(conversations: Conversations) -> None:
    one = await begun(conversations)
    root = one.record.head or ""
    question = node(one.tree[root], Message(Role.USER, "Hi"), 2.0)
    conversations.remember_head(one)
    conversations.remember_head(one)
    await conversations.shared.add(one, [question], lambda row: row, whole=True)
    await conversations.update(one, head=question.id)
    assert conversations.head_before(one) == root and conversations.head_before(one) is None


@pytest.mark.parametrize(
    ("host_class", "named", "agreed"),
    [
        (HostClass.LOOPBACK, False, True),
        (HostClass.LAN, True, True),
        (HostClass.LAN, False, False),
        (HostClass.CLOUD, False, False),
    ],
)
async def test_what_leaves_this_machine_needs_a_yes_once(
    ground: Ground, conversations: Conversations, host_class: HostClass, named: bool, agreed: bool
) -> None:
    server = ServerInfo("openai", "http://10.0.0.7:8000", host_class, model="m")
    consent = Consent(ground, conversations, lambda id: "m")
    if named:
        consent.take_named(server.base_url)
    assert consent.agreed_to(server) is agreed
    await consent.allow_sending_to(server)
    assert consent.agreed_to(server)
    assert has_agreed(ground.store, server.base_url) is (host_class is HostClass.LAN)


async def test_the_profile_stands_first_and_what_is_recalled_last(ground: Ground, conversations: Conversations) -> None:
    one = await begun(conversations)

    def note(text: str, source: str = "") -> ContextBlock:
        return ContextBlock("note", source or text, text)

    async def recall(id: str, text: str, path: object) -> list[Recalled]:
        return [Recalled(note("profile", PROFILE_SOURCE), ()), Recalled(note("memory"), ())]

    async def resolved(conversation: OpenConversation, path: object, question: Question) -> Question:
        return question

    async def plain(conversation: OpenConversation, blocks: list[ContextBlock]) -> list[ContextBlock]:
        return [ContextBlock(block.kind, block.source, block.text.upper()) for block in blocks]

    server = ServerInfo("llamacpp", "http://127.0.0.1:9", HostClass.LOOPBACK, model="SmolLM2-135M.gguf")
    link = SimpleNamespace(info=server)
    servers, memory = SimpleNamespace(link=lambda _: link), SimpleNamespace(recall=recall)
    core = SimpleNamespace(servers=servers, settings=ground.settings, clock=ground.clock)
    builder = QuestionBuilder(core, SimpleNamespace(resolved=resolved), memory, SimpleNamespace(plain=plain))  # type: ignore[arg-type]
    question = Question("Hi", (note("one"),), passages=(note("two"),))
    branch = await builder.built(one, one.record.head or "", question)
    texts = [block.text for block in branch.nodes[0].message.blocks if block.kind == "note"]
    assert texts == ["PROFILE", "ONE", "TWO", "MEMORY"]
    again = await builder.built(one, one.record.head or "", question)
    assert again.nodes[0].wire == branch.nodes[0].wire, "the same question has the same bytes"
    assert next(block.kind for block in again.nodes[0].message.blocks) == "time"
    link.info = replace(server, embedded=True)
    demo = await builder.built(one, one.record.head or "", Question("Hi"))
    assert "time" not in [block.kind for block in demo.nodes[0].message.blocks], "the demo model says it back"


async def test_a_wait_for_a_draft_that_is_given_up_ends_no_other(ground: Ground, conversations: Conversations) -> None:
    ground.conversations = conversations  # type: ignore[attr-defined]
    one, drafts = await begun(conversations), Drafts(ground)  # type: ignore[arg-type]
    stored = drafts.put(one.id, Unsent(Draft("half a thought")))
    waits = asyncio.create_task(drafts.keep())
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    await drafts.aclose()
    await stored
    assert unsent_in(ground.store.drafts()[one.id]).draft.text == "half a thought"


class Handler:
    """Does jobs of one kind."""

    kind = "polish"

    def __init__(self) -> None:
        self.done: list[str] = []
        self.lane = Lane()

    async def place_of(self, job: Job) -> JobPlace | None:
        return JobPlace(self.lane, 0.0)

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        self.done.append(job.subject)
        return Outcome(JobResult.DONE)

    async def retried(self, subject: str) -> None:
        raise AssertionError("nothing failed")


async def test_jobs_are_done_by_whoever_registered_for_their_kind(ground: Ground) -> None:
    jobs, handler = Jobs(ground), Handler()
    jobs.register(handler)
    ended: list[JobResult] = []
    jobs.observers.append(lambda job, how: ended.append(how))
    told: list[ServiceEvent] = []
    ground.events.subscribe(told.append)
    for kind in ("polish", "of a later version"):
        ground.store.jobs.put(kind, "lamp", 0.0)
    await jobs.start_due()
    while not ended:
        await ground.writer.call(lambda: None)
    assert handler.done == ["lamp"] and ended == [JobResult.DONE] and JobsChanged() in told
    assert [job.kind for job in jobs.all()] == ["of a later version"], "it waits for who can do it"
    await jobs.aclose()


async def test_exports_read_what_is_open_as_it_is_now(conversations: Conversations, ground: Ground) -> None:
    one = await begun(conversations, "As stored")
    answer = node(one.path()[-1], Message(Role.USER, "Hi"), 2.0, state=State.DONE)
    one.tree.put(answer)
    exports = Exports(ground.store, conversations.loaded, lambda path: None)
    assert '"Hi"' in "".join(exports.text([one.id], "json", all_branches=True))


async def test_a_failure_to_write_in_the_background_is_told(ground: Ground) -> None:
    told: list[ServiceEvent] = []
    ground.events.subscribe(told.append)

    async def fails() -> None:
        raise StoreError(StoreProblem.DISK_FULL, where="kvchat.db")

    ground.in_background(fails())
    await ground.rest()
    assert told == [Noticed(StoreProblem.DISK_FULL.format(where="kvchat.db"), "warning")]


def test_listeners_hear_in_their_order_until_they_leave() -> None:
    bus, heard = EventBus(), list[str]()
    leave = bus.subscribe(lambda _: heard.append("first"))
    bus.subscribe(lambda _: heard.append("second"))
    bus.tell(JobsChanged())
    leave()
    bus.tell(JobsChanged())
    assert heard == ["first", "second", "second"]
