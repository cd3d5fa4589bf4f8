"""KoboldCpp: its one cache, and prompts that lose their beginning."""

from __future__ import annotations

import asyncio

import pytest
from backend_kit import Heard, a_turn, endpoint_of

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.identify import backend_of
from kvchat.backends.kinds import KINDS, Figures
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.koboldcpp import KoboldCppStandIn
from standins.prefix import converse, rendered


async def at(server: KoboldCppStandIn) -> HttpBackend:
    backend = backend_of(KINDS["koboldcpp"])(endpoint_of(server))
    await backend.identify()
    return backend


async def test_it_is_described_with_its_real_version_and_window() -> None:
    async with KoboldCppStandIn(context_size=6144) as server:
        info = (await at(server)).info
        assert (info.kind, info.model, info.build) == ("koboldcpp", "koboldcpp/toy-8b", "1.117.1")
        assert info.context_size == 6144
        assert info.slots is None, "the one slot of its imitated properties says nothing"
        assert (info.figures, info.unknown) == (Figures.NONE, ("cached tokens", "slots"))
        assert [(model.loaded, model.context_size) for model in info.listing] == [(True, 6144)]


async def test_as_a_router_only_its_first_model_is_loaded_whatever_it_says() -> None:
    async with KoboldCppStandIn(more=("big.kcpps", "small.kcpps")) as server:
        info = (await at(server)).info
        assert [model.loaded for model in info.listing] == [True, False, False]
        assert [model.context_size for model in info.listing] == [4096, None, None]


async def test_without_a_text_model_none_is_chosen() -> None:
    async with KoboldCppStandIn(model="inactive") as server:
        info = (await at(server)).info
        assert info.model == ""
        assert [(model.loaded, model.chats) for model in info.listing] == [(False, False)]


async def test_a_version_that_tells_less_leaves_that_unknown() -> None:
    async with KoboldCppStandIn() as server:
        for path in ("/api/extra/version", "/api/extra/true_max_context_length"):
            server.get(path, "no", 404)
        backend = await at(server)
        assert (backend.info.context_size, backend.info.build) == (None, "")
        heard = Heard()
        assert (await backend.chat(a_turn(), heard)).state is State.DONE
        assert heard.reported.cached_tokens is None


async def test_the_field_that_changes_the_prompt_is_never_sent() -> None:
    async with KoboldCppStandIn() as server:
        turns = await converse(
            await at(server),
            server,
            3,
            template_options={"reasoning_effort": "low"},
            parameters=Parameters(repeat_penalty=1.1),
        )
        assert turns[0].body == (
            b'{"model":"koboldcpp/toy-8b","stream":true,"stream_options":{"include_usage":true},'
            b'"chat_template_kwargs":{"reasoning_effort":"low"},"reasoning_effort":"low","messages":['
            b'{"role":"system","content":"Be brief and kind to everybody who asks."},{"role":"user","content":"'
            + b" ".join(b"word0.%d" % place for place in range(12))
            + b'"}],"repeat_penalty":1.1}'
        )
        assert turns[0].read.prompt == len(rendered(server.chats[0].json["messages"])), "with the answer's beginning"


async def test_a_prompt_that_lost_its_beginning_is_told_with_the_numbers() -> None:
    async with KoboldCppStandIn(context_size=300, longest_answer=100) as server:
        turns = await converse(await at(server), server, 6, words=60)
        assert [turn.read.prompt for turn in turns] == [73, 142, 200, 200, 200, 200]
        assert [len(turn.ended.warnings) for turn in turns] == [0, 0, 0, 1, 1, 1], "at first too little is missing"
        assert [turn.read.cached for turn in turns[3:]] == [0, 0, 0]
        warning = note_sentence(turns[3].ended.warnings[0])
        assert warning.startswith("KoboldCpp read 200 tokens of a conversation that has about 2")
        assert warning.endswith("delete a turn, or start KoboldCpp with a larger --contextsize.")


async def test_stopping_closes_the_connection_which_ends_the_reading() -> None:
    async with KoboldCppStandIn() as server:
        backend = await at(server)
        server.holds_back = True
        task = asyncio.create_task(backend.chat(a_turn(), Heard()))
        await server.until(lambda: server.posts == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_closed()
        assert server.aborted == 1


async def test_a_busy_server_says_how_to_let_it_take_more(heard: Heard) -> None:
    async with KoboldCppStandIn() as server:
        backend = await at(server)
        server.is_busy = True
        ended = await backend.chat(a_turn(), heard)
        assert ended.error is not None
        assert ended.error.trouble is Trouble.RATE_LIMITED
        assert "takes one at a time" in note_sentence(ended.note)
        assert "--multiuser" in note_sentence(ended.note)
        assert server.posts == 1, "no request repeats by itself"


async def test_nonsense_instead_of_models_gives_a_sentence() -> None:
    async with KoboldCppStandIn() as server:
        server.get("/v1/models", {"data": 7})
        with pytest.raises(BackendError) as caught:
            await at(server)
        assert caught.value.trouble is Trouble.PROTOCOL
