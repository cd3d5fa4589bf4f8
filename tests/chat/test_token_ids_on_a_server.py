"""The second law on a real server: where a template drops reasoning and has no switch for it, a prompt of token ids
begins with all that the slot holds, and no turn prefills anything but what is new."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("xllamacpp")

from ids_kit import WORDS, answers, holds_the_law, last, serving, wasted
from remembering_kit import remembering, until

from chat_templates import FORGETFUL, SWITCHED
from engine_fixture import running_server, small_model
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.message import Node, State
from kvchat.prompt.request import Parameters
from kvchat.prompt.token_ids import known_ids
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
GRAMMARS = {
    "forgets": f'root ::= "<think>\\n" {WORDS}{{20,30}} "\\n</think>\\n\\n" {WORDS}{{30,40}} "end"',
    "forgets an empty one": f'root ::= {WORDS}{{30,40}} "end"',
}
TEMPLATES = {"forgets": FORGETFUL, "forgets an empty one": SWITCHED}
TURNS = 10


@pytest.fixture(params=TEMPLATES)
def habit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(tmp_path: Path, habit: str) -> Iterator[str]:
    model = tiny_models(tmp_path, small_model(), (), {"model": TEMPLATES[habit]})["model"]
    with running_server(slots=1, context=16384, cache_ram=0, model=model) as server:
        yield server.base_url


def spoken(habit: str, **more: object) -> Parameters:
    """A tiny model's answer of many words, with a thought in front where the model thinks."""
    return replace(Parameters(temperature=1.0, seed=5, max_tokens=200, extra={"grammar": GRAMMARS[habit]}), **more)


def endless(tokens: int) -> Parameters:
    """Words without an end of their own: what stops them is the limit, or the person."""
    return Parameters(temperature=1.0, seed=5, max_tokens=tokens, extra={"grammar": f"root ::= {WORDS}+"})


async def begun(service: ChatService, habit: str) -> str:
    id = (await service.new_conversations.create("Be brief.", reuse=False)).id
    await service.conversations.open(id)
    await service.options.set_parameters(id, spoken(habit))
    if habit == "forgets an empty one":
        await service.options.set_template_options(id, {"enable_thinking": False})
    return id


async def ask(service: ChatService, id: str, turn: int, parameters: Parameters | None = None) -> Node:
    await service.turns.send(
        id, Question(f"Question {turn}: what is the sea like, and where are the boats?"), parameters=parameters
    )
    return await last(service, id)


async def test_ten_turns_over_a_restart_and_an_edit_prefill_what_is_new(url, habit, tmp_path):
    async with serving(url, tmp_path / "data", token_ids=True) as service:
        id = await begun(service, habit)
        for turn in range(5):
            assert (await ask(service, id, turn)).state is State.DONE
    async with serving(url, tmp_path / "data", token_ids=True) as service:
        await service.conversations.open(id)
        for turn in range(5, TURNS):
            await ask(service, id, turn)
        path = service.conversations.get(id).path()
        holds_the_law(path)
        assert max(wasted(path)) <= 1, wasted(path)
        assert len(answers(path)) == TURNS
        assert all(
            bool(answer.message.reasoning) == (habit == "forgets")
            and "<think>" not in answer.text
            and answer.text.endswith("end")
            for answer in answers(path)
        )

        question = path[-6]
        await service.turns.edit(id, question.id, "Another question: is the moon out?")
        await last(service, id)
        for turn in range(2):
            await ask(service, id, turn)
        branch = service.conversations.get(id).path()
        assert branch[:-6] == path[:-6] and branch[-6].id != question.id
        holds_the_law(branch)
        assert max(wasted(branch)) <= 1, wasted(branch)


async def test_without_the_setting_every_turn_prefills_the_last_answer_again(url, habit, tmp_path):
    async with serving(url, tmp_path / "data", token_ids=False) as service:
        id = await begun(service, habit)
        for turn in range(TURNS):
            await ask(service, id, turn)
        path = service.conversations.get(id).path()
    assert min(wasted(path)) > 20, wasted(path)
    assert all(answer.ids is None for answer in answers(path))


async def test_the_first_prompt_is_that_of_the_chat_endpoint(url, habit, tmp_path):
    async with serving(url, tmp_path / "chat", token_ids=False) as service:
        await ask(service, await begun(service, habit), 0)
    async with serving(url, tmp_path / "ids", token_ids=True) as service:
        first = (await ask(service, await begun(service, habit), 0)).figures
    assert first.cached_tokens == first.prompt_tokens - 1


async def test_a_conversation_that_went_as_messages_goes_on_from_the_template(url, habit, tmp_path):
    async with serving(url, tmp_path / "data", token_ids=False) as service:
        id = await begun(service, habit)
        for turn in range(3):
            await ask(service, id, turn)
    async with serving(url, tmp_path / "data", token_ids=True) as service:
        await service.conversations.open(id)
        for turn in range(3, 6):
            await ask(service, id, turn)
        path = service.conversations.get(id).path()
    *before, first, _, _ = answers(path)
    assert [answer.ids for answer in before] == [None] * 3
    assert first.ids.before == 0 and first.figures.wasted_tokens > 20
    assert max(wasted(path)[-2:]) <= 1, wasted(path)


async def test_a_cut_answer_goes_on_and_a_stopped_one_stays(url, habit, tmp_path):
    async with serving(url, tmp_path / "data", token_ids=True) as service:
        id = await begun(service, habit)
        await ask(service, id, 0)
        cut = await ask(service, id, 1, endless(50))
        assert cut.state is State.LENGTH and len(cut.ids.sampled) == 50
        await service.turns.go_on(id, cut.id, endless(30))
        whole = await last(service, id)
        assert whole.figures.evaluated_tokens == 1
        assert whole.text.startswith(cut.text)
        assert len(whole.ids.added) + len(whole.ids.sampled) == len(cut.ids.added) + 80
        await service.turns.send(id, Question("And then?"), parameters=endless(4000))
        await until(service, lambda: (live := service.conversations.get(id).live) and len(live.sampled) >= 20)
        await service.turns.stop(id)
        stopped = await last(service, id)
        assert stopped.state is State.CANCELLED and len(stopped.ids.sampled) >= 20
        await ask(service, id, 2)
        path = service.conversations.get(id).path()
        holds_the_law(path[:-3])
        assert path[-1].ids.before == len(known_ids([n.ids for n in path[:-1]], path[-1].ids.scope).tokens)
        assert max(wasted(path)) <= 1, wasted(path)


async def test_memory_extraction_is_a_suffix_of_the_same_ids(url, habit, tmp_path):
    settings = changed(Settings(), "cache.token_ids", True)
    async with remembering(url, tmp_path / "data", settings=settings) as service:
        id = await begun(service, habit)
        for turn in range(TURNS):
            await ask(service, id, turn)
            if turn == 3:  # four messages are enough for one
                await until(
                    service, lambda: service.store.side_requests.totals(0.0, id).count and not service.jobs.at_work()
                )
        path = service.conversations.get(id).path()
        rows = service.store.database.rows(
            "SELECT prompt_tokens, cached_tokens FROM side_request WHERE prompt_tokens IS NOT NULL"
        )
    holds_the_law(path)
    assert max(wasted(path)) <= 1, wasted(path)
    assert rows and max(prompt - cached for prompt, cached in rows) < 150, rows
