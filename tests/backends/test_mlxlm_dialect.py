"""mlx-lm: it stops at 512 tokens, loads what is named and says everything with a 404, unless it is spoken to well."""

from __future__ import annotations

import json

import pytest
from backend_kit import Heard, a_turn
from engine_talk import assert_only_new_was_read, recognised_by, recorded_answers, replayed, talk_with

from kvchat.backends.dialect import BackendError, PrefillAccess, Progressed, Trouble
from kvchat.backends.dialects.mlxlm import LONGEST_ANSWER, MlxLmBackend
from kvchat.backends.http.payload import Response
from kvchat.backends.kinds import Figures
from kvchat.backends.recognition import is_of
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.text.notes import note_sentence
from standins.mlxlm import MlxLmStandIn


async def test_mlx_lm_is_known_by_its_answers_and_nothing_else_is_taken_for_it() -> None:
    assert await recognised_by(MlxLmBackend) == {"mlx-lm"}


def test_behind_a_proxy_that_hides_its_server_it_is_still_known() -> None:
    answers = {
        path: Response(found.status, {**found.headers, "server": "nginx"}, found.body)
        for path, found in recorded_answers("mlx-lm").items()
    }
    assert is_of(MlxLmBackend.kind, answers)


async def test_it_tells_its_model_and_what_it_cannot_tell() -> None:
    async with MlxLmStandIn(model="/models/qwen", downloaded=("mlx-community/other",)) as server:
        info = (await talk_with(server, MlxLmBackend)).backend.info
    assert (info.kind, info.model, info.models) == ("mlx-lm", "/models/qwen", ("mlx-community/other", "/models/qwen"))
    assert (info.context_size, info.slots, info.figures) == (None, None, Figures.AFTER)
    assert info.unknown == ("context size", "slots")


async def test_ten_turns_read_only_what_is_new_and_the_usage_says_so() -> None:
    async with MlxLmStandIn() as server:
        talk = await talk_with(server, MlxLmBackend)
        await talk.ten_turns()
        assert_only_new_was_read(server.reads, slack=1)
    assert [(r.prompt_tokens, r.cached_tokens, r.predicted_tokens) for r in talk.reported] == [
        (read.prompt, read.cached, read.predicted) for read in server.reads
    ]
    assert talk.reported[0].cached_tokens == 0 and server.loads == []


async def test_a_long_answer_is_not_cut_at_512_tokens() -> None:
    async with MlxLmStandIn(say=lambda _: "word " * 600) as server:
        talk = await talk_with(server, MlxLmBackend)
        ended = await talk.ask("Tell me all .")
        assert (ended.state, len(talk.heard.text.split())) == (State.DONE, 600)
        assert server.asked[0]["max_tokens"] == LONGEST_ANSWER


@pytest.mark.parametrize("parameters", [Parameters(max_tokens=3), Parameters(extra={"max_completion_tokens": 3})])
async def test_a_length_that_the_person_set_is_kept(parameters: Parameters) -> None:
    async with MlxLmStandIn() as server:
        talk = await talk_with(server, MlxLmBackend)
        ended = await talk.ask("One ?", parameters=parameters)
    assert (ended.state, talk.heard.text) == (State.LENGTH, "This is answer")


async def test_the_model_it_was_started_with_is_not_loaded_again_and_keeps_its_name() -> None:
    async with MlxLmStandIn(downloaded=("mlx-community/other",)) as server:
        talk = await talk_with(server, MlxLmBackend)
        ended = await talk.ask("One ?")
        assert (server.loads, ended.model) == ([], "/models/toy")
        turn = a_turn(model="mlx-community/other")
        assert (await talk.backend.chat(turn, Heard())).model == "mlx-community/other"
    assert server.loads == ["mlx-community/other"]


@pytest.mark.parametrize("downloaded", [(), ("mlx-community/other",)])
async def test_a_server_that_lists_not_the_model_it_was_started_with_uses_that_one_all_the_same(
    downloaded: tuple[str, ...],
) -> None:
    async with MlxLmStandIn(model="mlx-community/single-file", downloaded=downloaded) as server:
        talk = await talk_with(server, MlxLmBackend)
        assert talk.backend.info.models == ("default_model", *downloaded)
        assert (await talk.ask("One ?")).state is State.DONE
    assert server.loads == []


async def test_a_list_that_breaks_off_because_nothing_was_ever_downloaded_is_no_failure() -> None:
    async with MlxLmStandIn(has_hub=False) as server:
        talk = await talk_with(server, MlxLmBackend)
        assert (await talk.ask("One ?")).state is State.DONE


async def test_a_server_without_a_model_says_that_one_must_be_chosen() -> None:
    async with MlxLmStandIn(model=None, downloaded=("mlx-community/other",)) as server:
        talk = await talk_with(server, MlxLmBackend)
        ended = await talk.ask("One ?")
        assert ended.state is State.ERROR and "was started without a model" in note_sentence(ended.note)
        assert (await talk.backend.chat(a_turn(model="mlx-community/other"), Heard())).state is State.DONE


async def test_what_it_says_with_a_404_is_not_taken_for_a_wrong_address() -> None:
    async with MlxLmStandIn(refuses_system=True) as server:
        talk = await talk_with(server, MlxLmBackend)
        refused = await talk.ask("One ?")
        unknown = await talk.backend.chat(a_turn(model="no/such-model"), Heard())
    assert refused.error is not None and refused.error.trouble is Trouble.SYSTEM_ROLE
    assert "cached snapshot folder" in note_sentence(unknown.note) and "address" not in note_sentence(unknown.note)


async def test_comments_tell_how_far_the_prompt_is_read_and_nothing_of_the_cache() -> None:
    async with MlxLmStandIn() as server:
        talk = await talk_with(server, MlxLmBackend)
        await talk.ask("One ?")
        await talk.ask("Two ?")
    told = [event.progress for event in talk.heard.events if isinstance(event, Progressed)]
    new = server.reads[1].evaluated
    assert [(p.total, p.processed) for p in told if p.only_new] == [(new, 0), (new, new - 1), (new, new)]
    assert talk.heard.reported.cached_tokens == server.reads[1].cached > 0


async def test_a_stopped_answer_leaves_the_question_warm() -> None:
    async with MlxLmStandIn(hold_after=3) as server:
        talk = await talk_with(server, MlxLmBackend)
        await talk.stopped("Tell me a very long story about all the plants that grow here .", words=3)
        await server.until_closed()
        server.hold_after = None
        await talk.ask("Go on .")
    assert server.reads[1].cached >= server.reads[0].prompt - 1


async def test_reading_ahead_asks_for_one_token_of_the_same_prompt() -> None:
    async with MlxLmStandIn() as server:
        talk = await talk_with(server, MlxLmBackend)
        assert isinstance(talk.backend, PrefillAccess)
        read = await talk.backend.prefill_messages(a_turn("What about roses ?", model="/models/toy"))
        assert (read.prompt_tokens, read.cached_tokens, read.predicted_tokens) == (server.reads[0].prompt, 0, 1)
        await talk.backend.chat(a_turn("What about roses ?", model="/models/toy"), Heard())
        assert server.reads[1].evaluated <= 2
    ahead, real = server.asked
    assert (ahead.pop("max_tokens"), real.pop("max_tokens")) == (1, LONGEST_ANSWER)
    assert ahead == real


async def test_reading_ahead_raises_what_the_server_says() -> None:
    async with MlxLmStandIn(refuses_system=True) as server:
        talk = await talk_with(server, MlxLmBackend)
        assert isinstance(talk.backend, MlxLmBackend)
        with pytest.raises(BackendError) as caught:
            await talk.backend.prefill_messages(talk.turn())
    assert caught.value.trouble is Trouble.SYSTEM_ROLE


async def test_the_session_and_template_options_stand_before_the_messages() -> None:
    async with MlxLmStandIn() as server:
        talk = await talk_with(server, MlxLmBackend)
        await talk.ask("One ?", template_options={"enable_thinking": False})
        names = list(json.loads(server.chats[0].body))
    assert names == [
        "model",
        "session_id",
        "stream",
        "stream_options",
        "chat_template_kwargs",
        "max_tokens",
        "messages",
        "temperature",
    ]


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("chat-turn-1", (55, 0, 12)),
        ("chat-turn-2", (94, 67, 12)),
        ("chat-turn-3", (133, 106, 12)),
        ("chat-no-usage-stream", (None, None, None)),
    ],
)
async def test_recorded_answers_give_the_figures_that_the_server_gave(
    name: str, figures: tuple[int | None, ...]
) -> None:
    ended, heard = await replayed(MlxLmBackend, "mlx-lm", name)
    found = heard.reported
    assert ended.state is State.LENGTH and heard.text
    assert (found.prompt_tokens, found.cached_tokens, found.predicted_tokens) == figures


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("error-unknown-model-stream", "Cannot find an appropriate cached snapshot"),
        ("error-system-role-stream", "System role not supported"),
    ],
)
async def test_recorded_refusals_are_told_in_the_servers_words(name: str, words: str) -> None:
    ended, _ = await replayed(MlxLmBackend, "mlx-lm", name)
    assert ended.state is State.ERROR and words in note_sentence(ended.note)
