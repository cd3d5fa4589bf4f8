"""A conversation keeps the server and the model that answered it, whatever is found, listed or named later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from kvchat.backends.dialect import HostClass
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.server.servers import LAST_SERVER
from kvchat.chat.service import ChatService
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.prompt.message import Node, State
from toyserver import ToyServer, error, reply, tokens

Maker = Callable[..., ChatService]


def lists(server: ToyServer, *models: str) -> None:
    """The server lists these models from now on."""
    data = [{"id": model, "object": "model"} for model in models]
    server.on("/v1/models", reply(200, json.dumps({"object": "list", "data": data}).encode()))


async def say(service: ChatService, id: str, text: str = "Hi") -> Node:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    return service.conversations.load(id).path()[-1]


async def begun(service: ChatService, server: str = "", model: str = "") -> str:
    id = (await service.new_conversations.create(reuse=False)).id
    if server:
        await service.chooser.use(id, server, model)
    return id


def asked(server: ToyServer) -> list[str]:
    return [visit.json["model"] for visit in server.chats]


async def test_the_model_that_answered_is_asked_for_again_whatever_order_the_list_has(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta")
        one, two = make(server.url), make(server.url, model="beta")
        ids = [await begun(one), await begun(two)]
        for service, id in zip((one, two), ids, strict=True):
            await say(service, id)
        lists(server, "gamma", "beta", "alpha")
        for id in ids:
            await say(make(server.url), id, "Again")
        assert asked(server) == ["alpha", "beta", "alpha", "beta"]


async def test_a_model_that_is_gone_is_said_before_anything_is_stored_or_sent(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta")
        id = await begun(service := make(server.url))
        await say(service, id)
        lists(server, "beta", "gamma")
        again = make(server.url)
        await again.servers.connect(id)
        with pytest.raises(ChatError, match=r"no model alpha.*beta, gamma"):
            await again.turns.send(id, Question("Again"))
        with pytest.raises(ChatError, match="no model alpha"):
            await again.servers.reach(id)
        assert again.conversations.load(id).record.turns == 1 and asked(server) == ["alpha"]
        await again.options.set_model(id, "gamma")
        assert (await say(again, id, "Again")).state is State.DONE
        await say(make(server.url), id, "And now")
        assert asked(server) == ["alpha", "gamma", "gamma"]


async def test_a_question_that_is_quicker_than_the_list_of_models_is_not_sent_either(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha")
        id = await begun(service := make(server.url))
        await say(service, id)
        lists(server, "beta")
        assert (await say(make(server.url), id, "Again")).state is State.ERROR and server.posts == 1


async def test_a_file_that_llama_server_was_started_with_from_another_folder_is_the_same_model(make: Maker) -> None:
    async with ToyServer(model="models/tiny.gguf") as server:
        id = await begun(service := make(server.url))
        await say(service, id)
    async with ToyServer(model="/srv/models/tiny.gguf") as server:
        service = make("")
        await service.chooser.use(id, server.url, "models/tiny.gguf")
        assert (await say(service, id)).state is State.DONE and asked(server) == ["/srv/models/tiny.gguf"]


async def test_a_first_answer_that_failed_fixes_no_model_and_one_that_was_stopped_does(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta")
        service = make(server.url, model="beta")
        failed, stopped = await begun(service), await begun(service)
        server.on_chat(error(500, "no"), tokens("Once", "upon", delay=60))
        assert (await say(service, failed)).state is State.ERROR
        await service.turns.send(stopped, Question("Hi"))
        async with asyncio.timeout(20):
            while not (live := service.conversations.load(stopped).live) or not live.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await service.conversations.stop(stopped)
        await service.core.rest()
        assert [service.conversations.load(id).record.model for id in (failed, stopped)] == ["", "beta"]


async def test_a_model_named_for_this_run_is_asked_for_and_stays(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta", "gamma")
        id = await begun(service := make(server.url))
        await say(service, id)
        await say(make(server.url, model="beta"), id)
        await say(make(server.url), id)
        run = make(server.url, model="beta")
        await run.options.set_model(id, "gamma")  # chosen behind the command line
        await say(run, id)
        assert asked(server) == ["alpha", "beta", "beta", "gamma"]


async def test_a_model_named_for_this_run_is_asked_of_a_server_chosen_before(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta")
        first = make("")
        await first.chooser.use(await begun(first), server.url)
        run = make("", model="beta")
        await say(run, await begun(run))
        assert asked(server) == ["beta"]


async def test_the_server_that_answered_is_kept_when_the_settings_name_another(make: Maker) -> None:
    async with ToyServer(model="a") as a, ToyServer(model="b") as b:
        id = await begun(service := make(a.url))
        await say(service, id)
        await say(make(b.url), id)
        await say(make(""), id)
        assert (a.posts, b.posts) == (3, 0)


async def test_a_server_named_for_a_run_is_kept_and_the_next_run_begins_there(make: Maker) -> None:
    async with ToyServer(model="a") as a, ToyServer(model="b") as b:
        id = await begun(service := make(a.url, one_server=True))
        await say(service, id)
        again = make("")
        await say(again, id)
        await say(again, await begun(again))
        assert a.posts == 3
        await say(make(b.url, one_server=True), id)  # it goes on there by the user's word
        await say(make(""), id)
        assert (a.posts, b.posts) == (3, 2)


async def test_a_run_that_only_looked_at_the_server_it_was_given_remembers_it(make: Maker) -> None:
    async with ToyServer() as server:
        service = make(server.url, one_server=True)
        await service.servers.connect()
        await service.core.rest()
        assert service.store.setting(LAST_SERVER) == server.url
        assert make("").servers.first() == server.url


async def test_a_server_that_another_run_was_given_is_not_where_this_one_begins(make: Maker) -> None:
    """`kvchat ask --base-url` beside the open app: its next conversation went to that server, without a word."""
    async with ToyServer() as a, ToyServer() as b:
        app = make("")
        await say(app, await begun(app, a.url))
        beside = make(b.url, one_server=True)
        await say(beside, await begun(beside))
        await beside.core.rest()
        assert app.servers.first() == a.url
        await say(app, await begun(app))
        assert (a.posts, b.posts) == (2, 1)
        assert make("").servers.first() == b.url, "the next start does"


async def test_two_conversations_on_one_server_keep_their_models_and_a_fork_has_its_own(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta")
        service = make(server.url)
        one, two = await begun(service), await begun(service)
        await service.options.set_model(two, "beta")
        for id in (one, two):
            await say(service, id)
        fork = await service.branches.fork(two, service.conversations.load(two).record.head or "")
        assert [service.servers.asked_model(id) for id in (one, two, fork.id)] == ["alpha", "beta", "beta"]
        lists(server, "beta", "alpha")
        again = make(server.url)
        for id in (one, two, fork.id):
            await say(again, id)
        assert asked(server) == ["alpha", "beta", "alpha", "beta", "beta"]


async def test_a_fork_goes_where_its_conversation_was_moved_in_this_run(make: Maker) -> None:
    async with ToyServer(model="a") as a, ToyServer(model="b") as b:
        service = make(a.url, one_server=True)
        id = await begun(service, b.url)
        await say(service, id)
        fork = await service.branches.fork(id, service.conversations.load(id).record.head or "")
        await say(service, fork.id)
        assert (a.posts, b.posts) == (0, 2)


async def test_a_model_chosen_in_another_window_stands_though_an_answer_of_the_old_one_runs(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta")
        one, two = make(server.url), make(server.url)
        id = await begun(one)
        server.on_chat(tokens("a", "b", delay=0.2))
        await one.turns.send(id, Question("Hi"))
        await server.until(lambda: server.posts == 1)
        await two.options.set_model(id, "beta")
        await one.conversations.wait(id)
        assert one.store.conversation(id).model == "beta"


async def test_of_answers_of_several_models_the_chosen_ones_goes_on(make: Maker) -> None:
    async with ToyServer("openai") as server:
        lists(server, "alpha", "beta", "gamma")
        service = make(server.url)
        id = await begun(service)
        server.on_chat(tokens("a", model="beta"), tokens("b", model="gamma"))
        await service.turns.ask_for(id, AlternativesRequest(2, ("beta", "gamma")), Question("Hi"))
        await service.conversations.wait(id)
        await service.turns.choose(id, service.turns.choices(id)[1].id)
        await say(service, id)
        assert asked(server) == ["beta", "gamma", "gamma"]


async def test_without_a_question_words_go_to_a_server_elsewhere_only_where_it_was_named(make: Maker) -> None:
    async with ToyServer() as server:
        service = make(server.url)
        answered, other = await begun(service), await begun(service)
        await say(service, answered)
        info = replace(await service.servers.reach(answered), host_class=HostClass.CLOUD)
        consent = service.servers.consent
        consent.take_named("")
        assert consent.agreed_to(info, answered) and not consent.agreed_to(info, other) and not consent.agreed_to(info)
        moved = replace(info, base_url="https://api.example.com")
        assert not consent.agreed_to(moved, answered)
        consent.take_named("https://api.example.com/v1")
        assert consent.agreed_to(moved, answered) and not consent.agreed_to(info, other)
