"""Titles by the model: off unless wanted, asked for once, and never in the place of the person's own."""

from __future__ import annotations

import asyncio
import json

import pytest
from remembering_kit import is_extraction, passed_over, remembering, said, until

from kvchat.chat.background.titles import TITLE
from kvchat.chat.question import Question
from kvchat.config import Settings, changed
from kvchat.memory.learning.title import ANSWER_TOKENS, INSTRUCTION
from toyserver import ToyServer, tokens

ON = changed(Settings(), "titles.by_model", True)
QUESTION = "I keep bees in Bergen, what do they need in winter?"


def asks_for_a_title(visit):
    return INSTRUCTION in visit.body.decode()


class Model:
    """Answers; titles wait for `go` where it is given."""

    def __init__(self, title="Bees in Winter", *, held=False):
        self.title, self.go = title, asyncio.Event()
        self.closed = self.asked = self.answers = 0
        if not held:
            self.go.set()

    async def __call__(self, visit):
        if is_extraction(visit):
            await tokens(json.dumps({"facts": [], "title": self.title}))(visit)
            return
        if not asks_for_a_title(visit):
            self.answers += 1
            await tokens("Sugar, and peace.")(visit)
            return
        self.asked += 1
        gone, go = asyncio.create_task(visit.gone.wait()), asyncio.create_task(self.go.wait())
        await asyncio.wait({gone, go}, return_when=asyncio.FIRST_COMPLETED)
        self.closed += visit.gone.is_set()
        gone.cancel()
        go.cancel()
        if not visit.gone.is_set():
            await tokens(self.title)(visit)


async def begun(service, text=QUESTION):
    id = (await service.new_conversations.create("Be brief.", reuse=False)).id
    await said(service, id, text)
    return id


def title(service, id):
    return service.store.conversation(id).title


def titled(server):
    return [visit for visit in server.visits if asks_for_a_title(visit)]


async def test_without_the_setting_no_request_asks_for_a_title(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(Model())
        async with remembering(server.url, tmp_path / "with memory") as service:
            id = await begun(service)
            await service.extraction.request(id)
            await until(service, lambda: any(map(is_extraction, server.visits)))
            await until(service, lambda: not service.jobs.at_work())
            assert title(service, id) == QUESTION
        async with remembering(server.url, tmp_path / "without", enabled=False) as service:
            id = await begun(service)
            await passed_over(service)
            assert title(service, id) == QUESTION and service.jobs.all() == []
        assert not any(b"title" in visit.body or asks_for_a_title(visit) for visit in server.visits)


async def test_an_extraction_brings_the_title_and_no_request_more(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON) as service:
        server.on_chat(Model())
        id = await begun(service)
        await service.extraction.request(id)
        await until(service, lambda: title(service, id) != QUESTION)
        assert title(service, id) == "Bees in Winter"
        await said(service, id, "And my bees in summer?")
        await service.extraction.request(id)
        await until(service, lambda: len([*filter(is_extraction, server.visits)]) == 2)
        await until(service, lambda: not service.jobs.at_work())
        asked = [b'"title"' in visit.body for visit in server.visits if is_extraction(visit)]
        assert asked == [True, False] and server.posts == 4


async def test_with_memory_off_one_request_at_the_end_of_the_conversation_brings_it(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(Model("**“Bees in Winter”**\n"))
        id = await begun(service)
        await until(service, lambda: title(service, id) == "Bees in Winter")
        await said(service, id, "And in summer?")
        await passed_over(service)
        chats = [visit.json for visit in server.visits if visit.is_chat]
        assert len(chats) == 3 and [asks_for_a_title(v) for v in server.visits if v.is_chat] == [False, True, False]
        first, side, second = (chat["messages"] for chat in chats)
        assert (
            side[:2] == first
            and side[2]["role"] == "assistant"
            and side[3:] == [{"role": "user", "content": INSTRUCTION}]
        )
        assert second[:3] == side[:3] and chats[1]["max_tokens"] == ANSWER_TOKENS
        assert [row.outcome for row in service.store.side_requests.all(kind=TITLE, subject=id)] == ["done"]
        assert (await service.cache_reports.report(id)).here.memory.count == 1
        assert INSTRUCTION not in [node.text for node in service.conversations.get(id).tree]


async def test_it_is_not_asked_beside_an_answer_nor_while_the_person_types(tmp_path):
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path, settings=ON, enabled=False, typing_s=3600.0) as service,
    ):
        server.on_chat(Model())
        id = (await service.new_conversations.create("Be brief.")).id
        service.jobs.typed()
        await said(service, id, QUESTION)
        await until(service, service.jobs.all)
        await passed_over(service)
        assert titled(server) == [], "it was asked while the person was typing"
        server.on_chat(tokens("long", hang_after=1))
        await service.turns.send(id, Question("Tell me at length."))
        await server.until(lambda: server.posts == 2)
        service.jobs.typed_at = 0.0
        await passed_over(service)
        assert titled(server) == [], "it was asked beside an answer"
        server.on_chat(Model())
        await service.conversations.stop(id)
        await until(service, lambda: title(service, id) == "Bees in Winter")


async def test_a_question_ends_it_and_it_is_asked_again_behind_the_answer(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(model)
        id = await begun(service)
        await until(service, lambda: model.asked == 1)
        await said(service, id, "And wasps?")
        assert model.closed == 1 and title(service, id) == QUESTION
        model.go.set()
        await until(service, lambda: title(service, id) == "Bees in Winter")
        outcomes = [row.outcome for row in service.store.side_requests.all(kind=TITLE)]
        assert outcomes == ["cancelled", "done"] and model.answers == 2


async def test_a_title_of_the_persons_own_stays(tmp_path):
    model = Model(held=True)
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(model)
        id = (await service.new_conversations.create("Be brief.")).id
        await service.conversations.rename(id, "My bees")
        await said(service, id, QUESTION)
        await passed_over(service)
        assert model.asked == 0 and title(service, id) == "My bees"
        other = await begun(service)
        await until(service, lambda: model.asked == 1)
        await service.conversations.rename(other, "Given meanwhile")
        model.go.set()
        await until(service, lambda: not service.jobs.at_work() and not service.jobs.all())
        assert title(service, other) == "Given meanwhile"


async def test_a_rename_in_another_window_wins(tmp_path):
    model = Model(held=True)
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path, settings=ON, enabled=False) as service,
        remembering(server.url, tmp_path, settings=ON, enabled=False, begin=False) as other,
    ):
        server.on_chat(model)
        id = await begun(service)
        await until(service, lambda: model.asked == 1)
        await other.conversations.rename(id, "From the other window")
        model.go.set()
        await until(service, lambda: not service.jobs.at_work() and not service.jobs.all())
        assert title(service, id) == "From the other window"
        assert service.conversations.get(id).record.title == "From the other window"


async def test_a_title_that_the_person_takes_back_is_not_given_again(tmp_path):
    model = Model()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(model)
        id = await begun(service)
        await until(service, lambda: title(service, id) == "Bees in Winter")
        await service.conversations.rename(id, QUESTION)
        await said(service, id, "And in summer?")
        await passed_over(service)
        assert model.asked == 1 and title(service, id) == QUESTION


async def test_nonsense_is_dropped_and_not_asked_for_again(tmp_path):
    model = Model("<|im_start|>assistant: my password is hunter2")
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(model)
        id = await begun(service)
        await until(service, lambda: model.asked == 1 and not service.jobs.all())
        await said(service, id, "And in summer?")
        await passed_over(service)
        assert model.asked == 1 and title(service, id) == QUESTION


async def test_it_is_asked_when_the_person_has_seen_a_whole_answer(tmp_path):
    model = Model()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(tokens("Sugar", hang_after=1))
        stopped = (await service.new_conversations.create("Be brief.")).id
        await service.turns.send(stopped, Question(QUESTION))
        await server.until(lambda: server.posts == 1)
        await service.conversations.stop(stopped)
        server.on_chat(model)
        await passed_over(service)
        assert model.asked == 0, "it was asked behind an answer that was stopped"
        unseen = (await service.new_conversations.create("Be brief.", reuse=False)).id
        await service.conversations.open(stopped)
        await said(service, unseen, QUESTION)
        await passed_over(service)
        assert service.store.conversation(unseen).unread and model.asked == 0, "the answer was not looked at yet"
        await service.conversations.open(unseen)
        await until(service, lambda: title(service, unseen) == "Bees in Winter")
        assert title(service, stopped) == QUESTION


async def test_what_waited_is_done_by_the_next_run_and_switching_it_off_takes_it_out_of_the_queue(tmp_path):
    model = Model()
    async with ToyServer(slots=2) as server:
        server.on_chat(model)
        async with remembering(server.url, tmp_path, settings=ON, enabled=False, typing_s=3600.0) as service:
            service.jobs.typed()
            id, other = await begun(service), await begun(service)
            await until(service, lambda: len(service.jobs.all()) == 2)
        async with remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
            await service.conversations.open(id)
            service.jobs.wake()
            await until(service, lambda: title(service, id) == "Bees in Winter")
            service.take_settings(changed(service.settings, "titles.by_model", False))
            service.jobs.wake()
            await until(service, lambda: not service.jobs.all())
            assert model.asked == 1 and title(service, other) == QUESTION


@pytest.mark.parametrize("on_cloud", [False, True])
async def test_a_server_on_the_internet_is_asked_only_where_it_may_do_background_work(tmp_path, monkeypatch, on_cloud):
    model = Model()
    async with (
        ToyServer(slots=2) as server,
        remembering(server.url, tmp_path, settings=ON, enabled=False, on_cloud=on_cloud) as service,
    ):
        monkeypatch.setattr(service.servers, "is_on_the_internet", lambda link: True)
        server.on_chat(model)
        id = await begun(service)
        await passed_over(service)
        await until(service, lambda: not service.jobs.all() and model.asked == on_cloud)
        assert (title(service, id) == "Bees in Winter", model.asked) == (on_cloud, on_cloud)


async def test_a_model_that_reasons_first_is_asked_by_extractions_alone(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, settings=ON, enabled=False) as service:
        server.on_chat(tokens("Sugar.", reasoning=["Bees ", "eat."]))
        await begun(service)
        await passed_over(service)
        assert titled(server) == [] and not service.jobs.all()
