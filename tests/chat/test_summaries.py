"""A summary written at rest: a suffix, never beside an answer, taken without a wait, of no use when the head moved."""

from __future__ import annotations

import asyncio

import pytest
from remembering_kit import passed_over, remembering, said, until

from engine_fixture import running_server
from kvchat.chat.background.summaries import SUMMARY
from kvchat.chat.question import Question
from kvchat.config import Settings, changed
from kvchat.prompt.message import Role, State
from kvchat.store.jobs import JobState
from recorder import recording
from toyserver import ToyServer, tokens

ON = changed(changed(Settings(), "cache.summary_at_rest", True), "cache.compact_at", 30)
BY_ITSELF = changed(ON, "cache.compact_at_rest", True)
TURN = 300
WORDS = "They counted nights."


def asks_for_a_summary(visit):
    return visit.is_chat and b"Summarise our conversation" in visit.body


class Model:
    """Turns that fill the window by TURN tokens each; summaries wait for `go` where it is given."""

    def __init__(self, summary=WORDS, *, held=False):
        self.summary, self.go = [summary], asyncio.Event()
        self.closed = self.turns = 0
        if not held:
            self.go.set()

    async def __call__(self, visit):
        if not asks_for_a_summary(visit):
            self.turns += 1
            await tokens(f"answer {self.turns}", prompt=60 + TURN * self.turns, cached=max(0, TURN * self.turns - 241))(
                visit
            )
            return
        gone, go = asyncio.create_task(visit.gone.wait()), asyncio.create_task(self.go.wait())
        await asyncio.wait({gone, go}, return_when=asyncio.FIRST_COMPLETED)
        self.closed += visit.gone.is_set()
        gone.cancel()
        go.cancel()
        if not visit.gone.is_set():
            await tokens(*self.summary, prompt=60 + TURN * (self.turns + 1))(visit)


def texts(conversation):
    return [n.text for n in conversation.path() if n.role is not Role.SYSTEM]


def summaries(server):
    return [visit for visit in server.visits if asks_for_a_summary(visit)]


async def full(service, turns=4):
    """A conversation with a window fuller than the setting says."""
    conversation = await service.new_conversations.create("Be brief.", reuse=False)
    for number in range(turns):
        await said(service, conversation.id, f"question {number}")
    return conversation


def here(server, folder, settings=ON, **options):
    return remembering(server.url, folder, settings=settings, enabled=False, **options)


async def test_without_the_setting_nothing_is_asked(tmp_path):
    async with (
        ToyServer(slots=2) as server,
        here(server, tmp_path, changed(Settings(), "cache.compact_at", 30)) as service,
    ):
        server.on_chat(Model())
        conversation = await full(service)
        assert service.servers.is_nearly_full(conversation)
        await passed_over(service)
        assert not summaries(server) and service.jobs.all() == []


async def test_it_is_one_suffix_asked_once_the_window_is_full_and_taken_without_a_request(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(Model())
        conversation = await full(service, 3)
        await passed_over(service)
        assert not summaries(server), "the window had room"
        await said(service, conversation.id, "question 3")
        await until(service, lambda: service.compactor.ready(conversation))
        await passed_over(service)
        [asked] = summaries(server)
        sent = next(visit for visit in reversed(server.visits) if visit.is_chat and visit is not asked).json["messages"]
        assert asked.json["messages"][:-2] == sent and asked.json["messages"][-2]["role"] == "assistant"
        price, posts, head = service.compactor.price(conversation.id), server.posts, conversation.record.head
        assert price.summary_seconds == 0 and price.ready < price.plan.before
        assert texts(conversation)[0] == "question 0", "nothing changed by itself"
        done = await service.compactor.compact(conversation.id)
        assert server.posts == posts and done.after == price.ready == conversation.context_used
        assert conversation.path()[1].message.blocks[0].text == WORDS
        assert conversation.record.head != head and head in conversation.tree
        assert service.compactor.ready(conversation) is None and not service.servers.is_nearly_full(conversation)
        assert [row.outcome for row in service.store.side_requests.all(kind=SUMMARY)] == ["done"]
        assert await service.branches.undo(conversation.id) and conversation.record.head == head


async def test_a_question_ends_it_and_it_is_made_anew_for_the_new_head(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: summaries(server))
        await service.turns.send(conversation.id, Question("question 4"))
        await service.conversations.wait(conversation.id)
        assert model.closed == 1, "it was not closed before the question went out"
        order = [asks_for_a_summary(visit) for visit in server.visits if visit.is_chat]
        assert order[:6] == [False] * 4 + [True, False]
        model.go.set()
        await until(service, lambda: service.compactor.ready(conversation))
        assert service.compactor.ready(conversation).head == conversation.record.head
        assert summaries(server)[-1].json["messages"][-3]["content"].endswith("question 4")


async def test_it_never_begins_beside_an_answer_nor_while_the_person_types(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path, typing_s=3600.0) as service:
        server.on_chat(Model())
        service.jobs.typed()
        conversation = await full(service)
        await until(service, service.jobs.all)
        await passed_over(service)
        assert not summaries(server), "it was asked while the person was typing"
        server.on_chat(tokens("long", hang_after=1))
        posts = server.posts
        await service.turns.send(conversation.id, Question("At length."))
        await server.until(lambda: server.posts == posts + 1)
        service.jobs.typed_at = 0.0
        await passed_over(service)
        assert not summaries(server), "it was asked beside an answer"
        server.on_chat(Model())
        await service.conversations.stop(conversation.id)


async def test_when_the_head_has_moved_it_is_of_no_use_and_is_asked_for_by_the_person(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(Model())
        conversation = await full(service)
        await until(service, lambda: service.compactor.ready(conversation))
        path = conversation.path()
        await service.branches.select(conversation.id, path[-1].id)
        assert service.compactor.ready(conversation), "it is still the same branch"
        await service.branches.delete_turn(conversation.id, path[-2].id)
        assert service.compactor.ready(conversation) is None
        assert service.compactor.price(conversation.id).ready is None
        posts = server.posts
        await service.compactor.compact(conversation.id)
        assert server.posts == posts + 1


async def test_with_the_second_setting_it_compacts_by_itself_at_rest(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path, BY_ITSELF) as service:
        model = Model()
        server.on_chat(model)
        notices = []
        service.events.subscribe(lambda event: notices.append(getattr(event, "text", "")))
        conversation = await full(service)
        await until(service, lambda: texts(conversation)[0] != "question 0" and not service.jobs.at_work())
        assert len(summaries(server)) == 1 and conversation.path()[1].message.blocks[0].text == WORDS
        [told] = [text for text in notices if text.startswith("Compacted")]
        assert told == (f"Compacted: 1,261 → {conversation.context_used} tokens · /tree has the old version")
        model.turns = 0
        await said(service, conversation.id, "on")
        await passed_over(service)
        assert len(summaries(server)) == 1 and WORDS in server.chats[-1].json["messages"][1]["content"]


async def test_it_does_not_compact_by_itself_where_that_makes_too_little_room(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, here(server, tmp_path, BY_ITSELF) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: summaries(server), seconds=60)
        replaced = service.compactor.price(conversation.id).plan.replaced
        model.summary = ["night "] * (replaced - 5)
        model.go.set()
        await until(service, lambda: service.compactor.ready(conversation), seconds=60)
        await passed_over(service)
        assert service.compactor.ready(conversation) and len(texts(conversation)) == 8, "it would compact every turn"


async def test_an_answer_without_a_summary_waits_for_the_person_after_three_tries(tmp_path, monkeypatch):
    monkeypatch.setattr("kvchat.chat.background.jobs.BACK_OFF_S", 0.0)
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(Model("<think>hm"))
        conversation = await full(service)
        await until(service, lambda: [job.state for job in service.jobs.all()] == [JobState.PAUSED])
        assert len(summaries(server)) == 3 and service.compactor.ready(conversation) is None
        server.on_chat(Model())
        await service.jobs.retry(SUMMARY, conversation.id)
        await until(service, lambda: service.compactor.ready(conversation))


async def test_an_open_conversation_is_summarised_after_a_restart_too(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(Model())
        async with here(server, tmp_path, changed(Settings(), "cache.compact_at", 30)) as service:
            id = (await full(service)).id
        async with here(server, tmp_path) as service:
            await service.conversations.open(id)
            await until(service, lambda: service.compactor.ready(service.conversations.load(id)))
        assert len(summaries(server)) == 1


async def test_deleting_the_conversation_ends_it(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: summaries(server))
        await service.conversations.delete(conversation.id)
        await until(service, lambda: model.closed == 1)
        assert service.jobs.all() == []


@pytest.mark.engine
async def test_on_a_real_server_it_costs_the_chat_nothing_and_the_new_branch_is_prefilled_at_rest(tmp_path):
    settings = changed(BY_ITSELF, "cache.compact_at", 60)
    with running_server(slots=1, context=1024, cache_ram=0) as server:
        async with (
            recording(server.base_url) as recorder,
            remembering(
                recorder.base_url, tmp_path, settings=settings, enabled=False, max_tokens=12, reads_ahead=True
            ) as service,
        ):
            conversation = await service.new_conversations.create()
            number = 0
            while not service.servers.is_nearly_full(conversation):
                number += 1
                await said(
                    service,
                    conversation.id,
                    f"Day {number}: " + f"we sailed {number + 3} miles and saw {number + 7} birds. " * 7,
                )
            before = conversation.path()[-1].figures
            await until(service, lambda: not (service.servers.is_nearly_full(conversation) or service.jobs.at_work()))
            assert service.tracker.warmth(conversation.id).to_prefill > 100, "the price of the new branch is not told"
            await until(service, lambda: service.tracker.warmth(conversation.id).to_prefill < 20)
            used = conversation.context_used
            await said(service, conversation.id, "How many birds did we see?")
            answer = conversation.path()[-1]
    [request] = [
        one for one in recorder.requests if one.is_whole and "Summarise our" in one.body["messages"][-1]["content"]
    ]
    assert answer.state in (State.DONE, State.LENGTH)
    assert request.figures["prompt_n"] < 200 and request.figures["cache_n"] > 400 and not request.beside
    assert used < 0.5 * before.context_used and abs(answer.figures.prompt_tokens - used) < 120
    assert answer.figures.evaluated_tokens < 60, "the new branch was prefilled while the person rested"
