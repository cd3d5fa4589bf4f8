"""A summary written at rest: a suffix, never during an answer, taken without a request, of no use on another branch."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from remembering_kit import passed_over, remembering, said, until

from engine_fixture import running_server
from kvchat.chat.background import summaries as at_rest
from kvchat.chat.background.jobs import SUMMARY
from kvchat.chat.compactor import OFFERED
from kvchat.chat.events import SummaryPrepared
from kvchat.chat.question import Question
from kvchat.config import Settings, changed
from kvchat.prompt.message import Role, State
from kvchat.store.jobs import JobState
from recorder import recording
from toyserver import ToyServer, tokens

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
from forked import fork

ON = changed(Settings(), "cache.summary_at_rest", True)
TURN = 750
WORDS = "They counted nights."


@pytest.fixture(autouse=True)
def on_mains(monkeypatch):
    monkeypatch.setattr(at_rest, "on_battery", lambda: False)


def asks_for_a_summary(visit):
    return visit.is_chat and b"Summarise our conversation" in visit.body


class Model:
    """Turns that fill the window by TURN tokens each; summaries wait for `go` where it is held."""

    def __init__(self, summary=WORDS, *, held=False, turn=TURN):
        self.summary, self.go, self.turn = summary, asyncio.Event(), turn
        self.closed = self.turns = self.used = 0
        if not held:
            self.go.set()

    async def __call__(self, visit):
        if not asks_for_a_summary(visit):
            self.turns += 1
            before, self.used = self.used, self.used + self.turn
            await tokens(f"answer {self.turns}", prompt=60 + self.used, cached=max(0, before - 10))(visit)
            return
        gone, go = asyncio.create_task(visit.gone.wait()), asyncio.create_task(self.go.wait())
        await asyncio.wait({gone, go}, return_when=asyncio.FIRST_COMPLETED)
        self.closed += visit.gone.is_set()
        gone.cancel()
        go.cancel()
        if not visit.gone.is_set():
            await tokens(self.summary, prompt=60 + self.used)(visit)


def texts(conversation):
    return [n.text for n in conversation.path() if n.role is not Role.SYSTEM]


def summaries(server):
    return [visit for visit in server.visits if asks_for_a_summary(visit)]


async def full(service, turns=4):
    """A conversation with a window over 70 % full."""
    conversation = await service.new_conversations.create("Be brief.", reuse=False)
    for number in range(turns):
        await said(service, conversation.id, f"question {number}")
    return conversation


def here(server, folder, settings=ON, **options):
    return remembering(server.url, folder, settings=settings, enabled=False, **options)


async def test_without_the_setting_nothing_is_asked_and_it_is_offered_once(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path, Settings()) as service:
        server.on_chat(Model())
        conversation = await full(service)
        await passed_over(service)
        assert not summaries(server) and service.jobs.all() == []
        assert service.compactor.offers_rest(conversation)
        await until(service, lambda: service.core.setting(OFFERED))
        assert not service.compactor.offers_rest(conversation)


async def test_it_is_one_suffix_asked_from_70_percent_on_and_taken_without_a_request(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        prepared = []
        service.events.subscribe(lambda event: prepared.append(event) if isinstance(event, SummaryPrepared) else None)
        server.on_chat(Model())
        conversation = await full(service, 3)
        await passed_over(service)
        assert not summaries(server), "the window had room"
        await said(service, conversation.id, "question 3")
        await until(service, lambda: service.compactor.ready_summary(conversation))
        await passed_over(service)
        [asked] = summaries(server)
        sent = next(visit for visit in reversed(server.visits) if visit.is_chat and visit is not asked).json["messages"]
        assert asked.json["messages"][:-2] == sent and asked.json["messages"][-2]["role"] == "assistant"
        assert prepared == [SummaryPrepared(conversation.id)]
        price, posts, head = service.compactor.price(conversation.id), server.posts, conversation.record.head
        assert price.summary_seconds == 0 and price.plan.after < price.plan.before
        assert texts(conversation)[0] == "question 0", "nothing changed by itself"
        done = await service.compactor.compact(conversation.id)
        assert server.posts == posts and done.after == price.plan.after == conversation.context_used
        assert conversation.path()[1].message.blocks[0].text == WORDS
        assert conversation.record.head != head and head in conversation.tree
        assert service.compactor.ready_summary(conversation) is None
        assert [row.outcome for row in service.store.side_requests.all(kind=SUMMARY)] == ["done"]
        assert await service.branches.undo(conversation.id) and conversation.record.head == head


async def test_turns_that_came_since_stay_as_they_are(tmp_path):
    model = Model()
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: service.compactor.ready_summary(conversation))
        model.turn = 100
        kept = service.compactor.price(conversation.id).plan.keep
        await said(service, conversation.id, "question 4")
        await passed_over(service)
        assert len(summaries(server)) == 1, "100 tokens are no reason to write it again"
        plan = service.compactor.price(conversation.id).plan
        assert plan.keep == kept + 1 and plan.turns == 5
        await service.compactor.compact(conversation.id)
        assert texts(conversation)[-2:] == ["question 4", "answer 5"] and len(texts(conversation)) == 2 * (kept + 1)


async def test_it_is_written_again_over_turns_that_take_a_tenth_of_the_window(tmp_path):
    model = Model()
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: service.compactor.ready_summary(conversation))
        model.turn, model.summary = 500, "They counted more nights."
        await said(service, conversation.id, "question 4")
        await until(service, lambda: service.compactor.ready_summary(conversation).text == model.summary)
        assert summaries(server)[-1].json["messages"][-3]["content"].endswith("question 4")


async def test_any_key_ends_it_before_the_next_request_and_it_is_written_at_the_next_rest(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: summaries(server))
        for _ in range(3):
            service.jobs.typed()
        await until(service, lambda: model.closed == 1)
        [job] = service.jobs.all()
        assert (job.kind, job.attempts) == (SUMMARY, 0)
        assert service.compactor.ready_summary(conversation) is None
        model.go.set()
        service.jobs.typed_at = 0.0
        await until(service, lambda: service.compactor.ready_summary(conversation))


async def test_a_question_ends_it(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(model)
        conversation = await full(service)
        await until(service, lambda: summaries(server))
        await service.turns.send(conversation.id, Question("question 4"))
        await service.conversations.wait(conversation.id)
        assert model.closed == 1
        order = [asks_for_a_summary(visit) for visit in server.visits if visit.is_chat]
        assert order[:6] == [False] * 4 + [True, False]


async def test_it_never_begins_on_battery_during_an_answer_nor_while_the_user_types(tmp_path, monkeypatch):
    monkeypatch.setattr(at_rest, "on_battery", lambda: True)
    async with ToyServer(slots=2) as server, here(server, tmp_path, typing_s=3600.0) as service:
        server.on_chat(Model())
        await full(service)
        await until(service, service.jobs.all)
        await passed_over(service)
        assert not summaries(server), "it was asked on battery"
        monkeypatch.setattr(at_rest, "on_battery", lambda: False)
        service.jobs.typed()
        await passed_over(service)
        assert not summaries(server), "it was asked while the user was typing"


async def test_on_another_branch_it_is_of_no_use(tmp_path):
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(Model())
        conversation = await full(service)
        await until(service, lambda: service.compactor.ready_summary(conversation))
        path = conversation.path()
        await service.branches.delete_turn(conversation.id, path[-2].id)
        assert service.compactor.ready_summary(conversation) is None
        posts = server.posts
        await service.compactor.compact(conversation.id)
        assert server.posts == posts + 1


async def test_an_answer_without_a_summary_waits_for_the_user_after_three_tries(tmp_path, monkeypatch):
    monkeypatch.setattr("kvchat.chat.background.jobs.BACK_OFF_S", 0.0)
    async with ToyServer(slots=2) as server, here(server, tmp_path) as service:
        server.on_chat(Model("<think>hm"))
        conversation = await full(service)
        await until(service, lambda: [job.state for job in service.jobs.all()] == [JobState.PAUSED])
        assert len(summaries(server)) == 3 and service.compactor.ready_summary(conversation) is None
        server.on_chat(Model())
        await service.jobs.retry(SUMMARY, conversation.id)
        await until(service, lambda: service.compactor.ready_summary(conversation))


async def test_an_open_conversation_gets_one_after_a_restart_too(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(Model())
        async with here(server, tmp_path, Settings()) as service:
            id = (await full(service)).id
        async with here(server, tmp_path) as service:
            await service.conversations.open(id)
            await until(service, lambda: service.compactor.ready_summary(service.conversations.load(id)))
        assert len(summaries(server)) == 1


@pytest.mark.engine
async def test_on_a_real_server_the_turns_after_it_evaluate_what_they_would_without(tmp_path):
    async def run(folder, settings):
        with running_server(slots=1, context=2048, cache_ram=0) as server:
            async with (
                recording(server.base_url) as recorder,
                remembering(
                    recorder.base_url, folder, settings=settings, enabled=False, max_tokens=12, reads_ahead=True
                ) as service,
            ):
                conversation = await service.new_conversations.create()
                number = 0
                while (service.servers.window_share(conversation) or 0) < 0.7:
                    number += 1
                    words = f"we sailed {number + 3} miles and saw {number + 7} birds. " * 7
                    await said(service, conversation.id, f"Day {number}: {words}")
                if settings is ON:
                    await until(service, lambda: service.compactor.ready_summary(conversation))
                await said(service, conversation.id, "How many birds did we see?")
                after = conversation.path()[-1]
                if settings is ON:
                    done = await service.compactor.compact(conversation.id)
                    assert done.after < 0.7 * done.before
                return recorder.requests, after

    requests, after = await run(tmp_path / "with", ON)
    _, without = await run(tmp_path / "without", Settings())
    [request] = [one for one in requests if one.is_whole and "Summarise our" in one.body["messages"][-1]["content"]]
    assert request.figures["prompt_n"] < 200 and request.figures["cache_n"] > 400
    assert after.state in (State.DONE, State.LENGTH)
    assert after.figures.evaluated_tokens <= without.figures.evaluated_tokens + 2


@pytest.mark.process
def test_killed_at_any_moment_nothing_is_lost_and_nothing_put_in_place(tmp_path):
    """From the request to the summary that is ready."""

    async def living(folder, say):
        model = Model(held=True)
        async with ToyServer(slots=2) as server, here(server, folder) as service:
            server.on_chat(model)
            conversation = await full(service)
            await until(service, lambda: summaries(server))
            say(conversation.id)
            model.go.set()
            await until(service, lambda: service.compactor.ready_summary(conversation))
            await asyncio.sleep(60)

    async def left(folder, id):
        async with ToyServer(slots=2) as server, here(server, folder, Settings()) as service:
            return texts(await service.conversations.open(id))

    for kill in range(20):
        folder = tmp_path / str(kill)
        folder.mkdir()
        child = fork(lambda say, folder=folder: asyncio.run(living(folder, say)))
        id = child.said.readline().decode().strip()
        time.sleep(0.004 * kill)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.said.close()
        expected = [text for turn in range(4) for text in (f"question {turn}", f"answer {turn + 1}")]
        assert asyncio.run(left(folder, id)) == expected
