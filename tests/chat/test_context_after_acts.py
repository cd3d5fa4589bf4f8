"""The context figure after acts that make a branch, on a real server: what the next prompt has, within a little."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine_fixture import running_server
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.request import Parameters
from kvchat.store import Store

pytestmark = pytest.mark.engine

LONG = "The keeper of the light walks up the stairs each evening and writes the wind and the sea into the log. " * 12
SHORT = Parameters(max_tokens=8, temperature=0.0)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[ChatService]:
    with running_server(context=4096) as server:
        service = ChatService(Store.open(tmp_path / "data"), changed(Settings(), "server.base_url", server.base_url))
        service.warm_up.enabled = False
        try:
            await service.servers.connect()
            yield service
        finally:
            await service.aclose()


async def asked(service: ChatService, id: str, text: str) -> None:
    await service.turns.send(id, Question(text), parameters=SHORT)
    await service.conversations.wait(id)


async def talked(service: ChatService) -> OpenConversation:
    conversation = await service.new_conversations.create("Be brief.")
    for text in (LONG, f"And this? {LONG[: len(LONG) // 2]}", "One more?"):
        await asked(service, conversation.id, text)
    return conversation


def known(service: ChatService, conversation: OpenConversation) -> int:
    """The figure on the screen, which the list has too."""
    (row,) = (one for one in service.conversations.all() if one.id == conversation.id)
    assert row.context_used == conversation.context_used is not None
    return conversation.context_used or 0


@pytest.mark.parametrize("act", ["first", "middle", "last", "both", "instructions", "fork"])
async def test_the_figure_is_about_that_of_the_branch(service: ChatService, act: str) -> None:
    conversation = await talked(service)
    id, path, before = conversation.id, conversation.path(), known(service, conversation)
    assert conversation.context_is_exact
    match act:
        case "instructions":
            await service.branches.set_instructions(id, f"Be long. {LONG}")
        case "both":
            await service.branches.delete_turn(id, path[1].id)
            await service.branches.delete_turn(id, conversation.path()[1].id)
        case "fork":
            await service.branches.delete_turn(id, path[1].id)
            conversation = await service.branches.fork(id, conversation.path()[-1].id)
        case _:
            await service.branches.delete_turn(id, path[{"first": 1, "middle": 3, "last": 5}[act]].id)
    told, exact = known(service, conversation), conversation.context_is_exact
    assert exact is (act == "last") and told != before
    await asked(service, conversation.id, "So?")
    figures = conversation.path()[-1].figures
    assert figures is not None and figures.prompt_tokens is not None
    there = figures.prompt_tokens - 20  # the question and what the template puts around it
    assert abs(told - there) <= max(30, 0.15 * there), (told, there, before)
    assert conversation.context_is_exact


async def test_walking_back_brings_the_figure_of_the_branch_back(service: ChatService) -> None:
    conversation = await talked(service)
    before, id = known(service, conversation), conversation.id
    await service.branches.delete_turn(id, conversation.path()[1].id)
    shorter = known(service, conversation)
    assert await service.branches.undo(id)
    assert (known(service, conversation), conversation.context_is_exact) == (before, True)
    await service.branches.walk(id, conversation.path()[1].id, 1)
    assert shorter < before / 2 and abs(known(service, conversation) - shorter) <= 40
