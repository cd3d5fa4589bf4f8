"""vLLM: known by the owner of its models; its cache is told by usage or by counters, and only what is told counts."""

from __future__ import annotations

import asyncio
import json

import pytest
from backend_kit import Heard, a_turn
from engine_talk import assert_only_new_was_read, recognised_by, replayed, talk_with

from kvchat.backends.dialect import BackendError, PrefillAccess, ServerOptions, Trouble
from kvchat.backends.dialects.vllm import Counters, VllmBackend, counters_in
from kvchat.backends.kinds import Figures
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.blocks import rendered
from standins.vllm import BLOCK, VllmStandIn


async def test_vllm_is_known_by_its_answers_also_behind_a_proxy_and_nothing_else_is_taken_for_it() -> None:
    assert await recognised_by(VllmBackend) == {"vllm", "vllm behind a proxy"}


@pytest.mark.parametrize(("only_api", "build"), [(False, "0.32.0"), (True, "")])
async def test_it_tells_its_model_window_and_version_and_what_it_cannot_tell(only_api: bool, build: str) -> None:
    async with VllmStandIn(only_api=only_api, model="meta/llama", context_size=8192) as server:
        info = (await talk_with(server, VllmBackend)).backend.info
    assert (info.kind, info.model, info.context_size, info.build) == ("vllm", "meta/llama", 8192, build)
    assert (info.slots, info.figures, info.unknown) == (None, Figures.AFTER, ("slots", "prompt progress"))


@pytest.mark.parametrize(
    ("keeps_by", "drops"),
    [
        (("preserve_thinking", True), True),
        (("clear_thinking", False), True),
        (("drop_thinking", False), True),
        (None, None),
    ],
)
async def test_the_option_that_keeps_earlier_reasoning_is_found_by_its_tokenizer(
    keeps_by: tuple[str, bool] | None, drops: bool | None
) -> None:
    async with VllmStandIn(keeps_by=keeps_by) as server:
        info = (await talk_with(server, VllmBackend)).backend.info
        assert server.posts == 0, "nothing is generated for it"
    assert info.template is not None
    assert (info.reasoning_option, info.template.drops_reasoning) == (keeps_by, drops)


async def test_ten_turns_read_what_is_new_and_less_than_a_block_more_and_the_usage_says_so() -> None:
    async with VllmStandIn(details=True) as server:
        talk = await talk_with(server, VllmBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=BLOCK)
    assert [(r.prompt_tokens, r.cached_tokens, r.predicted_tokens) for r in talk.reported] == [
        (read.prompt, read.cached, read.predicted) for read in server.reads
    ]
    assert not any(read.cached % BLOCK for read in server.reads)
    assert not any(visit.path == "/metrics" for visit in server.visits)


async def test_without_the_flag_the_first_answer_says_nothing_of_the_cache_and_the_next_ones_are_derived() -> None:
    async with VllmStandIn() as server:
        talk = await talk_with(server, VllmBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=BLOCK)
    assert talk.reported[0].cached_tokens is None
    assert [r.cached_tokens for r in talk.reported[1:]] == [read.cached for read in server.reads[1:]]
    assert talk.backend.info.figures is Figures.DERIVED and not any(r.estimated for r in talk.reported)


async def test_counters_that_others_moved_too_derive_nothing() -> None:
    async with VllmStandIn() as server:
        talk = await talk_with(server, VllmBackend)
        await talk.ask("One ?")
        original = server.read

        def disturbed(prompt: tuple[str, ...], salt: str = "") -> int:
            original(rendered([{"role": "user", "content": "from someone else"}]))
            return original(prompt, salt)

        server.read = disturbed  # type: ignore[method-assign]
        await talk.ask("Two ?")
    assert (talk.reported[1].prompt_tokens, talk.reported[1].cached_tokens) == (server.reads[1].prompt, None)


async def test_without_flag_and_counters_nothing_is_known_and_they_are_not_asked_for_again() -> None:
    async with VllmStandIn(counters=False) as server:
        talk = await talk_with(server, VllmBackend)
        for text in ("One ?", "Two ?", "Three ?"):
            await talk.ask(text)
        assert [r.cached_tokens for r in talk.reported] == [None, None, None]
        assert sum(visit.path == "/metrics" for visit in server.visits) == 1


async def test_a_server_in_the_cloud_is_asked_for_no_counters_and_no_local_fields() -> None:
    async with VllmStandIn() as server:
        talk = await talk_with(server, VllmBackend, options=ServerOptions(locality="cloud"))
        await talk.ask("One ?")
        await talk.ask("Two ?")
        assert not any(visit.path == "/metrics" for visit in server.visits)
        assert not any("session_id" in request for request in server.asked)
        assert isinstance(talk.backend, PrefillAccess)
        with pytest.raises(BackendError, match="on the internet"):
            await talk.backend.prefill_messages(talk.turn())
        assert server.posts == 2


async def test_a_stop_closes_the_stream_and_what_was_read_stays() -> None:
    async with VllmStandIn(details=True, hold_after=3) as server:
        talk = await talk_with(server, VllmBackend)
        await talk.stopped("Tell me a very long story about all the plants that grow here .", words=3)
        await server.until_closed()
        server.hold_after = None
        await talk.ask("Go on .")
    stopped, next_one = server.reads
    assert (talk.heard.reported.cached_tokens, next_one.evaluated < 8 + BLOCK) == (next_one.cached, True)
    assert stopped.predicted == 3 and next_one.cached >= stopped.prompt - BLOCK


async def test_a_stopped_answer_has_its_size() -> None:
    async with VllmStandIn(details=True, hold_after=3) as server:
        talk = await talk_with(server, VllmBackend)
        await talk.stopped("Tell me a story .", words=3)
        await server.until_closed()
    found = talk.heard.reported
    assert (found.prompt_tokens, found.cached_tokens, found.predicted_tokens) == (server.reads[0].prompt, None, 3)


async def test_reading_ahead_reads_the_very_prompt_and_asks_for_one_token() -> None:
    async with VllmStandIn(details=True) as server:
        talk = await talk_with(server, VllmBackend)
        assert isinstance(talk.backend, PrefillAccess)
        await talk.ask("What about roses ?")
        parameters = Parameters(max_tokens=900, extra={"max_completion_tokens": 800, "min_tokens": 20, "top_k": 5})
        read = await talk.backend.prefill_messages(talk.turn(parameters=parameters))
        assert (read.prompt_tokens, read.predicted_tokens) == (server.reads[1].prompt, 1)
        await talk.backend.chat(talk.turn(parameters=parameters), Heard())
        assert server.reads[2].evaluated <= BLOCK
    ahead, real = server.asked[1], server.asked[2]
    assert (ahead.pop("max_tokens"), real.pop("max_tokens")) == (1, 900)
    assert (real.pop("max_completion_tokens"), real.pop("min_tokens")) == (800, 20)
    assert ahead == real


async def test_a_cancelled_reading_ahead_closes_its_connection_first() -> None:
    async with VllmStandIn(hold_after=0) as server:
        talk = await talk_with(server, VllmBackend)
        assert isinstance(talk.backend, VllmBackend)
        task = asyncio.create_task(talk.backend.prefill_messages(a_turn(model="toy")))
        await server.until(lambda: server.posts == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_closed()


async def test_reading_ahead_tells_a_refusal_as_an_error() -> None:
    async with VllmStandIn(context_size=8) as server:
        talk = await talk_with(server, VllmBackend)
        assert isinstance(talk.backend, VllmBackend)
        with pytest.raises(BackendError) as caught:
            await talk.backend.prefill_messages(a_turn("one two three four five", model="toy"))
    assert caught.value.trouble is Trouble.CONTEXT_OVERFLOW


async def test_the_session_goes_out_before_the_messages_and_a_salt_never() -> None:
    async with VllmStandIn() as server:
        talk = await talk_with(server, VllmBackend)
        await talk.ask("One ?", template_options={"reasoning_effort": "low"})
        visit = server.chats[0]
        body = json.loads(visit.body)
    assert visit.headers["x-session-id"] == body["session_id"] == talk.session
    assert "cache_salt" not in body and list(body).index("session_id") < list(body).index("messages")
    assert (body["reasoning_effort"], body["chat_template_kwargs"]) == ("low", {"reasoning_effort": "low"})


async def test_reasoning_keeps_the_name_it_came_with() -> None:
    async with VllmStandIn(reasoning="hm") as server:
        talk = await talk_with(server, VllmBackend)
        await talk.ask("One ?")
    assert talk.heard.reasoning == "hm"
    assert {e.field for e in talk.heard.events if hasattr(e, "field")} == {"reasoning"}


async def test_no_answer_at_all_is_refused_with_its_reason() -> None:
    async with VllmStandIn() as server:
        talk = await talk_with(server, VllmBackend)
        ended = await talk.ask("One ?", parameters=Parameters(max_tokens=0))
    assert ended.state is State.ERROR and "max_tokens must be at least 1" in note_sentence(ended.note)


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("chat-turn-1", (55, 0, 12)),
        ("chat-turn-2", (94, 64, 12)),
        ("chat-turn-3", (133, 96, 12)),
        ("chat-no-details-2", (34, None, 3)),
    ],
)
async def test_recorded_answers_give_the_figures_that_the_server_gave(name: str, figures: tuple[int, ...]) -> None:
    ended, heard = await replayed(VllmBackend, "vllm", name)
    found = heard.reported
    assert ended.state is State.LENGTH and heard.text
    assert (found.prompt_tokens, found.cached_tokens, found.predicted_tokens) == figures


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("", None),
        ('# HELP x\nvllm:prefix_cache_queries_total{engine="0"} 5.0\n', None),
        (
            'vllm:prefix_cache_queries_total{engine="0"} 5.0\nvllm:prefix_cache_hits_total{engine="0"} 3.0\n',
            Counters(5, 3),
        ),
        (
            'vllm:prefix_cache_queries_total{engine="0"} 5.0\nvllm:prefix_cache_queries_total{engine="1"} 2e1\n'
            'vllm:prefix_cache_hits_total{engine="0"} 3.0\nvllm:prefix_cache_hits_total{engine="1"} 4\n',
            Counters(25, 7),
        ),
        ('vllm:prefix_cache_queries_total{engine="0"} NaN\nvllm:prefix_cache_hits_total{engine="0"} 3.0\n', None),
        ('vllm:prefix_cache_queries_total{engine="0"} many\nvllm:prefix_cache_hits_total{engine="0"} 3.0\n', None),
    ],
)
def test_counters_are_summed_over_engines_and_anything_strange_is_none(metrics: str, expected: object) -> None:
    assert counters_in(metrics) == expected
