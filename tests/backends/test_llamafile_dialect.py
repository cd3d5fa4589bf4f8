"""llamafile up to 0.9: the old form reuses only when asked to; neither says what came from the cache."""

from __future__ import annotations

import pytest
from backend_kit import Heard, a_turn
from engine_talk import assert_only_new_was_read, recognised_by, talk_with

from kvchat.backends.dialect import PrefillAccess, ServerOptions
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.dialects.rare import LlamafileBackend
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from standins.llamafile import LlamafileStandIn


async def test_both_forms_are_known_by_their_answers_and_no_other_server_is_taken_for_one() -> None:
    assert await recognised_by(LlamafileBackend) == {"llamafile, old", "llamafile, new"}


async def test_the_old_form_would_be_taken_for_llama_cpp_so_it_must_be_asked_for_before() -> None:
    assert "llamafile, old" in await recognised_by(LlamaCppBackend)


@pytest.mark.parametrize(
    "props", [b'{"user_name":"","assistant_name":"","build_info":"b9"}', b'{"default_generation_settings":{}}', b"[]"]
)
def test_a_llama_server_that_tells_its_build_is_no_llamafile(props: bytes) -> None:
    assert not is_of(LlamafileBackend.kind, {"/props": Response(200, {"server": "llama.cpp"}, props)})


@pytest.mark.parametrize(
    ("is_new", "window", "slots", "build", "first_unknown"),
    [(False, 8192, 1, "", "token counts"), (True, None, None, "0.9.3", "cached tokens")],
)
async def test_each_form_tells_what_it_can(
    is_new: bool, window: int | None, slots: int | None, build: str, first_unknown: str
) -> None:
    async with LlamafileStandIn(is_new=is_new, model="llava-v1.5") as server:
        info = (await talk_with(server, LlamafileBackend)).backend.info
    assert (info.kind, info.model, info.context_size, info.slots) == ("llamafile", "llava-v1.5", window, slots)
    assert (info.build, info.figures, info.unknown[0]) == (build, Figures.NONE, first_unknown)


@pytest.mark.parametrize("is_new", [False, True])
async def test_ten_turns_read_only_what_is_new_and_no_cache_hit_is_made_up(is_new: bool) -> None:
    async with LlamafileStandIn(is_new=is_new) as server:
        talk = await talk_with(server, LlamafileBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=1)
    assert [r.cached_tokens for r in talk.reported] == [None] * 10
    counted = [read.prompt if is_new else None for read in server.reads]
    assert [r.prompt_tokens for r in talk.reported] == counted


async def test_the_old_form_reads_everything_anew_where_the_field_for_reuse_does_not_reach_it() -> None:
    async with LlamafileStandIn() as server:
        talk = await talk_with(server, LlamafileBackend, options=ServerOptions(locality="cloud"))
        await talk.ten_turns()
    assert {read.cached for read in server.reads} == {0}
    assert not any("cache_prompt" in request for request in server.asked)


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_stop_closes_the_stream_and_what_was_read_stays(is_new: bool) -> None:
    async with LlamafileStandIn(is_new=is_new, hold_after=3) as server:
        talk = await talk_with(server, LlamafileBackend)
        await talk.stopped("Tell me a very long story about all the plants that grow here .", words=3)
        await server.until_closed()
        server.hold_after = None
        await talk.ask("Go on .")
    assert server.reads[1].cached >= server.reads[0].prompt


@pytest.mark.parametrize("is_new", [False, True])
async def test_an_answer_is_complete_with_its_finish_reason_also_without_done(is_new: bool) -> None:
    async with LlamafileStandIn(is_new=is_new) as server:
        talk = await talk_with(server, LlamafileBackend)
        ended = await talk.ask("One ?", template_options={"enable_thinking": False})
        assert (ended.state, talk.heard.text) == (State.DONE, "This is answer 1 .")
        assert "chat_template_kwargs" not in server.asked[0]


@pytest.mark.parametrize("is_new", [False, True])
async def test_reading_ahead_makes_the_question_warm(is_new: bool) -> None:
    async with LlamafileStandIn(is_new=is_new) as server:
        talk = await talk_with(server, LlamafileBackend)
        assert isinstance(talk.backend, PrefillAccess)
        await talk.backend.prefill_messages(a_turn("What about roses ?", model="toy"))
        await talk.backend.chat(a_turn("What about roses ?", model="toy"), Heard())
    assert (server.reads[0].predicted, server.reads[1].evaluated) == (1, 1)
