"""A server is of use under whatever path its interface lies, and without a list of its models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.message import Node, State
from toyserver import Answer, ToyServer, Visit, error, reply, tokens

Maker = Callable[..., ChatService]
LIST = reply(200, {"object": "list", "data": [{"id": "toy", "object": "model"}]})
NO_LISTS = {
    "404": error(404, "no"),
    "403": error(403, "models:list denied"),
    "500": error(500, "boom"),
    "501": error(501, "not implemented"),
    "a page": reply(200, b"<!DOCTYPE html><title>App</title>", content_type="text/html"),
    "another shape": reply(200, {"data": "none"}),
}


class Shaped(ToyServer):
    """A server that answers under one prefix only; `listing`: its list of models."""

    def __init__(self, prefix: str, listing: Answer) -> None:
        super().__init__("openai")
        self._prefix, self._listing = prefix, listing

    def _answer_to(self, visit: Visit) -> Answer:
        if visit.path == f"{self._prefix}/models":
            return self._listing
        if visit.method == "POST" and visit.path == f"{self._prefix}/chat/completions":
            return tokens("Hello", model="toy")
        return error(404, "Not Found")

    @property
    def asked(self) -> list[tuple[str, str]]:
        return [(visit.path, visit.json["model"]) for visit in self.visits if visit.method == "POST"]


async def say(service: ChatService, id: str, text: str = "Hi") -> Node:
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    return service.conversations.load(id).path()[-1]


@pytest.mark.parametrize("given", ["", "/", "/chat/completions", "/chat/completions/"])
@pytest.mark.parametrize("prefix", ["", "/v1", "/v3", "/api/paas/v4", "/v1beta/openai", "/llm/v1"])
async def test_an_address_with_any_path_leads_to_the_interface(make: Maker, prefix: str, given: str) -> None:
    async with Shaped(prefix, LIST) as server:
        service = make(f"{server.url}{prefix}{given}")
        id = (await service.new_conversations.create()).id
        for _ in range(2):
            assert (await say(service, id)).state is State.DONE
        again = make(f"{server.url}{prefix}{given}")
        assert (await say(again, id)).state is State.DONE
        assert server.asked == [(f"{prefix}/chat/completions", "toy")] * 3, "the shape that answered is kept"


@pytest.mark.parametrize("prefix", ["", "/v1", "/v3"])
@pytest.mark.parametrize("listing", NO_LISTS)
async def test_without_a_list_the_model_that_was_named_answers_and_is_kept(
    make: Maker, prefix: str, listing: str
) -> None:
    async with Shaped(prefix, NO_LISTS[listing]) as server:
        base = server.url + prefix.removesuffix("/v1")
        service = make(base, model="toy")
        id = (await service.new_conversations.create()).id
        assert (await say(service, id)).text == "Hello"
        again = make(base)
        assert (await say(again, id)).text == "Hello" and again.servers.asked_model(id) == "toy"
        answered = [path for path in server.asked if path[0] == f"{prefix}/chat/completions"]
        assert answered == [(f"{prefix}/chat/completions", "toy")] * 2


async def test_a_model_named_in_the_app_is_enough_where_none_was(make: Maker) -> None:
    async with Shaped("/v1", NO_LISTS["404"]) as server:
        service = make(server.url)
        id = (await service.new_conversations.create()).id
        with pytest.raises(ChatError):
            await service.servers.reach(id)
        await service.options.set_model(id, "toy")
        assert (await say(service, id)).text == "Hello" and server.asked == [("/v1/chat/completions", "toy")]


@pytest.mark.parametrize("status", [401, 502, 503, 504])
async def test_a_question_for_a_key_or_a_proxys_word_is_no_missing_list(make: Maker, status: int) -> None:
    async with Shaped("/v1", error(status, "no")) as server:
        service = make(server.url, model="toy")
        id = (await service.new_conversations.create()).id
        with pytest.raises(ChatError):
            await service.servers.reach(id)
        assert server.asked == []


async def test_a_name_that_the_first_answer_brings_is_asked_for_from_then_on(make: Maker) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(200, {"object": "list", "data": []}))
        server.on_chat(tokens("Hello", model="learned"))
        service = make(server.url)
        id = (await service.new_conversations.create()).id
        await say(service, id)
        await say(service, id)
        assert [visit.json.get("model") for visit in server.chats] == [None, "learned"]
        assert service.servers.asked_model(id) == "learned"
