"""What is told to be warm on servers that share prefixes among all conversations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from remembering_kit import remembering
from remembering_kit import said as asked

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.chat.cache import shared_prefixes
from kvchat.chat.cache.shared_prefixes import HELD_S, SharedPrefixes
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.message import Message, Node, Role, State, node, system_message
from kvchat.reports.warmth import UNKNOWN, Heat
from toyserver import ToyServer, reply, tokens

ROOT = node(None, system_message("Answer briefly."), 0.0)


def server(kind: str = "vllm", slots: int | None = None) -> SharedPrefixes:
    return SharedPrefixes(ServerInfo(kind, "http://127.0.0.1:9", HostClass.LOOPBACK, slots=slots))


def said(above: Node, text: str) -> Node:
    role = Role.ASSISTANT if above.role is Role.USER else Role.USER
    return node(above, Message(role, text), 0.0)


def turn(shared: SharedPrefixes, path: list[Node], number: int, at: float = 1.0, *, tells: bool = True) -> list[Node]:
    """One more turn after `path`, answered. `tells`: the server reports what it reused."""
    path = [*path, said(path[-1], f"question {number} " + "word " * 100)]
    shared.sent(path, at)
    answer = said(path[-1], f"answer {number} " + "word " * 100)
    figures = TurnFigures(prompt_tokens=100, cached_tokens=0, new_tokens=100) if tells else TurnFigures()
    answer = replace(answer, figures=figures)
    shared.answered(answer, at)
    return [*path, answer]


def test_a_conversation_is_warm_once_it_was_answered_and_a_branch_has_what_both_share():
    shared = server()
    first = turn(shared, [ROOT], 1)
    second = turn(shared, first, 2, at=5.0)
    warm = shared.warmth(second, 6.0)
    assert (warm.heat, warm.to_prefill, warm.since) == (Heat.WARM, 0, 5.0)
    other = [*first, said(first[-1], "something else " * 200)]
    partly = shared.warmth(other, 6.0)
    assert partly.held == shared.warmth(first, 6.0).held and partly.to_prefill == len(other[-1].wire) // 4 + 1
    assert shared.warmth([ROOT, said(ROOT, "new " * 500)], 6.0).heat is Heat.COLD


def test_what_was_not_used_for_long_is_unknown():
    shared = server()
    path = turn(shared, [ROOT], 1)
    assert shared.warmth(path, 1.0 + HELD_S).heat is Heat.WARM
    assert shared.warmth(path, 1.5 + HELD_S) is UNKNOWN


def test_what_is_read_ahead_is_warm():
    shared = server()
    path = [ROOT, said(ROOT, "question")]
    shared.read(path, 1.0)
    assert shared.warmth(path, 2.0).heat is Heat.WARM


def test_a_server_that_keeps_one_sequence_holds_the_last():
    shared = server("llama-cpp-python")
    first, second = turn(shared, [ROOT], 1), turn(shared, [ROOT], 2)
    assert shared.warmth(second, 2.0).heat is Heat.WARM
    assert shared.warmth(first, 2.0).held == len(ROOT.wire) // 4 + 1


@pytest.mark.parametrize("kind", ["openai", "lmstudio", "text-generation-webui", "llamafile", "jan"])
@pytest.mark.parametrize("slots", [None, 1])
def test_a_server_that_may_have_one_slot_and_reports_nothing_is_unknown(kind, slots):
    shared = server(kind, slots=slots)
    first, second = turn(shared, [ROOT], 1, tells=False), turn(shared, [ROOT], 2, tells=False)
    assert shared.warmth(first, 2.0) is UNKNOWN and shared.warmth(second, 2.0) is UNKNOWN


@pytest.mark.parametrize("known", [{"slots": 2}, {"kind": "vllm"}, {"kind": "llama-cpp-python", "slots": 1}])
def test_what_a_silent_server_holds_is_told_where_it_is_known_to_hold_it(known):
    shared = server(**{"kind": "openai", **known})
    assert shared.warmth(turn(shared, [ROOT], 1, tells=False), 2.0).heat is Heat.WARM


def test_a_stopped_answer_without_figures_takes_no_word_from_a_server_that_reports():
    shared = server("openai")
    path = turn(shared, [ROOT], 1)
    shared.sent([*path, said(path[-1], "and then?")], 2.0)
    shared.answered(replace(said(shared._sent[-1], "w"), state=State.CANCELLED), 2.0)
    assert shared.warmth(path, 2.0).heat is Heat.WARM


def test_much_waste_says_that_nothing_else_is_held():
    shared = server()
    first = turn(shared, [ROOT], 1)
    question = said(ROOT, "another one")
    shared.sent([ROOT, question], 2.0)
    figures = TurnFigures(prompt_tokens=1000, cached_tokens=0, new_tokens=100)
    answer = replace(said(question, "yes"), figures=figures)
    shared.answered(answer, 2.0)
    assert shared.warmth([ROOT, question, answer], 2.0).heat is Heat.WARM
    assert shared.warmth(first, 2.0).heat is Heat.COLD


def test_an_answer_that_reads_back_as_other_tokens_tells_nothing_of_other_conversations():
    shared = server()
    other, path = turn(shared, [ROOT], 1), turn(shared, [ROOT], 2)
    before = sum(len(node.wire) // 4 + 1 for node in path[:-1])
    question = said(path[-1], "and then?")
    shared.sent([*path, question], 2.0)
    figures = TurnFigures(prompt_tokens=before + 300, cached_tokens=before, new_tokens=10)
    shared.answered(replace(said(question, "yes"), figures=figures), 2.0)
    assert shared.warmth(other, 2.0).heat is Heat.WARM


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30), st.integers(100, 2000))
def test_the_room_is_kept_and_what_is_held_was_sent_from_its_beginning(steps, room):
    """Branches at random: within the room, and never a message without those above it."""
    shared, paths, number = server(), [[ROOT]], 0
    old, shared_prefixes.ROOM = shared_prefixes.ROOM, room
    try:
        for which, back in steps:
            path = paths[which % len(paths)]
            path = path[: len(path) - 2 * back] if len(path) > 2 * back else [ROOT]
            paths.append(turn(shared, path, number := number + 1, at=float(number)))
            assert sum(tokens for tokens, _ in shared._held.values()) == shared._tokens <= room
            for known in paths:
                there = [one.digest in shared._held for one in known]
                assert there == sorted(there, reverse=True)
    finally:
        shared_prefixes.ROOM = old


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 501])
async def test_a_conversation_that_was_just_answered_is_never_told_cold_where_the_template_is_refused(tmp_path, status):
    async with ToyServer(slots=2) as server:
        server.on("/apply-template", reply(status, {"error": "no"}))
        server.on("/tokenize", reply(status, {"error": "no"}))
        async with remembering(server.url, tmp_path, enabled=False) as service:
            server.on_chat(tokens("Yes.", prompt=50, cached=10))
            id = (await service.new_conversations.create("Be brief.")).id
            for number in range(2):
                await asked(service, id, f"Question {number}")
                cache = service.servers.link(id).cache
                if cache is not None:
                    await cache.settled()
                assert service.tracker.warmth(id).heat is (Heat.UNKNOWN if status in (400, 500) else Heat.WARM)
