"""What a chat template does: read from its text, and seen in the prompts that a real server makes with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path

import pytest
from backend_kit import endpoint_of, llamacpp_at
from msgspec.structs import replace

import chat_templates as templates
from corpus import corpus
from engine_fixture import small_model
from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import Backend, TemplateFacts
from kvchat.backends.identify import connect
from kvchat.backends.template import dates, facts_of_text, merged, rendering, template_facts
from tiny_models import tiny_models
from tiny_server import tiny_server
from toyserver import ToyServer, reply

PLAIN = TemplateFacts(
    date=False,
    drops_reasoning=False,
    system_role=True,
    moves_system=False,
    alternates=False,
    keeps_prefix=True,
    switches_thinking=False,
    takes_effort=False,
)
EXPECTED: dict[str, TemplateFacts] = {
    "CHATML": PLAIN,
    "DATED": replace(PLAIN, date=True),
    "FORGETFUL": replace(PLAIN, drops_reasoning=True),
    "KEEPING": replace(PLAIN, drops_reasoning=True),
    "SWITCHED": replace(PLAIN, drops_reasoning=True, switches_thinking=True),
    "EFFORT": replace(PLAIN, drops_reasoning=True, takes_effort=True),
    "NO_SYSTEM": replace(PLAIN, system_role=False, alternates=True),
    "MOVING": replace(PLAIN, moves_system=True, keeps_prefix=False),
}


# -- the text -------------------------------------------------------------------------------------------------------


@corpus("name", EXPECTED)
def test_the_text_alone_never_says_what_the_prompts_contradict(name: str) -> None:
    told, seen = facts_of_text(getattr(templates, name)), EXPECTED[name]
    for fact in TemplateFacts.__struct_fields__:
        assert getattr(told, fact) in (None, getattr(seen, fact)), fact


@corpus(
    ("name", "facts"),
    [
        ("DATED", {"date": True}),
        ("FORGETFUL", {"drops_reasoning": True}),
        ("KEEPING", {"drops_reasoning": True}),
        ("NO_SYSTEM", {"system_role": False, "alternates": True}),
        ("CHATML", {"switches_thinking": False, "takes_effort": False}),
        ("SWITCHED", {"switches_thinking": True}),
        ("EFFORT", {"takes_effort": True}),
        ("MOVING", {"moves_system": True, "keeps_prefix": False}),
        ("OLLAMA_DATED", {"date": True}),
        ("OLLAMA_THINKING", {"drops_reasoning": True}),
        ("OLLAMA_MOVING", {"moves_system": True, "keeps_prefix": False, "system_role": True}),
        ("OLLAMA_CHATML", {"date": False, "drops_reasoning": False, "moves_system": False}),
    ],
)
def test_the_text_tells_the_habit_it_is_known_for(name: str, facts: dict[str, bool]) -> None:
    told = facts_of_text(getattr(templates, name))
    assert {fact: getattr(told, fact) for fact in facts} == facts


@pytest.mark.parametrize(
    ("text", "drops"),
    [
        ("{% set content = content.split('</think>')[-1] %}", True),
        ("{% if preserve or loop.index0 > ns.last_user_index %}<think>{{ m.reasoning_content }}</think>", True),
        ("<think>{{ m.reasoning_content }}</think>{{ m.content.split('</think>')[-1] }}", None),
        ("{{ m.content }}", False),
    ],
)
def test_reasoning_is_known_to_be_dropped_only_where_the_text_shows_it(text: str, drops: bool | None) -> None:
    assert facts_of_text(text).drops_reasoning is drops


@pytest.mark.parametrize(
    "text",
    [
        "{{ raise_exception('System message must be at the beginning.') }}",
        '{{- raise_exception("Only user, assistant and system roles are supported!") }}',
    ],
)
def test_a_rule_about_the_system_message_is_no_refusal_of_it(text: str) -> None:
    assert facts_of_text(text).system_role is True


@pytest.mark.parametrize("text", ["", "  \n"])
def test_without_a_text_nothing_is_known(text: str) -> None:
    assert facts_of_text(text) == TemplateFacts()


def test_what_is_better_known_wins_and_what_it_leaves_open_stays() -> None:
    known = TemplateFacts(date=True, alternates=True)
    assert merged(known, TemplateFacts(date=False)) == TemplateFacts(date=False, alternates=True)


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-05",
        "05 Nov 2026",
        "5 November 2026",
        "November 5, 2026",
        "Nov 05, 2026",
        "05/11/2026",
        "11/05/2026",
    ],
)
def test_a_day_is_recognised_as_templates_write_it(written: str) -> None:
    assert written.lower() in dates(date(2026, 11, 5))
    assert written.lower() not in dates(date(2026, 11, 6))


# -- a real server's prompts ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@asynccontextmanager
async def served(model: Path, name: str) -> AsyncIterator[Backend]:
    with tiny_server(model, chat_template=getattr(templates, name), n_ctx=4096) as url:
        yield await connect(url)


@pytest.mark.engine
@pytest.mark.parametrize("name", EXPECTED)
async def test_a_real_server_shows_what_its_template_does(model: Path, name: str) -> None:
    async with served(model, name) as backend:
        assert await template_facts(backend) == EXPECTED[name]


@pytest.mark.engine
async def test_the_options_that_change_a_template_are_found_out(model: Path) -> None:
    async with served(model, "KEEPING") as backend:
        assert (await rendering(backend)).keeps_when_asked is True
    async with served(model, "FORGETFUL") as backend:
        assert (await rendering(backend)).keeps_when_asked is False
    async with served(model, "DATED") as backend:
        found = await rendering(backend)
        assert found.date_option is True and found.keeps_when_asked is None


@pytest.mark.engine
async def test_rendering_takes_none_of_the_models_time_and_touches_no_slot(model: Path) -> None:
    async with served(model, "CHATML") as backend:
        await rendering(backend)
        slots = await backend.slot_counts()  # type: ignore[attr-defined]
        assert [(slot.tokens, slot.task) for slot in slots] == [(0, None)]


# -- servers that give less -----------------------------------------------------------------------------------------


async def test_the_text_is_enough_where_prompts_are_not_rendered() -> None:
    async with ToyServer() as server:
        server.on("/props", reply(200, {"chat_template": templates.MOVING}, server="llama.cpp"))
        facts = await template_facts(llamacpp_at(server))
        assert facts.moves_system is True and facts == facts_of_text(templates.MOVING)


async def test_a_server_that_gives_neither_leaves_what_its_dialect_knew() -> None:
    async with ToyServer("openai") as server:
        backend = OneTokenWarmUp(endpoint_of(server))
        assert await template_facts(backend) == TemplateFacts()
        backend._info = replace(backend.info, template=TemplateFacts(date=True))
        assert await template_facts(backend) == TemplateFacts(date=True)


async def test_a_server_whose_properties_are_garbage_leaves_all_unknown() -> None:
    async with ToyServer() as server:
        server.on("/props", reply(200, {"chat_template": ["no", "text"]}, server="llama.cpp"))
        assert await template_facts(llamacpp_at(server)) == TemplateFacts()
