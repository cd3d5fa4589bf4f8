"""Answers of Ollama: their figures, and what went wrong, in words."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from backend_kit import Heard, a_turn, endpoint_of
from ollama_kit import NEWEST, Talk, connected, words

from kvchat.backends.dialect import ChatTurn, Trouble
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.http.stream import Payload
from kvchat.backends.http.transport import Clock
from kvchat.backends.kinds import Figures
from kvchat.figures.accounting import TurnFigures, samples_of
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.ollama import QWEN, OllamaStandIn, StandInModel
from toyserver import ToyServer, chunked, raw, reply


async def test_thoughts_come_as_reasoning_and_go_back_as_thinking(heard: Heard) -> None:
    async with OllamaStandIn(QWEN) as server:
        talk = Talk(await connected(server))
        ended = await talk.backend.chat(talk.turn("Hi"), heard)
        assert (ended.state, ended.model) == (State.DONE, "qwen3:8b")
        assert (heard.reasoning, heard.text) == ("hmm , question 1", "This is answer 1 .")
        reported = heard.reported
        assert (reported.prompt_tokens, reported.predicted_tokens) == (server.turns[0].prompt, 9)
        assert (reported.prompt_ms, reported.predicted_ms) == (server.turns[0].evaluated / 0.5, 180)


async def test_without_a_learnt_speed_nothing_is_estimated_and_with_one_it_is_close() -> None:
    async with OllamaStandIn() as server:
        first = Talk(await connected(server), "s1")
        await first.ask(words(100))
        again = Talk(await connected(server), "s2")  # another run of kvchat: the model is loaded, its speed not known
        again.wires = first.wires
        await again.ask("and now")
        assert (again.reports[0].cached_tokens, again.reports[0].estimated) == (None, False)
        for _ in range(3):
            await first.ask(words(30))
        assert all(report.estimated for report in first.reports)
        for report, turn in zip(first.reports, [server.turns[0], *server.turns[2:]], strict=True):
            assert report.cached_tokens == pytest.approx(turn.prompt - turn.evaluated, abs=1)


async def test_a_server_that_counts_cached_tokens_is_believed_and_its_level_told() -> None:
    async with OllamaStandIn(reports_cached=True) as server:
        talk = Talk(await connected(server))
        assert talk.backend.info.figures is Figures.ESTIMATED
        await talk.ask("one")
        await talk.ask("two")
        assert talk.backend.info.figures is Figures.AFTER
        assert talk.reports[1].cached_tokens == server.turns[1].prompt - server.turns[1].evaluated > 0
        server.version = NEWEST
        assert (await connected(server)).info.figures is Figures.AFTER


async def test_its_time_is_that_of_the_tokens_that_were_not_cached() -> None:
    """`prompt_eval_duration` leaves the cached ones out: a speed from all of them is 38 times too high."""
    async with OllamaStandIn(reports_cached=True) as server:
        talk = Talk(await connected(server))
        await talk.ask(words(2_000))
        await talk.ask(words(50))
        ahead = await talk.backend.prefill_messages(talk.turn(words(60)))
        reports = [*talk.reports, ahead]
        samples = samples_of(TurnFigures(r.prompt_tokens, r.cached_tokens, prompt_ms=r.prompt_ms) for r in reports)
        assert reports[1].cached_tokens > 1_900 and ahead.cached_tokens > 1_900  # type: ignore[operator]
        assert [sample.end - sample.start for sample in samples] == [turn.evaluated for turn in server.turns]
        for sample in samples:
            assert (sample.end - sample.start) / sample.seconds == pytest.approx(500)


async def test_a_version_that_counts_only_part_of_the_prompt_is_not_believed() -> None:
    async with OllamaStandIn(version="0.30.1") as server:
        talk = Talk(await connected(server))
        await talk.ask(words(100))
        assert talk.reports[0].prompt_tokens is None and talk.reports[0].cached_tokens is None
        assert talk.reports[0].prompt_ms is not None
        assert "prompt tokens" in talk.backend.info.unknown


async def test_max_tokens_and_a_full_window_are_told_apart() -> None:
    async with OllamaStandIn(say=lambda _: words(500)) as server:
        backend = await connected(server, context_size=300)
        ended = await Talk(backend, parameters=Parameters(max_tokens=5)).ask("Hi")
        assert ended.state is State.LENGTH
        ended = await Talk(backend).ask("Hi")
        assert ended.state is State.CONTEXT_FULL
        assert "300 tokens" in note_sentence(ended.note) and "server.context_size" in note_sentence(ended.note)


async def test_reading_ahead_fills_the_cache_for_the_question() -> None:
    async with OllamaStandIn(reports_cached=True) as server:
        talk = Talk(await connected(server))
        await talk.ask("one")
        question = words(300)
        reported = await talk.backend.prefill_messages(talk.turn(question))
        assert reported.prompt_tokens == server.turns[1].prompt
        assert server.asked[1]["stream"] is False and server.turns[1].evaluated > 300
        ended = await talk.ask(question)
        assert ended.warnings == () and server.turns[2].evaluated == 1
        assert server.engine.loads == 1


async def test_cancelling_closes_the_connection() -> None:
    async with OllamaStandIn() as server:
        talk = Talk(await connected(server))
        server.holds = True
        jobs: list[Callable[[], Any]] = [
            lambda: talk.backend.prefill_messages(talk.turn("Hi")),
            lambda: talk.backend.chat(talk.turn("Hi"), Heard()),
        ]
        for count, job in enumerate(jobs, 1):
            task = asyncio.create_task(job())
            await server.until(lambda count=count: len(server.asked) == count)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            await server.until_closed()


async def test_a_cut_by_an_old_server_is_told_with_the_numbers() -> None:
    async with OllamaStandIn(knows_truncate=False, version="0.11.0") as server:
        talk = Talk(await connected(server, context_size=1000))
        ends = [await talk.ask(words(300, f"q{number}x")) for number in range(5)]
        assert [bool(ended.warnings) for ended in ends] == [turn.dropped > 0 for turn in server.turns]
        warned = next(note_sentence(ended.warnings[0]) for ended in ends if ended.warnings)
        tokens = next(turn.prompt for turn in server.turns if turn.dropped)
        assert f"read {tokens:,} tokens of a conversation that has about 1,2" in warned
        assert "its window of 1,000 tokens is full" in warned and "server.context_size, sent as num_ctx" in warned


async def test_a_proxy_that_strips_the_options_is_noticed() -> None:
    """The window is then the server's own, far below what was asked for."""
    async with OllamaStandIn(default_context=600, knows_truncate=False) as server:
        real = server.engine.runner
        server.engine.runner = lambda m, o, s, k: real(m, {}, s, k)  # type: ignore[method-assign]
        talk = Talk(await connected(server))
        ends = [await talk.ask(words(150, f"q{number}x")) for number in range(5)]
        warned = [note_sentence(warning) for ended in ends for warning in ended.warnings]
        assert "left the oldest messages out, although a window of 8,192 tokens (num_ctx) was asked for" in warned[0]
        assert "OLLAMA_CONTEXT_LENGTH=8192" in warned[0]


async def test_a_shorter_branch_or_another_conversation_is_no_cut() -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        talk = Talk(backend)
        await talk.ask(words(300))
        await talk.ask(words(300, "more"))
        talk.wires = talk.wires[:1]
        assert (await talk.ask("another first question")).warnings == ()
        assert (await Talk(backend, "s2").ask("Hi")).warnings == ()


@pytest.mark.parametrize("text", ["=" * 4000, " ".join("=" * 800 for _ in range(6)), "字" * 3000])
async def test_text_with_few_tokens_for_its_bytes_is_no_cut(text: str) -> None:
    async with OllamaStandIn() as server:
        talk = Talk(await connected(server))
        await talk.ask(words(20))
        real = server.engine.prompt

        def dense(*args: Any, **kwargs: Any) -> Any:
            made = real(*args, **kwargs)
            made.tokens = made.tokens[:-1] + [""] * (len(text.encode()) // 10) + made.tokens[-1:]
            return made

        server.engine.prompt = dense  # type: ignore[method-assign]
        assert (await talk.ask(text)).warnings == ()


async def test_a_model_loaded_again_is_told_with_the_reason() -> None:
    time = [1000.0]
    clock = Clock(now=lambda: time[0])
    async with OllamaStandIn(now=lambda: time[0]) as server:
        backend = await connected(server, clock)
        talk = Talk(backend)
        assert (await talk.ask("one")).warnings == ()  # the first load is no surprise
        time[0] += 420
        idle = await talk.ask("two")
        told = note_sentence(idle.warnings[0])
        assert "idle for 7 min" in told and "server.keep_alive" in told
        talk.options["parameters"] = Parameters(extra={"num_batch": 64})
        changed = await talk.ask("three")
        assert "num_batch changed since the last request" in note_sentence(changed.warnings[0])
        server.engine.unload()
        assert "another" in note_sentence((await talk.ask("four")).warnings[0])
        assert (await talk.ask("five")).warnings == ()
        other = await connected(server, clock, context_size=5000)
        assert "other options than kvchat sends" in note_sentence((await Talk(other).ask("six")).warnings[0])


async def test_a_slow_hand_out_of_a_loaded_model_is_no_load() -> None:
    async with OllamaStandIn() as server:
        talk = Talk(await connected(server))
        await talk.ask(words(200))
        server.engine.handout_ms = 350
        assert (await talk.ask("two")).warnings == ()
        assert talk.reports[1].cached_tokens == pytest.approx(server.turns[1].prompt - server.turns[1].evaluated, abs=1)


async def test_a_model_that_runs_elsewhere_is_not_chosen_by_itself_and_is_told() -> None:
    far = StandInModel("big:cloud", remote_host="https://ollama.com:443")
    async with OllamaStandIn(far, StandInModel("near:1b")) as server:
        backend = await connected(server)
        assert backend.info.model == "near:1b"
        assert "runs at https://ollama.com:443" in backend.info.listing[0].about
        ended = await Talk(backend, model="big:cloud").ask("Hi")
        assert any("left this machine" in warning for warning in map(note_sentence, ended.warnings))


async def test_another_model_that_answers_is_told() -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        line = {
            "model": "tiny:1b",
            "message": {"role": "assistant", "content": "Hi"},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 5,
        }
        server._answer_to = lambda _: reply(200, line)  # type: ignore[method-assign]
        ended = await Talk(backend).ask("Hi")
        assert ended.state is State.DONE and "tiny:1b, not toy:latest" in note_sentence(ended.warnings[0])
        line["model"] = "toy"  # the same one, by its short name
        server._answer_to = lambda _: reply(200, line)  # type: ignore[method-assign]
        told = map(note_sentence, (await Talk(backend, "s2").ask("Hi")).warnings)
        assert not [w for w in told if "Another model" in w]


async def test_a_missing_model_names_the_command_that_gets_it() -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        ended = await Talk(backend, model="llama9:70b").ask("Hi")
        assert ended.state is State.ERROR and ended.error is not None and ended.error.status == 404
        assert "`ollama pull llama9:70b`" in note_sentence(ended.note)
        with pytest.raises(Exception, match="ollama pull llama9"):
            await backend.prefill_messages(ChatTurn(Talk(backend).turn("Hi").wires, "s1", model="llama9:70b"))


async def test_a_server_without_models_says_how_to_get_one() -> None:
    async with OllamaStandIn() as server:
        server.engine.models.clear()
        backend = await connected(server)
        assert (backend.info.model, backend.info.context_size) == ("", None)
        assert "`ollama pull" in note_sentence((await Talk(backend).ask("Hi")).note)


async def test_a_conversation_that_is_too_long_is_refused_with_the_numbers() -> None:
    async with OllamaStandIn() as server:
        talk = Talk(await connected(server, context_size=300))
        ended = await talk.ask(words(400))
        assert ended.error is not None and ended.error.trouble is Trouble.CONTEXT_OVERFLOW
        assert ended.error.context_size == 300 and (ended.error.prompt_tokens or 0) > 400
        told = note_sentence(ended.note)
        assert "its window holds 300" in told and "server.context_size" in told


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "the input length exceeds the context length"),
        (400, "the prompt is longer than the context length currently available to the model; shorten the prompt"),
        (500, "input length (5000 tokens) exceeds the model's maximum context length (4096 tokens)"),
    ],
)
async def test_every_version_s_word_for_too_long_is_understood(status: int, message: str) -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        server._answer_to = lambda _: reply(status, {"error": message})  # type: ignore[method-assign]
        ended = await Talk(backend).ask("Hi")
        assert ended.error is not None and ended.error.trouble is Trouble.CONTEXT_OVERFLOW
        assert "server.context_size" in note_sentence(ended.note) and "llama-server" not in note_sentence(ended.note)


async def test_an_error_inside_an_answer_keeps_what_came(heard: Heard) -> None:
    async with OllamaStandIn() as server:
        talk = Talk(await connected(server))
        server.engine.fails_after = 2
        ended = await talk.backend.chat(talk.turn("Hi"), heard)
        assert ended.state is State.ERROR and heard.text == "This is "
        assert "an error was encountered while running the model" in note_sentence(ended.note)


async def test_an_answer_that_is_cut_off_is_not_complete(heard: Heard) -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        line = json.dumps({"model": "toy", "message": {"role": "assistant", "content": "Hal"}, "done": False}).encode()
        server._answer_to = lambda _: raw(  # type: ignore[method-assign]
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
            + chunked(line + b"\n")
        )
        ended = await backend.chat(Talk(backend).turn("Hi"), heard)
        assert ended.state is State.INTERRUPTED and heard.text == "Hal"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error": "unauthorized", "signin_url": "https://ollama.com/x"}, "ollama signin"),
        (
            503,
            {"error": "server busy, please try again. maximum pending requests exceeded"},
            "maximum pending requests",
        ),
        (500, {"error": "model requires more system memory (5.6 GiB) than is available (3.1 GiB)"}, "5.6 GiB"),
        (400, {"error": 'option "num_ctx" must be of type integer'}, "num_ctx"),
        (
            400,
            {"error": '{"error":{"code":400,"message":"failed to parse grammar","type":"invalid_request_error"}}'},
            "refused the request (400): failed to parse grammar.",
        ),
        (
            200,
            {"error": '{"error":{"code":500,"message":"Compute error.","type":"server_error"}}'},
            "stopped the answer with an error: Compute error.",
        ),
        (404, {"error": 'model "x y" not found, try pulling it first'}, "ollama pull 'x y'"),
    ],
)
async def test_an_error_body_gives_a_sentence_that_helps(status: int, body: dict[str, str], said: str) -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        server._answer_to = lambda _: reply(status, body)  # type: ignore[method-assign]
        ended = await Talk(backend).ask("Hi")
        told = note_sentence(ended.note)
        assert ended.state is State.ERROR and said in told and "\n" not in told


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"message":null}',
        b'{"message":[]}',
        b'{"done":true}',
        b'{"done":true,"prompt_eval_count":-1}',
        b"[]",
        b'{"message":{"content":5}}',
        b'{"done":"yes"}',
        b'{"error":{}}',
        b'{"error":5}',
        b"null",
        b"<html>",
        b'{"message":{"content":"a"},"done":true,"load_duration":"x","prompt_eval_count":1e99}',
    ],
)
async def test_strange_answers_end_with_a_sentence(line: bytes, heard: Heard) -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        server._answer_to = lambda _: reply(200, line, content_type="application/x-ndjson")  # type: ignore
        ended = await backend.chat(Talk(backend).turn("Hi"), heard)
        assert ended.state is State.DONE or note_sentence(ended.note)


@pytest.mark.parametrize(("nanoseconds", "tokens_per_ms"), [(1e300, 1e300), (1e300, 0.0), (5e-324, math.inf)])
async def test_a_time_that_cannot_be_leaves_the_answer_alone(
    nanoseconds: float, tokens_per_ms: float, heard: Heard
) -> None:
    async with OllamaStandIn() as server:
        backend = await connected(server)
        backend._memory.use_of(backend.info.model).tokens_per_ms = tokens_per_ms
        answer = backend.answer(a_turn(), heard)
        answer.take(
            Payload(
                {
                    "message": {"content": "Hi"},
                    "done": True,
                    "prompt_eval_count": 200,
                    "prompt_eval_duration": nanoseconds,
                }
            )
        )
    assert answer.ended().state is State.DONE and heard.reported.prompt_tokens == 200


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize(("reason", "words"), [("load", "loaded the model"), ("unload", "unloaded the model")])
async def test_an_answer_that_only_loaded_the_model_says_so(reason: str, words: str, thinks: bool) -> None:
    """It was "The model answered nothing"."""
    thought = {"model": "toy", "message": {"role": "assistant", "content": "", "thinking": ""}, "done": False}
    last = {"model": "toy", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason}
    parts = b"".join(json.dumps(part).encode() + b"\n" for part in ([thought] if thinks else []) + [last])
    async with ToyServer("openai") as server:
        server.on_chat(reply(200, parts, content_type="application/x-ndjson"))
        ended = await Talk(OllamaBackend(endpoint_of(server)), model="toy").ask("one")
    assert ended.state is State.EMPTY
    assert note_sentence(ended.note) == f"The server {words}, and did not answer. Try again."
