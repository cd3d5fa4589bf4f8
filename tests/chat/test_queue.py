"""Messages that are sent while a conversation is busy: in their order, each once, and held by whatever goes wrong."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.chat.errors import AnsweredElsewhere, ChatError, NotInQueue, TooLongError
from kvchat.chat.events import Noticed
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING, MentionScope
from kvchat.chat.question.stored import decoded, encoded
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.context import FILE, TIME, ContextBlock
from kvchat.prompt.drafts import PASTE, Span
from kvchat.prompt.message import Role, State
from kvchat.prompt.queued import HoldKind
from kvchat.store import Store, StoreUnavailable
from kvchat.text.problems import StoreProblem
from lossless_reading import read_lossless
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, error, event, tokens
from two_windows_kit import Slow, history, kept, say, streaming, texts, until


async def queue_up(service, id, *messages):
    for text in messages:
        await service.turns.queue_up(id, Question(text))


def waiting(service, id):
    return [item.question.text for item in service.queue.of(id)]


def stored(service, id):
    return [row.text for row in service.store.queue.of(id)]


async def send_first(service, id):
    """As the person does it with Enter."""
    item = service.queue.of(id)[0]
    await service.turns.send_now(id, item.question, queued=item.id)
    await service.conversations.wait(id)


def asked(server):
    """The questions that came over the wire, in their order."""
    return [history(visit)[-1] for visit in server.chats]


@pytest.fixture
async def begun(service, server):
    """A service, a conversation whose second answer streams, and what lets that end."""
    id, slow = (await service.new_conversations.create("Be brief.")).id, Slow()
    await say(service, id, "first")
    await streaming(service, server, id, "second", slow)
    server.on_chat(tokens("Yes."))
    yield service, id, slow
    slow.go.set()


# -- in order


async def test_what_is_queued_is_sent_in_its_order_each_behind_the_answer_before(begun, server):
    service, id, slow = begun
    await queue_up(service, id, "third", "fourth", "fifth")
    assert waiting(service, id) == stored(service, id) == ["third", "fourth", "fifth"]
    assert service.queue.held(id) is None and server.posts == 2
    slow.go.set()
    await service.conversations.wait(id)
    assert texts(service, id)[2:] == ["second", "half and whole", "third", "Yes.", "fourth", "Yes.", "fifth", "Yes."]
    assert kept(service, id) == texts(service, id)
    assert waiting(service, id) == stored(service, id) == [] and server.posts == 5
    sent = [history(visit) for visit in server.chats]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(sent))


async def test_a_message_that_is_queued_while_the_one_before_is_made_ready_follows_it(service, server, monkeypatch):
    id = (await service.new_conversations.create("Be brief.")).id
    built, made, begins, ready = service.questions.built, [], asyncio.Event(), asyncio.Event()

    async def slowly(conversation, head, question):
        made.append(question.text)
        begins.set()
        await ready.wait()
        return await built(conversation, head, question)

    monkeypatch.setattr(service.questions, "built", slowly)
    await queue_up(service, id, "first")
    await begins.wait()
    await queue_up(service, id, "second")
    ready.set()
    await service.conversations.wait(id)
    assert made == texts(service, id)[::2] == asked(server) == ["first", "second"]
    assert waiting(service, id) == stored(service, id) == []


async def test_it_goes_on_while_another_conversation_is_looked_at(begun, server):
    service, id, slow = begun
    await queue_up(service, id, "third")
    await service.conversations.open((await service.new_conversations.create("Else.", reuse=False)).id)
    slow.go.set()
    await service.conversations.wait(id)
    assert kept(service, id)[-2:] == ["third", "Yes."] and service.conversations.record(id).unread


async def test_messages_change_places_are_taken_back_and_go_back_to_their_place(begun):
    service, id, slow = begun
    await queue_up(service, id, "a", "b", "c")
    a, _, c = service.queue.of(id)
    await service.queue.move(id, c, -1)
    await service.queue.move(id, a, -1)
    assert waiting(service, id) == stored(service, id) == ["a", "c", "b"]
    c = service.queue.of(id)[1]
    assert await service.queue.take_back(id, c)
    assert waiting(service, id) == stored(service, id) == ["a", "b"]
    await service.turns.queue_up(id, Question("C"), place=c.place)
    assert waiting(service, id) == stored(service, id) == ["a", "C", "b"]
    slow.go.set()
    await service.conversations.wait(id)
    assert texts(service, id)[4::2] == ["a", "C", "b"]


async def test_a_message_that_was_sent_just_now_is_not_taken_back(begun):
    service, id, slow = begun
    await queue_up(service, id, "third")
    (item,) = service.queue.of(id)
    slow.go.set()
    await service.conversations.wait(id)
    assert not await service.queue.take_back(id, item)
    with pytest.raises(NotInQueue):
        await service.turns.send_now(id, item.question, queued=item.id)
    assert texts(service, id).count("third") == 1


async def test_a_queue_goes_on_behind_a_compaction(service, server):
    id = (await service.new_conversations.create("Be brief.")).id
    for text in ("first", "second", "third"):
        await say(service, id, text)
    slow = Slow("It was about ", "bees.")
    server.on_chat(slow, tokens("Yes."))
    compacting = asyncio.create_task(service.compactor.compact(id))
    await until(service, lambda: service.compactor.running is not None and bool(service.compactor.running.live.text))
    await queue_up(service, id, "fourth")
    assert waiting(service, id) == ["fourth"]
    slow.go.set()
    assert await compacting is not None
    await service.conversations.wait(id)
    assert texts(service, id)[-2:] == ["fourth", "Yes."] and waiting(service, id) == []


# -- held


async def silent(visit: Visit) -> None:
    await visit.send(
        SSE_HEAD
        + chunked(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        + chunked(b"data: [DONE]\n\n")
        + b"0\r\n\r\n"
    )


REFUSED = error(
    400,
    "the request exceeds the available context size",
    "exceed_context_size_error",
    n_prompt_tokens=13039,
    n_ctx=4096,
)
"""After it the conversation stands where it stood before the question."""


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(500, "out of memory"), HoldKind.FAILED),
        (REFUSED, HoldKind.FAILED),
        (tokens("Ye", finish=None), HoldKind.INTERRUPTED),
        (silent, HoldKind.EMPTY),
    ],
)
async def test_an_answer_that_is_not_whole_holds_what_follows_it(begun, server, answer, kind):
    service, id, slow = begun
    server.on_chat(answer)
    await queue_up(service, id, "third", "fourth", "fifth")
    slow.go.set()
    await service.conversations.wait(id)
    assert asked(server) == ["first", "second", "third"]
    assert service.queue.held(id) is kind and stored(service, id) == ["fourth", "fifth"]
    server.on_chat(tokens("Yes."))
    await send_first(service, id)
    assert asked(server) == ["first", "second", "third", "fourth", "fifth"] and service.queue.held(id) is None


async def test_a_stopped_answer_holds_what_follows_it_and_another_message_does_not_free_it(begun, server):
    service, id, _ = begun
    await queue_up(service, id, "third")
    await service.conversations.stop(id)
    assert service.queue.held(id) is HoldKind.STOPPED and server.posts == 2
    await service.conversations.stop(id)
    await say(service, id, "instead")
    assert asked(server)[-1] == "instead" and service.queue.held(id) is HoldKind.STOPPED
    await queue_up(service, id, "fourth")
    assert waiting(service, id) == ["third", "fourth"] and server.posts == 3
    assert service.queue.held(id) is HoldKind.STOPPED
    await send_first(service, id)
    assert asked(server)[2:] == ["instead", "third", "fourth"]


async def test_nothing_of_an_earlier_run_is_sent_by_itself(begun, server, make):
    service, id, _ = begun
    await queue_up(service, id, "third", "fourth")
    await service.aclose()
    again = make(server.url)
    await again.conversations.open(id)
    again.refresh()
    await again.conversations.wait(id)
    assert waiting(again, id) == ["third", "fourth"] and server.posts == 2
    assert again.queue.held(id) is HoldKind.STOPPED
    await say(again, id, "hello again")
    assert server.posts == 3 and again.queue.held(id) is HoldKind.EARLIER
    await send_first(again, id)
    assert asked(server)[2:] == ["hello again", "third", "fourth"]
    assert stored(again, id) == []


async def test_an_incognito_run_keeps_its_queue_in_memory(server):
    service = ChatService(Store.open(None), changed(Settings(), "server.base_url", server.url), incognito=True)
    id, slow = (await service.new_conversations.create("Be brief.")).id, Slow()
    await streaming(service, server, id, "first", slow)
    await queue_up(service, id, "second")
    server.on_chat(tokens("Yes."))
    slow.go.set()
    await service.conversations.wait(id)
    assert texts(service, id)[-2:] == ["second", "Yes."] and service.store.database.path is None
    await service.aclose()


async def test_a_message_that_is_too_long_by_then_is_held(begun, server, monkeypatch):
    service, id, slow = begun

    async def must_fit(conversation, path):
        if path[-1].text == "long":
            raise TooLongError(9000, 4096, counted=True)

    monkeypatch.setattr(service.sizes, "must_fit", must_fit)
    await queue_up(service, id, "long", "short")
    slow.go.set()
    await service.conversations.wait(id)
    assert service.queue.held(id) is HoldKind.TOO_LONG and stored(service, id) == ["long", "short"]
    assert server.posts == 2


async def test_without_the_persons_yes_nothing_goes_to_a_server(begun, server, monkeypatch):
    service, id, slow = begun
    await queue_up(service, id, "third")
    monkeypatch.setattr(service.servers.consent, "agreed_to", lambda server, id="": False)
    slow.go.set()
    await service.conversations.wait(id)
    assert service.queue.held(id) is HoldKind.NEEDS_YES and server.posts == 2
    assert kept(service, id)[-1] == "half and whole"


async def test_a_message_in_the_trash_is_kept_and_comes_back_with_it(begun, server):
    service, id, _ = begun
    await queue_up(service, id, "third")
    await service.conversations.delete(id)
    assert server.posts == 2
    await service.conversations.restore(id)
    assert waiting(service, id) == ["third"] and service.queue.held(id) is HoldKind.STOPPED
    await service.conversations.delete(id)
    service.store.purge_trash(service.core.timestamp() + 1)
    assert stored(service, id) == []


# -- what goes with it


async def test_its_context_is_made_when_it_is_sent(begun, clock, tmp_path, monkeypatch):
    service, id, slow = begun
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    notes = tmp_path / "work" / "notes.txt"
    notes.write_text("old\n")
    paste = ContextBlock(PASTE, "pasted 1 (2 lines)", "a\nb")
    read = Question(
        "[pasted 1: 2 lines] and @./notes.txt",
        (paste,),
        MentionScope((Span(0, 19, PASTE, paste),)),
        files=(ContextBlock(FILE, "notes.txt", "old\n", f"{notes}#1"),),
    )
    await service.turns.queue_up(id, read)
    notes.write_text("new\n")
    clock.now = clock.now.replace(hour=17)
    slow.go.set()
    await service.conversations.wait(id)
    question = [node for node in service.conversations.get(id).path() if node.role is Role.USER][-1]
    blocks = {block.kind: block.text for block in question.message.blocks}
    assert blocks[FILE] == "new\n" and blocks[PASTE] == "a\nb" and "17:" in blocks[TIME]


async def test_a_mention_that_cannot_be_followed_holds_it_and_is_told(begun, server, tmp_path, monkeypatch):
    service, id, slow = begun
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    told = []
    service.events.subscribe(lambda event: told.append(event.text) if isinstance(event, Noticed) else None)
    await queue_up(service, id, "see @./folder")
    slow.go.set()
    await service.conversations.wait(id)
    assert service.queue.held(id) is HoldKind.NOT_SENT and stored(service, id) == ["see @./folder"]
    assert any("is a folder" in words for words in told) and server.posts == 2


async def test_a_file_from_outside_needs_a_yes_when_it_is_sent(begun, server, tmp_path, monkeypatch):
    service, id, slow = begun
    (tmp_path / "work").mkdir()
    (tmp_path / "plan.txt").write_text("plan\n")
    monkeypatch.chdir(tmp_path / "work")
    await queue_up(service, id, "see @../plan.txt")
    slow.go.set()
    await service.conversations.wait(id)
    assert service.queue.held(id) is HoldKind.NEEDS_YES and server.posts == 2
    (item,) = service.queue.of(id)
    agreed = Question(
        item.question.text, meant=MentionScope(agreed=frozenset({str((tmp_path / "plan.txt").resolve())}))
    )
    await service.turns.send_now(id, agreed, queued=item.id)
    await service.conversations.wait(id)
    assert asked(server)[-1].endswith("see @../plan.txt") and stored(service, id) == []


async def test_a_mention_means_no_file_of_another_folder(begun, server, tmp_path, monkeypatch):
    service, id, slow = begun
    for name in ("work", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text(f"{name}\n")
    monkeypatch.chdir(tmp_path / "work")
    await queue_up(service, id, "see @./notes.txt", "and then?")
    monkeypatch.chdir(tmp_path / "other")  # as in another window
    slow.go.set()
    await service.conversations.wait(id)
    assert service.queue.held(id) is HoldKind.NEEDS_YES and server.posts == 2
    monkeypatch.chdir(tmp_path / "work")
    await send_first(service, id)
    assert server.posts == 4 and "work" in server.chats[2].json["messages"][-1]["content"]


NAMES = st.frozensets(st.text(max_size=8), max_size=3)
BLOCKS = st.builds(
    ContextBlock, st.sampled_from([PASTE, FILE]), st.text(max_size=9), st.text(max_size=20), st.text(max_size=9)
)
QUESTIONS = st.builds(
    lambda *parts, **more: Question(*parts, **more),  # which has types that are not there when it runs
    st.text(max_size=30),
    st.lists(BLOCKS, max_size=3).map(tuple),
    st.builds(MentionScope, st.just(()), NAMES),
    st.sampled_from([None, ()]),
    without=NAMES,
    taken=NAMES,
    recalls=st.booleans(),
)


@given(question=QUESTIONS, places=st.lists(st.integers(0, 30), max_size=6))
def test_a_question_comes_back_as_it_was_put_in(question, places):
    places = sorted(min(place, len(question.text)) for place in places)
    blocks = [*question.blocks, None, None]
    spans = zip(places[::2], places[1::2], ["paste", "file", "mention"], blocks[:3], strict=False)
    question = replace(question, meant=replace(question.meant, spans=tuple(Span(*span) for span in spans)))
    assert decoded(question.text, encoded(question, "/folder")) == (question, "/folder")


@pytest.mark.parametrize("damaged", ["", "{", "[]", "{}", '{"blocks": 3}', "[" * 100000])
def test_of_a_damaged_row_the_text_stays(damaged):
    assert decoded("see @x", damaged) == (Question("see @x", meant=NOTHING), "")


# -- beside other work


async def test_nothing_that_waits_for_a_free_server_begins_between_two_queued_messages(begun, server):
    service, id, slow = begun
    await queue_up(service, id, "third", "fourth")
    lane, seen = service.servers.link(id).lane, []

    async def works():
        while stored(service, id):
            await lane.freed()
            assert await lane.in_background(asyncio.sleep(0)) or True
            seen.append(server.posts)

    work = asyncio.create_task(works())
    slow.go.set()
    await service.conversations.wait(id)
    await work
    assert seen == [4] and lane.is_free


async def test_a_queue_that_is_held_keeps_the_server_from_nobody(begun, server):
    service, id, slow = begun
    server.on_chat(error(500, "out of memory"))
    await queue_up(service, id, "third", "fourth")
    lane = service.servers.link(id).lane
    slow.go.set()
    await service.conversations.wait(id)
    await lane.freed()
    assert service.queue.held(id) is HoldKind.FAILED and lane.is_free


# -- two windows


@pytest.fixture
async def windows(make, server):
    """Two windows on a conversation whose second answer streams in the first."""
    one, other, slow = make(server.url), make(server.url), Slow()
    id = (await one.new_conversations.create("Be brief.")).id
    await say(one, id, "first")
    await streaming(one, server, id, "second", slow)
    other.refresh()
    await other.conversations.open(id)
    server.on_chat(tokens("Yes."))
    yield one, other, id, slow
    slow.go.set()


async def test_both_windows_queue_and_each_message_is_sent_once_in_their_order(windows, server):
    one, other, id, slow = windows
    for number in range(3):
        await queue_up(one, id, f"one {number}")
        other.refresh()
        await queue_up(other, id, f"other {number}")
        one.refresh()
    order = ["one 0", "other 0", "one 1", "other 1", "one 2", "other 2"]
    assert stored(one, id) == waiting(other, id) == order
    slow.go.set()
    async with asyncio.timeout(30):
        while stored(one, id) or any(id in window.conversations.streaming() for window in (one, other)):
            await asyncio.gather(*(window.conversations.wait(id) for window in (one, other)))
            await asyncio.sleep(0)
    assert asked(server)[2:] == order
    assert kept(one, id)[4:] == [text for question in order for text in (question, "Yes.")]


async def test_two_windows_that_send_the_same_message_at_once_send_it_once(windows, server):
    one, other, id, _ = windows
    await queue_up(one, id, "third")
    await one.conversations.stop(id)
    other.refresh()
    assert waiting(other, id) == ["third"] and other.queue.held(id) is HoldKind.STOPPED
    item = one.queue.of(id)[0]
    done = await asyncio.gather(
        *(window.turns.send_now(id, item.question, queued=item.id) for window in (one, other)), return_exceptions=True
    )
    assert sum(one is None for one in done) == 1
    await asyncio.gather(*(window.conversations.wait(id) for window in (one, other)))
    assert asked(server) == ["first", "second", "third"] and stored(one, id) == []


async def test_a_window_waits_for_the_reply_of_the_other_and_sends_then(windows, server):
    one, other, id, slow = windows
    await queue_up(other, id, "third")
    await until(other, lambda: other.conversations.awaits_reply(id))
    slow.go.set()
    await other.conversations.wait(id)
    assert asked(server) == ["first", "second", "third"] and stored(one, id) == []
    assert history(server.chats[-1]) == ["first", "Hello", "second", "half and whole", "third"]


async def test_what_is_stopped_in_the_other_window_holds_the_queue_here(windows, server):
    one, other, id, _ = windows
    await queue_up(other, id, "third")
    await until(other, lambda: other.conversations.awaits_reply(id))
    await one.conversations.stop(id)
    await other.conversations.wait(id)
    assert other.queue.held(id) is HoldKind.STOPPED and server.posts == 2 and stored(one, id) == ["third"]


async def test_a_stop_comes_before_the_window_waits_for_the_other_and_holds_the_queue(windows, server):
    _, other, id, _ = windows
    await queue_up(other, id, "third")
    await asyncio.sleep(0)  # it looks at what the other one does
    assert not other.conversations.awaits_reply(id)
    async with asyncio.timeout(30):
        await other.conversations.stop(id)
    assert other.queue.held(id) is None, "the other window still answers, and may go on with it"
    assert not other.queue.flows(id) and stored(other, id) == ["third"] and server.posts == 2


async def test_what_the_other_window_takes_back_is_not_sent(windows, server):
    one, other, id, slow = windows
    await queue_up(one, id, "third", "fourth")
    other.refresh()
    assert await other.queue.take_back(id, other.queue.of(id)[0])
    slow.go.set()
    await one.conversations.wait(id)
    assert asked(server) == ["first", "second", "fourth"] and waiting(one, id) == []


# -- a disk that refuses


@pytest.fixture
def refuse(monkeypatch):
    """From now on the disk refuses to write."""

    def full(*_, **__):
        raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")

    def refuse():
        for name in ("add", "append", "settle", "change", "set_draft", "record_request", "set_setting"):
            monkeypatch.setattr(Store, name, full)
        for name in ("put", "drop", "move"):
            monkeypatch.setattr(f"kvchat.store.queue.QueueRows.{name}", full)

    return refuse


async def test_while_the_disk_refuses_nothing_of_the_queue_is_sent_and_nothing_is_lost(
    begun, server, refuse, tmp_path, monkeypatch
):
    service, id, slow = begun
    await queue_up(service, id, "third")
    refuse()
    await queue_up(service, id, "fourth")
    slow.go.set()
    await service.conversations.wait(id)
    assert server.posts == 2 and service.queue.held(id) is HoldKind.NOT_SENT
    assert waiting(service, id) == ["third", "fourth"] and stored(service, id) == ["third"]
    rescued = await service.aclose((tmp_path,))
    (found,) = read_lossless(rescued.path.read_text())
    assert found.draft == "fourth"


async def test_when_the_disk_takes_it_again_the_queue_goes_on(begun, server, refuse, monkeypatch):
    service, id, slow = begun
    refuse()
    await queue_up(service, id, "third")
    slow.go.set()
    await service.conversations.wait(id)
    assert server.posts == 2
    monkeypatch.undo()
    await service.writer.flush()
    assert stored(service, id) == ["third"]
    await send_first(service, id)
    assert asked(server)[-1] == "third" and stored(service, id) == []


# -- whatever is done


class Replies:
    """Each reply says a word and ends as the play says."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.began = asyncio.Event()
        self.lets_go = False
        """Whether every reply ends by itself."""
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self, visit: Visit) -> None:
        self.asked.append(history(visit)[-1])
        self.end = asyncio.get_running_loop().create_future()
        await visit.send(SSE_HEAD + chunked(event({"choices": [{"index": 0, "delta": {"content": "Yes."}}]})))
        self.began.set()
        if self.lets_go:
            self.end.set_result("stop")
        gone = asyncio.create_task(visit.gone.wait())
        await asyncio.wait({gone, self.end}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if self.end.done() and self.end.result() != "cut":
            reason = {"index": 0, "delta": {}, "finish_reason": self.end.result()}
            await visit.send(chunked(event({"choices": [reason]})) + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


STEPS = st.lists(
    st.one_of(
        st.just(("say",)),
        st.just(("queue",)),
        st.tuples(st.just("drop"), st.integers(0, 4)),
        st.tuples(st.just("move"), st.integers(0, 4), st.sampled_from([-1, 1])),
        st.just(("next",)),
        st.just(("stop",)),
        st.tuples(st.just("end"), st.sampled_from(["stop", "stop", "stop", "length", "cut"])),
        st.just(("restart",)),
    ),
    max_size=16,
)


@pytest.mark.slow
@given(steps=STEPS)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_no_message_is_lost_or_sent_twice_whatever_is_done(tmp_path_factory, steps):
    """The queue is what a list would be of which the first one is sent whenever a whole answer has ended, in a window
    in which it goes on."""
    folder = tmp_path_factory.mktemp("queue")

    async def play() -> None:
        async with ToyServer() as server:
            replies = Replies()
            server.on_chat(replies)
            made = [opened(folder, server)]
            id = (await made[0].new_conversations.create("Be brief.")).id
            line: list[str] = []
            asked: list[str] = []
            flows = busy = False

            async def sent(text: str) -> None:
                """It is answered now."""
                nonlocal busy
                busy = True
                asked.append(text)
                await until(made[-1], lambda: len(replies.asked) == len(asked)) if replies.asked != asked else None
                await replies.began.wait()
                live = made[-1].conversations.get(id)
                await until(made[-1], lambda: bool(live.live and live.live.text))

            async def ended(whole: bool) -> None:
                nonlocal busy, flows
                busy, flows = False, flows and whole
                if flows and line:
                    await sent(line.pop(0))
                flows = flows and bool(line)

            for number, (do, *of) in enumerate(steps):
                service, name = made[-1], f"m{number}"
                items = service.queue.of(id)
                if do in ("say", "next") and not busy:
                    while id in service.turns.running:  # noqa: ASYNC110 (it is settled, and about to end)
                        await asyncio.sleep(0.001)
                if do == "say" and not busy:
                    replies.began.clear()
                    await service.turns.send_now(id, Question(name))
                    await sent(name)
                elif do == "queue" and busy:
                    flows = flows if line else True
                    line.append(name)
                    await service.turns.queue_up(id, Question(name))
                elif do == "drop" and of[0] < len(items):
                    assert await service.queue.take_back(id, items[of[0]])
                    del line[of[0]]
                    flows = flows and bool(line)
                elif do == "move" and of[0] < len(items) and 0 <= of[0] + of[1] < len(items):
                    await service.queue.move(id, items[of[0]], of[1])
                    at, to = of[0], of[0] + of[1]
                    line[at], line[to] = line[to], line[at]
                elif do == "next" and items and not busy:
                    replies.began.clear()
                    await service.turns.send_now(id, items[0].question, queued=items[0].id)
                    await sent(line.pop(0))
                    flows = bool(line)
                elif do == "stop" and busy:
                    await service.conversations.stop(id)
                    await ended(False)
                elif do == "end" and busy:
                    replies.began.clear()
                    settled = asyncio.create_task(one_settled(service, id))
                    await asyncio.sleep(0)
                    replies.end.set_result(of[0])
                    await settled
                    await ended(of[0] in ("stop", "length"))
                elif do == "restart":
                    await service.aclose()
                    made[-1] = opened(folder, server)
                    await made[-1].conversations.open(id)
                    busy = flows = False
                service = made[-1]
                assert [item.question.text for item in service.queue.of(id)] == line == stored(service, id)
                assert replies.asked == asked and (service.queue.held(id) is None) == (flows or not line)
            await made[-1].conversations.stop(id)
            tree = made[-1].conversations.get(id).tree
            assert [node.text for node in tree if node.role is Role.USER] == asked
            await made[-1].aclose()

    asyncio.run(play())


TWO_STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1]),
        st.one_of(
            st.just(("put",)),
            st.just(("put",)),
            st.tuples(st.just("drop"), st.integers(0, 3)),
            st.tuples(st.just("move"), st.integers(0, 3), st.sampled_from([-1, 1])),
            st.just(("next",)),
            st.just(("stop",)),
            st.just(("look",)),
            st.tuples(st.just("end"), st.sampled_from(["stop", "stop", "length", "cut"])),
            st.just(("rest",)),
        ),
    ),
    max_size=14,
)


@pytest.mark.slow
@given(steps=TWO_STEPS)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_two_windows_lose_no_message_and_send_none_twice(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("queues")

    async def play() -> None:
        async with ToyServer() as server:
            replies, put, dropped = Replies(), [], []
            server.on_chat(replies)
            windows = [opened(folder, server) for _ in range(2)]
            id = (await windows[0].new_conversations.create("Be brief.")).id
            await windows[1].conversations.open(id)
            for number, (at, (do, *of)) in enumerate(steps):
                service, name = windows[at], f"m{number}"
                items = service.queue.of(id)
                if do == "put" and (service.queue.flows(id) or id in service.conversations.streaming()):
                    put.append(name)
                    await service.turns.queue_up(id, Question(name))
                elif do == "put":
                    put.append(name)
                    try:
                        await service.turns.send_now(id, Question(name))
                    except AnsweredElsewhere:
                        await service.turns.queue_up(id, Question(name))
                elif do == "drop" and of[0] < len(items):
                    if await service.queue.take_back(id, items[of[0]]):
                        dropped.append(items[of[0]].question.text)
                elif do == "move" and of[0] < len(items):
                    await service.queue.move(id, items[of[0]], of[1])
                elif do == "next" and items and service.queue.held(id) is not None:
                    with suppress(ChatError):
                        await service.turns.send_now(id, items[0].question, queued=items[0].id)
                elif do == "stop":
                    await service.conversations.stop(id)
                elif do == "look":
                    service.refresh()
                elif do == "end" and not replies.end.done():
                    replies.end.set_result(of[0])
                elif do == "rest":
                    await asyncio.sleep(0.01)
            replies.lets_go = True
            if not replies.end.done():
                replies.end.set_result("stop")
            async with asyncio.timeout(60):
                while any(id in window.conversations.streaming() for window in windows):
                    await asyncio.gather(*(window.conversations.wait(id) for window in windows))
            left = stored(windows[0], id)
            asked = [node.text for node in windows[0].store.tree(id) if node.role is Role.USER]
            assert sorted([*asked, *dropped, *left]) == sorted(put)
            assert len({*replies.asked}) == len(replies.asked) and {*replies.asked} <= {*asked}
            for window in windows:
                await window.aclose()

    asyncio.run(play())


def opened(folder: Path, server: ToyServer) -> ChatService:
    return ChatService(Store.open(folder), changed(Settings(), "server.base_url", server.url))


async def one_settled(service: ChatService, id: str) -> None:
    """Return when the answer that streams now has another state."""
    conversation = service.conversations.get(id)
    node = conversation.record.head
    await until(service, lambda: conversation.tree[node].state is not State.STREAMING)
