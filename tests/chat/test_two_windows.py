"""Two kvchats on one conversation: nothing that one does is undone by the other, no unfinished reply is history, and
each window stays where it is."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.chat.errors import ChatError
from kvchat.chat.events import DeletedElsewhere, HeadAwaited, WrittenElsewhere
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.context import SUMMARY
from kvchat.prompt.message import Role, State
from kvchat.prompt.request import Parameters
from kvchat.prompt.tags import ARCHIVE, FAVOURITE
from kvchat.store import Store
from kvchat.store.presence import process_id as owner
from kvchat.text.problems import StoreProblem
from toyserver import tokens
from two_windows_kit import Slow, history, kept, say, streaming, texts, until


@pytest.fixture
async def windows(make, server):
    """Two windows, and the id of a conversation of one turn that both have open."""
    one, other = make(server.url), make(server.url)
    id = (await one.new_conversations.create("Be brief.")).id
    await say(one, id, "first")
    other.refresh()
    await other.conversations.open(id)
    return one, other, id


def heard(service, kind):
    found = []
    service.events.subscribe(lambda event: found.append(event) if isinstance(event, kind) else None)
    return found


# -- what one changes, the other does not undo


async def test_what_is_changed_while_the_other_ones_reply_streams_stays_changed(windows, server):
    one, other, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    await other.conversations.rename(id, "Bees")
    await other.extraction.set_memory(id, False)
    await other.options.set_parameters(id, Parameters(temperature=0.25))
    slow.go.set()
    await one.conversations.wait(id)
    for record in (one.store.conversation(id), one.conversations.get(id).record):
        assert (record.title, record.memory, record.parameters.temperature) == ("Bees", False, 0.25)
    assert kept(one, id)[-1] == "half and whole"


async def test_a_deletion_holds_and_is_told(windows, server):
    one, other, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    told = heard(one, DeletedElsewhere)
    await other.conversations.delete(id)
    slow.go.set()
    await one.conversations.wait(id)
    assert one.store.conversation(id).trashed is not None
    assert id not in {record.id for record in one.conversations.all()}
    assert told == [DeletedElsewhere(id)]
    assert kept(one, id)[-1] == "half and whole", "what came is kept all the same"
    with pytest.raises(ChatError, match="trash"):
        await one.turns.send(id, Question("third"))
    assert kept(one, id)[-1] == "half and whole"
    await one.conversations.restore(id)
    server.on_chat(tokens("Yes."))
    await say(one, id, "third")
    assert kept(one, id)[-2:] == ["third", "Yes."]


async def test_a_deletion_is_told_to_who_does_nothing(windows):
    one, other, id = windows
    told = heard(one, DeletedElsewhere)
    await other.conversations.delete(id)
    one.refresh()
    one.refresh()
    assert told == [DeletedElsewhere(id)]
    assert one.conversations.get(id).record.trashed is not None


async def test_who_deletes_is_not_told_of_it(windows):
    one, _, id = windows
    told = heard(one, DeletedElsewhere)
    await one.conversations.delete(id)
    one.refresh()
    assert told == []


async def test_a_name_given_elsewhere_is_not_replaced_by_the_first_words(make, server):
    one, other = make(server.url), make(server.url)
    id = (await one.new_conversations.create("Be brief.")).id
    await other.conversations.rename(id, "Bees")
    await say(one, id, "How are they?")
    assert one.store.conversation(id).title == "Bees"


async def test_a_conversation_given_up_by_documents_elsewhere_keeps_its_other_fields(windows):
    one, other, id = windows
    await other.retrieval.set_retrieval(id, "always", ["notes", "mail"])
    await one.options.set_model(id, "toy")
    record = one.store.conversation(id)
    assert (record.retrieval, record.collections, record.model) == ("always", ("notes", "mail"), "toy")


async def test_tags_of_two_windows_come_together_and_a_fork_keeps_those_of_ones_own(windows):
    one, other, id = windows
    await other.conversations.tag(id, ["work", FAVOURITE])
    await one.conversations.tag(id, ["home"])
    await other.conversations.tag(id, remove=["work"])
    one.refresh()
    for record in (one.store.conversation(id), one.conversations.get(id).record, one.conversations.listed(id)):
        assert record.tags == (FAVOURITE, "home")
    fork = await one.branches.fork(id, one.conversations.get(id).record.head)
    assert one.store.conversation(fork.id).tags == ("home",)


async def test_the_archived_is_not_gone_on_with(windows):
    one, _, id = windows
    assert one.conversations.latest().id == id
    await one.conversations.tag(id, [ARCHIVE])
    assert one.conversations.latest() is None and one.conversations.shown() == []
    assert [record.id for record in one.conversations.all()] == [id]


async def test_an_empty_conversation_gets_no_tag(make, server):
    one = make(server.url)
    id = (await one.new_conversations.create()).id
    with pytest.raises(ChatError, match="nothing to tag"):
        await one.conversations.tag(id, ["work"])
    assert one.store.conversation(id).tags == ()


FIELDS = {
    "title": (st.sampled_from("abc"), lambda service, id, value: service.conversations.rename(id, value)),
    "memory": (st.booleans(), lambda service, id, value: service.extraction.set_memory(id, value)),
    "model": (st.sampled_from("xyz"), lambda service, id, value: service.options.set_model(id, value)),
    "parameters": (
        st.builds(Parameters, temperature=st.sampled_from([0.1, 0.5])),
        lambda service, id, value: service.options.set_parameters(id, value),
    ),
    "template_options": (
        st.fixed_dictionaries({"enable_thinking": st.booleans()}),
        lambda service, id, value: service.options.set_template_options(id, value),
    ),
    "trashed": (
        st.booleans(),
        lambda service, id, value: (service.conversations.delete if value else service.conversations.restore)(id),
    ),
}


@given(
    steps=st.lists(
        st.one_of(
            *(st.tuples(st.booleans(), st.just(name), values, st.booleans()) for name, (values, _) in FIELDS.items())
        ),
        max_size=12,
    )
)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_every_field_has_the_value_it_was_given_last(tmp_path_factory, steps):
    """Whoever gave it, and whether or not the other one has looked since."""
    folder = tmp_path_factory.mktemp("two")

    async def play() -> None:
        one, other = (
            ChatService(Store.open(folder), changed(Settings(), "server.base_url", "http://127.0.0.1:9"))
            for _ in range(2)
        )
        id = (await one.new_conversations.create("Be brief.")).id
        expected = {}
        for first, name, value, looks in steps:
            service = one if first else other
            if looks:
                service.refresh()
            await FIELDS[name][1](service, id, value)
            expected[name] = value
        record = one.store.conversation(id)
        for name, value in expected.items():
            found = getattr(record, name)
            assert (found is not None if name == "trashed" else found) == value, name
        await one.aclose()
        await other.aclose()

    asyncio.run(play())


async def test_another_server_keeps_what_was_set_elsewhere(windows, server):
    one, other, id = windows
    await other.options.set_parameters(id, Parameters(temperature=0.25))
    await one.chooser.use(id, server.url, "toy")
    record = one.store.conversation(id)
    assert (record.server, record.parameters.temperature) == (server.url, 0.25)


# -- what streams elsewhere is nobody's history


async def test_a_question_waits_for_the_reply_of_another_window(windows, server):
    one, other, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    waits = heard(other, HeadAwaited)
    question = asyncio.create_task(other.turns.send(id, Question("third")))
    await until(other, lambda: bool(waits))
    assert other.conversations.awaits_reply(id) and not question.done()
    assert len(slow.began) == 1
    slow.go.set()
    await question
    await other.conversations.wait(id)
    assert not other.conversations.awaits_reply(id)
    assert history(server.chats[-1]) == ["first", "Hello", "second", "half and whole", "third"]
    assert kept(one, id) == ["first", "Hello", "second", "half and whole", "third", "half and whole"]
    one.refresh()
    assert texts(one, id) == kept(one, id)


async def test_it_waits_also_where_the_reply_began_after_the_last_look(windows, server):
    """The head is read again inside the write transaction."""
    one, other, id = windows
    slow, look = Slow(), other.conversations.shared.look
    server.on_chat(slow)

    async def late(conversation, **options):
        await look(conversation, **options)
        if not slow.began:
            await streaming(one, server, id, "second", slow)
            asyncio.get_running_loop().call_later(0.05, slow.go.set)

    other.conversations.shared.look = late
    await say(other, id, "third")
    assert history(server.chats[-1]) == ["first", "Hello", "second", "half and whole", "third"]


async def test_giving_up_the_wait_sends_and_stores_nothing(windows, server):
    one, other, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    question = asyncio.create_task(other.turns.send(id, Question("third")))
    await until(other, lambda: other.conversations.awaits_reply(id))
    await other.conversations.stop(id)
    with pytest.raises(ChatError, match="not sent"):
        await question
    slow.go.set()
    await one.conversations.wait(id)
    assert kept(one, id) == ["first", "Hello", "second", "half and whole"]
    assert server.posts == 2


async def test_a_wait_is_given_up_before_it_begins(windows, server):
    one, other, id = windows
    await streaming(one, server, id, "second", Slow())
    question = asyncio.create_task(other.turns.send(id, Question("third")))
    await asyncio.sleep(0)
    assert not other.conversations.awaits_reply(id)
    await other.conversations.stop(id)
    async with asyncio.timeout(30):
        with pytest.raises(ChatError, match="not sent"):
            await question
    assert server.posts == 2


async def test_a_wait_is_given_up_before_an_act_is_begun_anew(windows, server):
    one, other, id = windows
    slow, look = Slow(), other.conversations.shared.look

    async def late(conversation):
        await look(conversation)
        if not slow.began:
            await streaming(one, server, id, "second", slow)  # so the question cannot be stored where it was to stand
            await other.conversations.stop(id)

    other.conversations.shared.look = late
    async with asyncio.timeout(30):
        with pytest.raises(ChatError, match="not sent"):
            await other.turns.send(id, Question("third"))
    assert server.posts == 2


async def test_when_the_other_kvchat_dies_its_reply_is_settled_and_the_question_goes_on(windows, server, monkeypatch):
    monkeypatch.setattr("kvchat.chat.cache.tracker.LOOK_S", 0.1)  # the request of the other one never ends
    one, other, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    await until(one, lambda: bool(one.store._db.row("SELECT 1 FROM delta")))
    question = asyncio.create_task(other.turns.send(id, Question("third")))
    await until(other, lambda: other.conversations.awaits_reply(id))
    server.on_chat(tokens("Yes."))
    owner.release(one.store.database.owner)  # as if its process had ended
    await question
    await other.conversations.wait(id)
    assert history(server.chats[-1]) == ["first", "Hello", "second", "half ", "third"]
    answer = other.conversations.get(id).path()[-3]
    assert (answer.text, answer.state) == ("half ", State.INTERRUPTED)


@pytest.mark.parametrize("act", ["delete_turn", "set_instructions", "compact"])
async def test_what_changes_the_branch_under_a_running_reply_is_refused(windows, server, act):
    one, other, id = windows
    await say(one, id, "more")
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    before = kept(one, id)
    work = {
        "delete_turn": lambda: other.branches.delete_turn(id, other.conversations.get(id).path()[1].id),
        "set_instructions": lambda: other.branches.set_instructions(id, "Be long."),
        "compact": lambda: other.compactor.compact(id),
    }[act]
    with pytest.raises(ChatError, match="Another window is answering here"):
        await work()
    assert kept(one, id) == before
    slow.go.set()
    await one.conversations.wait(id)


async def test_a_fork_of_a_running_reply_waits_for_it(windows, server):
    one, other, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    other.refresh()
    fork = await other.branches.fork(id, other.conversations.get(id).path()[-1].id)
    question = asyncio.create_task(other.turns.send(fork.id, Question("elsewhere")))
    await until(other, lambda: other.conversations.awaits_reply(fork.id))
    slow.go.set()
    await question
    await other.conversations.wait(fork.id)
    assert history(server.chats[-1]) == ["first", "Hello", "second", "half and whole", "elsewhere"]


async def test_a_fork_of_ones_own_running_reply_waits_for_it_too(windows, server):
    one, _, id = windows
    slow = Slow()
    await streaming(one, server, id, "second", slow)
    fork = await one.branches.fork(id, one.conversations.get(id).path()[-1].id)
    question = asyncio.create_task(one.turns.send(fork.id, Question("elsewhere")))
    await until(one, lambda: one.conversations.awaits_reply(fork.id))
    slow.go.set()
    await question
    await one.conversations.wait(fork.id)
    assert history(server.chats[-1]) == ["first", "Hello", "second", "half and whole", "elsewhere"]


async def test_questions_of_six_windows_at_once_end_in_one_line_of_turns(make, server):
    server.on_chat(tokens("Yes."))
    windows = [make(server.url) for _ in range(6)]
    id = (await windows[0].new_conversations.create("Be brief.")).id
    await say(windows[0], id, "first")
    for window in windows:
        await window.conversations.open(id)
    await asyncio.gather(*(say(window, id, f"q{number}") for number, window in enumerate(windows)))
    line = kept(windows[0], id)
    assert len(line) == 14 and sorted(line[2::2]) == [f"q{number}" for number in range(6)]
    assert all("" not in history(visit) for visit in server.chats)
    sent = [history(visit) for visit in server.chats]
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(sent))
    assert windows[0].store.conversation(id).turns == 7


# -- each window stays where it is


async def test_an_idle_window_at_the_end_follows(windows, server):
    one, other, id = windows
    told = heard(one, WrittenElsewhere)
    await say(other, id, "second")
    one.refresh()
    assert texts(one, id) == ["first", "Hello", "second", "Hello"]
    assert told == [WrittenElsewhere(id, followed=True)]
    one.refresh()
    assert len(told) == 1


async def test_a_question_in_a_window_that_has_not_looked_goes_behind_the_others(windows, server):
    one, other, id = windows
    await say(other, id, "second")
    await say(one, id, "third")
    assert history(server.chats[-1]) == ["first", "Hello", "second", "Hello", "third"]
    assert texts(one, id) == kept(one, id)


@pytest.mark.parametrize("act", ["edit", "regenerate", "delete_turn", "undo"])
async def test_a_window_stays_where_it_is_when_another_one_goes_elsewhere(windows, server, act):
    one, other, id = windows
    await say(one, id, "second")
    other.refresh()
    shown, told = texts(one, id), heard(one, WrittenElsewhere)
    question = other.conversations.get(id).path()[1].id
    match act:
        case "edit":
            await other.turns.edit(id, question, "instead")
        case "regenerate":
            server.on_chat(tokens("Other."))
            await other.turns.regenerate(id, other.conversations.get(id).path()[-1].id)
        case "delete_turn":
            await other.branches.delete_turn(id, question)
        case "undo":
            await other.turns.edit(id, question, "instead")
            await other.conversations.wait(id)
            one.refresh()
            assert await other.branches.undo(id)
    await other.conversations.wait(id)
    one.refresh()
    assert texts(one, id) == shown
    assert told == [WrittenElsewhere(id, followed=False)]
    tree = one.conversations.loaded[id].tree
    assert all(node.id in tree for node in other.conversations.loaded[id].tree), "it can go there"
    server.on_chat(tokens("Yes."))
    await say(one, id, "third")
    assert history(server.chats[-1]) == [*shown, "third"], "its next question belongs to what it shows"
    assert texts(other, id) != texts(one, id)
    other.refresh()


async def test_both_windows_go_on_on_their_own_branches(windows, server):
    one, other, id = windows
    await other.turns.edit(id, other.conversations.get(id).path()[1].id, "instead")
    await other.conversations.wait(id)
    for number in range(2):
        one.refresh()
        await say(one, id, f"one {number}")
        other.refresh()
        await say(other, id, f"other {number}")
    assert texts(one, id) == ["first", "Hello", "one 0", "Hello", "one 1", "Hello"]
    assert texts(other, id) == ["instead", "Hello", "other 0", "Hello", "other 1", "Hello"]
    assert one.store.conversation(id).turns == 6


async def test_a_turn_deleted_behind_what_another_window_added_keeps_what_that_added(windows, server):
    one, other, id = windows
    await say(one, id, "second")
    await one.branches.delete_turn(id, one.conversations.get(id).path()[1].id)
    other.refresh()
    await other.branches.select(id, one.conversations.get(id).path()[-1].id)
    server.on_chat(tokens("Yes."))
    await say(other, id, "third")
    await one.branches.delete_turn(id, one.conversations.get(id).path()[1].id)
    assert texts(one, id) == kept(one, id) == ["third", "Yes."]


async def test_a_turn_that_another_window_adds_during_a_compaction_stays_as_it_is(windows, server):
    one, other, id = windows
    for text in ("second", "third"):
        await say(one, id, text)
    slow = Slow("It was about ", "bees.")
    server.on_chat(slow)
    compacting = asyncio.create_task(one.compactor.compact(id))
    await until(one, lambda: one.compactor.running is not None and bool(one.compactor.running.live.text))
    server.on_chat(tokens("Yes."))
    await say(other, id, "meanwhile")
    slow.go.set()
    assert await compacting is not None
    assert texts(one, id) == kept(one, id) == ["second", "Hello", "third", "Hello", "meanwhile", "Yes."]
    (summary,) = [block for block in one.conversations.get(id).path()[1].message.blocks if block.kind == SUMMARY]
    assert summary.text == "It was about bees."
    await say(one, id, "fourth")
    assert server.chats[-1].json["messages"][-1]["content"].endswith("fourth")


async def test_a_compaction_waits_for_the_reply_of_another_window(windows, server):
    one, other, id = windows
    await say(one, id, "second")
    summary, slow = Slow("It was about ", "bees."), Slow()
    server.on_chat(summary)
    compacting = asyncio.create_task(one.compactor.compact(id))
    await until(one, lambda: one.compactor.running is not None and bool(one.compactor.running.live.text))
    await streaming(other, server, id, "meanwhile", slow)
    waits = heard(one, HeadAwaited)
    summary.go.set()
    await until(one, lambda: bool(waits))
    assert kept(one, id)[-2:] == ["meanwhile", ""]
    slow.go.set()
    await compacting
    assert texts(one, id) == kept(one, id) == ["second", "Hello", "meanwhile", "half and whole"]


async def test_a_compaction_that_was_stopped_waits_for_no_reply(windows, server):
    one, other, id = windows
    await say(one, id, "second")
    summary, look, stops = Slow("It was about ", "bees."), one.conversations.shared.look, []
    server.on_chat(summary)
    compacting = asyncio.create_task(one.compactor.compact(id))
    await until(one, lambda: one.compactor.running is not None and bool(one.compactor.running.live.text))
    await streaming(other, server, id, "meanwhile", Slow())

    async def late(conversation):
        stops.append(asyncio.create_task(one.conversations.stop(id)))
        return await look(conversation)

    one.conversations.shared.look = late
    summary.go.set()
    async with asyncio.timeout(30):
        assert await compacting is None
        await asyncio.gather(*stops)
    assert kept(one, id)[-2:] == ["meanwhile", ""]


async def test_two_windows_do_not_share_an_empty_conversation(make, server):
    one, other = make(server.url), make(server.url)
    first, second = await one.new_conversations.create("Be brief."), await other.new_conversations.create("Be brief.")
    assert first.id != second.id
    assert (await one.new_conversations.create("Be brief.")).id == first.id
    await one.aclose()
    third = make(server.url)
    again = await third.new_conversations.create("Be brief.")
    assert again.id == first.id, "what an ended one left empty is used again"


async def test_what_is_looked_at_here_is_not_marked_unread_by_the_other_one(windows, server):
    one, other, id = windows
    await one.conversations.open(id)
    slow = Slow()
    await streaming(other, server, id, "second", slow)
    await other.conversations.open((await other.new_conversations.create("Else.", reuse=False)).id)
    slow.go.set()
    await other.conversations.wait(id)
    one.refresh()
    await until(one, lambda: not one.store.conversation(id).unread)


async def test_what_could_not_be_written_stays_while_the_other_one_writes(windows, server, monkeypatch):
    """The disk refuses one window; what it says is kept in memory, and lands beside what the other one wrote."""
    from kvchat.store import StoreUnavailable

    one, other, id = windows
    real, lost = Store.add, one.store

    def add(self, *args, **options):
        if self is lost:
            raise StoreUnavailable(StoreProblem.DISK_FULL, where="kvchat.db")
        return real(self, *args, **options)

    monkeypatch.setattr(Store, "add", add)
    server.on_chat(tokens("Yes."))
    await say(one, id, "unsaved")
    await say(other, id, "saved")
    one.refresh()
    assert texts(one, id) == ["first", "Hello", "unsaved", "Yes."]
    monkeypatch.setattr(Store, "add", real)
    await one.writer.flush()
    one.refresh()
    found = one.store.tree(id)
    assert {node.text for node in found if node.role is Role.USER} == {"first", "unsaved", "saved"}
    assert one.store.conversation(id).turns == 3
    assert replace(one.conversations.get(id).record, head=None) == replace(one.store.conversation(id), head=None)
