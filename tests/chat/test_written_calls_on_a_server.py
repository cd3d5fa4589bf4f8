"""Calls that came as text, on a real server: what is predicted of the cache behind one is what happens, in whatever
words the template prints it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from chat_templates import CALLING
from engine_fixture import small_model
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.message import Role
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from tiny_models import tiny_models
from tiny_server import tiny_server

pytestmark = pytest.mark.engine
CALL = {"name": "read_file", "arguments": {"path": "a.txt"}}
IN_WORDS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content if m.content else '' }}{% for c in m.tool_calls or [] %}WORDS{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Prints calls, of which it sees name and arguments, in words of its own."""
SEEN = "{{ c.function.name[:0] }}{{ (c.function.arguments | tojson)[:0] }}"


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@pytest.fixture
async def steps(dense: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., object]]:
    """Has a model that answers nothing but a call's JSON asked once, on a server with this template; the figures of
    its answers."""
    (tmp_path / "a.txt").write_text("The keeper is called Agnes.\n")
    monkeypatch.chdir(tmp_path)
    schema = {"type": "json_schema", "json_schema": {"schema": {"const": CALL}}}

    async def steps(template: str) -> list[TurnFigures]:
        with tiny_server(dense, n_ctx=4096, chat_template=template) as url:
            service = ChatService(Store.open(None), changed(Settings(), "server.base_url", url))
            try:
                service.tools.give(["read_file"])
                conversation = await service.new_conversations.create(tools=["files"], reuse=False)
                wanted = Parameters(temperature=0.0, max_tokens=120, response_format=schema)
                await service.options.set_parameters(conversation.id, wanted)
                await service.turns.send(conversation.id, Question("Who?"))
                await service.conversations.wait(conversation.id)
            finally:
                await service.aclose()
        answers = [one for one in conversation.path() if one.role is Role.ASSISTANT]
        assert len(answers) > 2 and answers[0].message.calls and not answers[0].text
        return [one.figures for one in answers if one.figures is not None]

    yield steps


@pytest.mark.parametrize("template", ["chatml", CALLING["object"], IN_WORDS.replace("WORDS", f"{SEEN}a call")])
async def test_what_is_cached_behind_a_call_that_came_as_text_is_predicted(steps, template: str) -> None:
    figures = await steps(template)
    assert [one.predicted_cached for one in figures] == [one.cached_tokens for one in figures]
    assert {one.cause for one in figures if one.notable_waste} <= {"retokenised"}, "what the template prints of it"


async def test_one_that_is_printed_in_as_many_other_tokens_is_not_taken_for_cached(steps) -> None:
    first, *_ = await steps("chatml")
    words = " sea" * ((first.predicted_tokens or 0) - 1)
    figures = await steps(IN_WORDS.replace("WORDS", SEEN + words))
    assert [one.predicted_cached for one in figures] == [one.cached_tokens for one in figures]
