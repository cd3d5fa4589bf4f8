"""Jan: its engines, the services on the internet behind it, and its look at host names."""

from __future__ import annotations

import pytest
from backend_kit import Heard, a_turn, endpoint_of

from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.dialects.rare import JanBackend
from kvchat.backends.kinds import Figures
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from standins.jan import JanStandIn
from standins.prefix import SESSION


async def at(server: JanStandIn, *, api_key: str | None = None) -> JanBackend:
    backend = JanBackend(endpoint_of(server, api_key=api_key))
    await backend.identify()
    return backend


@pytest.mark.parametrize("owner", ["llama.cpp", "user"])
async def test_its_running_models_and_those_on_its_disk_are_told_apart(owner: str) -> None:
    async with JanStandIn(owner=owner) as server:
        info = (await at(server)).info
        assert (info.kind, info.model) == ("jan", "toy-8b")
        assert [(model.id, model.loaded) for model in info.listing] == [("toy-8b", True), ("on-disk-4b", False)]
        assert info.unknown == ("context size", "slots", "version")
        assert (info.context_size, info.slots) == (None, None)
        assert (info.figures, info.takes_local_extras) == (Figures.BEFORE, True)


async def test_a_version_that_does_not_list_its_disk_is_described_by_what_runs() -> None:
    async with JanStandIn() as server:
        server.get("/v1/models/available", "Not Found", 404)
        assert (await at(server)).info.models == ("toy-8b",)


async def test_llama_cpp_behind_it_tells_what_is_cached_before_the_first_token(heard: Heard) -> None:
    async with JanStandIn() as server:
        backend = await at(server)
        for _ in range(2):
            await backend.chat(a_turn(), heard)
        prompt = server.reads[1].prompt
        assert heard.progress[-1] == (prompt, prompt - 1, prompt - 1)


async def test_a_request_to_its_llama_cpp_is_these_bytes() -> None:
    async with JanStandIn() as server:
        turn = a_turn("Hi", template_options={"enable_thinking": False})
        assert (await at(server)).body(turn) == (
            b'{"model":"toy-8b","stream":true,"cache_prompt":true,"return_progress":true,"timings_per_token":true,'
            b'"sse_ping_interval":10,"stream_options":{"include_usage":true},'
            b'"chat_template_kwargs":{"enable_thinking":false},"messages":['
            b'{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}'
        )


async def test_a_remote_model_is_sent_nothing_but_the_conversation(heard: Heard) -> None:
    async with JanStandIn(remote=("gpt-9",)) as server:
        backend = await at(server)
        turn = a_turn("Hi", model="gpt-9", session_id=SESSION, template_options={"enable_thinking": False})
        assert (await backend.chat(turn, heard)).state is State.DONE
        sent = server.sent_away[0]
        assert sent.body == (
            b'{"model":"gpt-9","stream":true,"stream_options":{"include_usage":true},"messages":['
            b'{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}'
        )
        assert SESSION.encode() not in sent.head + sent.body


async def test_a_model_that_it_does_not_list_is_treated_as_if_it_were_remote() -> None:
    async with JanStandIn() as server:
        backend = await at(server)
        turn = a_turn("Hi", model="someone/unlisted", session_id=SESSION, template_options={"enable_thinking": False})
        assert SESSION not in str(backend.headers(turn)) + backend.body(turn).decode()
        assert b"chat_template_kwargs" not in backend.body(turn)


async def test_template_options_are_the_same_before_and_after_a_model_is_started() -> None:
    async with JanStandIn() as server:
        backend = await at(server)
        turn = a_turn("Hi", model="on-disk-4b", template_options={"enable_thinking": False})
        before = backend.body(turn)
        server.running.append("on-disk-4b")
        await backend.identify()
        for body in (before, backend.body(turn)):
            assert b'"chat_template_kwargs":{"enable_thinking":false}' in body


async def test_a_remote_model_is_marked_and_never_chosen_unasked() -> None:
    async with JanStandIn(remote=("gpt-9",)) as server:
        server.running.clear()
        backend = await at(server)
        assert backend.info.model == ""
        entry = next(model for model in backend.info.listing if model.id == "gpt-9")
        assert (entry.loaded, entry.about) == (None, "on the internet: what you write leaves this machine")
        ended = await backend.chat(a_turn(), Heard())
        assert ended.error is not None
        assert "has no model running" in note_sentence(ended.note)
        assert not server.sent_away


async def test_a_model_run_by_another_engine_gets_no_fields_of_llama_cpp(heard: Heard) -> None:
    async with JanStandIn(owner="mlx") as server:
        backend = await at(server)
        assert (backend.info.figures, backend.info.takes_local_extras) == (Figures.AFTER, False)
        assert (await backend.chat(a_turn(), heard)).state is State.DONE
        assert server.chats[0].json.keys() == {"model", "stream", "stream_options", "messages"}


async def test_a_host_name_it_does_not_trust_is_not_told_as_a_wrong_key() -> None:
    async with JanStandIn(hosts=("localhost",)) as server:
        with pytest.raises(BackendError) as caught:
            await at(server)
        assert caught.value.trouble is Trouble.REFUSED
        assert "Trusted Hosts" in caught.value.sentence


async def test_a_model_that_does_not_run_says_where_to_start_it(heard: Heard) -> None:
    async with JanStandIn() as server:
        backend = await at(server)
        ended = await backend.chat(a_turn(model="on-disk-4b"), heard)
        assert "does not run this model. Start one in Jan" in note_sentence(ended.note)
        server.running.clear()
        assert "has no model running. Start one in Jan" in note_sentence((await backend.chat(a_turn(), heard)).note)
