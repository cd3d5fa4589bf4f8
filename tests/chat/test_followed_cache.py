"""The service on a real llama.cpp server with a tiny model: what is predicted, priced and told is what happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import chat_templates
from engine_fixture import small_model
from kvchat.cache.llamacpp.planner import DETOUR
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.request import Parameters
from kvchat.reports.warmth import Heat
from kvchat.store import Store
from tiny_models import tiny_models
from tiny_server import tiny_server

WORDS = "The lamp turned over the sea while the keeper wrote the log of the night. "
Maker = Callable[..., ChatService]
closed: list[ChatService] = []


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@pytest.fixture(params=[1, 2])
def server(request: pytest.FixtureRequest, dense: Path) -> Iterator[str]:
    with tiny_server(dense, n_parallel=request.param, n_ctx=4096 * request.param, kv_unified=False) as url:
        yield url


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Maker]:
    made: list[ChatService] = []
    closed.clear()

    def make(url: str, **cache: bool) -> ChatService:
        settings = changed(Settings(), "server.base_url", url)
        word = httpx.post(f"{url}/tokenize", json={"content": " sea"}).json()["tokens"]
        settings = replace(
            settings,
            parameters=Parameters(temperature=0.0, max_tokens=12, extra={"logit_bias": [[word[0], 100]]}),
            cache=replace(settings.cache, **cache),
        )  # type: ignore[arg-type]
        service = ChatService(Store.open(tmp_path / "data"), settings)
        made.append(service)
        return service

    yield make
    for service in made:
        if service not in closed:
            await service.aclose()


async def say(service: ChatService, id: str, text: str):
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    await service.servers.link().cache.settled()  # type: ignore[union-attr]
    conversation = service.conversations.get(id)
    assert conversation is not None
    figures = conversation.path()[-1].figures
    assert figures is not None
    return figures


@pytest.mark.engine
@pytest.mark.parametrize(
    ("template", "options", "costs"),
    [("EFFORT", {"reasoning_effort": "high"}, True), ("SWITCHED", {"enable_thinking": False}, False)],
)
async def test_an_option_of_the_template_costs_what_it_changes_of_the_prompt(
    make: Maker,
    dense: Path,
    template: str,
    options: dict[str, object],
    costs: bool,
) -> None:
    with tiny_server(dense, n_ctx=4096, chat_template=getattr(chat_templates, template)) as url:
        service = make(url)
        conversation = await service.new_conversations.create()
        for turn in range(3):
            await say(service, conversation.id, f"Question {turn}: {WORDS * 8}")
        facts = await service.tracker.template_facts(conversation.id)
        assert facts is not None and (facts.takes_effort, facts.switches_thinking) == (costs, not costs)
        price = await service.prices.exact(conversation.id, "template", options=options)
        assert price.worth_asking is costs
        await service.options.set_template_options(conversation.id, options)
        figures = await say(service, conversation.id, "And now?")
        before = await say(service, conversation.id, "And then?")
        assert price.tokens is not None and before.new_tokens is not None
        # The replies of a model of random weights do not all read back: 12 tokens each.
        assert abs(figures.evaluated_tokens - before.new_tokens - price.tokens) <= 32


async def test_what_an_act_would_read_is_what_it_reads(make: Maker, server: str) -> None:
    service = make(server)
    conversation = await service.new_conversations.create(WORDS * 20)
    for turn in range(5):
        await say(service, conversation.id, f"Question {turn}: {WORDS * (turn + 1)}")
    third = [n for n in conversation.path() if n.role.value == "user"][2]
    price = await service.prices.exact(conversation.id, "delete", third.id)
    await service.branches.delete_turn(conversation.id, third.id)
    figures = await say(service, conversation.id, "And now?")
    before = await say(service, conversation.id, "And then?")
    assert price.tokens is not None and before.new_tokens is not None
    assert abs(figures.evaluated_tokens - before.new_tokens - price.tokens) <= 1
    last = conversation.path()[-1]
    assert (await service.prices.exact(conversation.id, "regenerate", last.id)).tokens == 1
    await service.turns.regenerate(conversation.id, last.id)
    await service.conversations.wait(conversation.id)
    assert conversation.path()[-1].figures.evaluated_tokens == 1
    instructions = "Be brief, and different from the first word on."
    question = conversation.path()[-2]
    price = await service.prices.exact(conversation.id, "edit", question.id, WORDS * 3)
    await service.turns.edit(conversation.id, question.id, WORDS * 3)
    await service.conversations.wait(conversation.id)
    await service.servers.link().cache.settled()
    assert conversation.path()[-1].figures.evaluated_tokens == price.tokens
    first = conversation.path()[1]
    price = await service.prices.exact(conversation.id, "edit", first.id)  # before anything is written
    await service.turns.edit(conversation.id, first.id, first.text)
    await service.conversations.wait(conversation.id)
    await service.servers.link().cache.settled()
    figures = conversation.path()[-1].figures
    system = service.core.branch_requests.after(conversation.record, conversation.path()[:1])
    stays = len(service.servers.link().cache.prompts.known_prefix(system))
    assert abs(price.tokens - (figures.prompt_tokens - stays)) <= 1
    assert service.prices.estimate(conversation.id, "edit", first.id).tokens < figures.prompt_tokens
    everything = (await service.prices.exact(conversation.id, "system", text=instructions)).tokens
    await service.branches.set_instructions(conversation.id, instructions)
    figures = await say(service, conversation.id, "Again?")
    assert figures.cached_tokens <= 8 and everything is not None
    assert abs(everything + before.new_tokens - figures.evaluated_tokens) <= 2


async def test_every_turn_is_predicted(make: Maker, server: str) -> None:
    service = make(server)
    one = await service.new_conversations.create(WORDS * 10)
    two = await service.new_conversations.create(WORDS * 10 + "!", reuse=False)
    for turn in range(6):
        for conversation in (one, two) if turn % 2 else (two, one):
            figures = await say(service, conversation.id, f"Question {turn}: {WORDS}")
            assert figures.predicted_cached == figures.cached_tokens
    report = await service.cache_reports.report(one.id)
    assert (report.exact_predictions, report.predictions) == (12, 12)
    assert {state.owner for state in report.states} >= {one.record.title}


async def test_the_marks_say_what_is_held(make: Maker, server: str) -> None:
    service = make(server)
    one = await service.new_conversations.create(WORDS * 10)
    assert service.tracker.warmth(one.id).heat is Heat.UNKNOWN
    figures = await say(service, one.id, WORDS)
    found = service.tracker.warmth(one.id)
    assert found.heat is Heat.WARM and figures.prompt_tokens <= found.held < figures.context_used


async def test_a_server_that_outlives_kvchat_is_known_to_hold_its_conversations(make: Maker, server: str) -> None:
    first = make(server)
    one = await first.new_conversations.create(WORDS * 10)
    await say(first, one.id, WORDS)
    await first.aclose()
    closed.append(first)
    second = make(server)
    await second.conversations.open(one.id)
    await second.tracker.cache_of(await second.servers.link().connector.ready())
    second.warm_up.rest()
    await second.core.rest()
    assert second.tracker.warmth(one.id).heat is Heat.WARM
    figures = await say(second, one.id, "More?")
    assert figures.predicted_cached == figures.cached_tokens and figures.wasted_tokens <= 1


async def test_what_the_doctor_puts_into_the_slots_is_not_another_clients(make: Maker, server: str) -> None:
    service = make(server)
    conversation = await service.new_conversations.create(reuse=False)
    await say(service, conversation.id, WORDS * 3)
    cache = service.servers.link(conversation.id).cache
    assert cache is not None
    before = cache.journal.log.seen_of(server)
    await service.chooser.examined(lambda words: None, True)
    await say(service, conversation.id, "And then?")
    assert service.servers.link(conversation.id).cache is cache
    assert cache.journal.log.seen_of(server) == before


async def test_a_branch_that_is_gone_back_to_is_read_ahead(
    make: Maker,
    dense: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvchat.chat.cache.warm_up.REST_S", 0.05)
    with tiny_server(dense, n_parallel=1, n_ctx=4096, cache_ram_mib=0) as url:
        service = make(url, warm_up_on_battery=True)
        service.warm_up.enabled = True
        changed = asyncio.Event()
        service.events.subscribe(lambda event: changed.set())

        async def warm() -> None:
            while service.tracker.warmth(one.id).heat is not Heat.WARM:
                changed.clear()
                await asyncio.wait_for(changed.wait(), 120)

        await service.servers.connect()
        one = await service.new_conversations.create("Be brief.")
        await service.conversations.open(one.id)
        await warm()
        await say(service, one.id, WORDS * 30)
        question = one.path()[-2]
        await service.turns.edit(one.id, question.id, "Quite another question. " * 60)
        await service.conversations.wait(one.id)
        await service.branches.undo(one.id)
        await warm()
        figures = await say(service, one.id, "Back?")
        assert figures.wasted_tokens <= 1 and service.store.warmups().tokens > 400


async def test_two_questions_that_wait_for_each_other_are_played_one_after_the_other(make: Maker, server: str) -> None:
    service = make(server)
    both = [
        await service.new_conversations.create(f"Be brief, {name}. " + WORDS * 5, reuse=False)
        for name in ("one", "two")
    ]
    for turn in range(4):
        for conversation in both:
            await service.turns.send(conversation.id, Question(f"Question {turn}: {WORDS}"))
        for conversation in both:
            await service.conversations.wait(conversation.id)
    for conversation in both:
        for figures in conversation.figures():
            assert figures.predicted_cached == figures.cached_tokens and figures.cause is None


async def test_nothing_is_rendered_or_priced_on_a_server_that_was_not_agreed_to(
    make: Maker,
    server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = make(server)
    one = await service.new_conversations.create(WORDS)
    await say(service, one.id, "Hello")
    link = service.servers.link()
    while link.template is None:  # noqa: ASYNC110 (what was allowed is still under way)
        await asyncio.sleep(0.01)
    asked: list[object] = []
    monkeypatch.setattr(service.servers.link().cache.access, "prompt_text", asked.append)
    monkeypatch.setattr(service.servers.consent, "may_send_to", lambda *asked: False)
    service.warm_up.enabled = True
    await service.new_conversations.create(WORDS * 2, reuse=False)
    await service.prices.exact(one.id, "edit", one.path()[1].id, "A secret")
    await service.warm_up.warm(one.id)
    await service.turns.send(one.id, Question("Another secret"))
    await service.conversations.wait(one.id)
    assert asked == [] and one.path()[-1].state.value == "error"


async def test_what_stands_in_the_host_cache_is_not_priced_as_gone(make: Maker, dense: Path) -> None:
    with tiny_server(dense, n_parallel=1, n_ctx=4096, cache_ram_mib=1024) as url:
        service = make(url)
        one = await service.new_conversations.create(WORDS * 20)
        await say(service, one.id, WORDS * 40)
        other = await service.new_conversations.create("Another one. " * 30, reuse=False)
        await say(service, other.id, WORDS * 60)
        answer = one.path()[-1]
        price = await service.prices.exact(one.id, "regenerate", answer.id)
        await service.turns.regenerate(one.id, answer.id)
        await service.conversations.wait(one.id)
        await service.servers.link().cache.settled()
        figures = one.path()[-1].figures
        assert price.tokens is not None and figures is not None
        assert price.tokens - figures.evaluated_tokens in (0, len(DETOUR)), "the detour is part of the price"
        assert price.tokens < figures.prompt_tokens // 2
