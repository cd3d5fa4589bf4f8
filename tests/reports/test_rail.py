"""The rail: what is shown of where every message's tokens are."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.prompt.extents import ends_of
from kvchat.prompt.message import Message, Role, node
from kvchat.reports.rail import NO_WORD, Cached, Stretch, Where

SIZES = st.lists(st.integers(0, 500), max_size=12)


@given(SIZES, st.integers(0, 6000), st.sampled_from([Where.SLOT, Where.STORED]))
def test_the_tokens_shown_as_cached_are_those_that_are(sizes: list[int], cached: int, where: Where) -> None:
    ends = list(accumulate(sizes))
    found = Cached(cached, where).stretches(ends)
    shown = sum(stretch.share * size for stretch, size in zip(found, sizes, strict=True) if stretch.where is where)
    assert abs(shown - min(cached, sum(sizes))) <= NOISE
    at = [stretch.share if stretch.where is where else 0.0 for stretch in found]
    assert at == sorted(at, reverse=True), "what is cached is a prefix"


def test_what_a_server_does_not_tell_is_unknown() -> None:
    assert Cached().stretches([10, 20]) == [NO_WORD, NO_WORD]


def test_the_held_back_token_of_a_reply_is_no_gap() -> None:
    assert Cached(19, Where.SLOT).stretches([10, 20])[-1] == Stretch(Where.SLOT)
    assert Cached(10, Where.SLOT).stretches([10, 100])[-1] == Stretch(Where.NOWHERE)


def test_messages_end_where_the_servers_figures_say_and_dropped_reasoning_is_in_no_later_prompt() -> None:
    system = node(None, Message(Role.SYSTEM, "Be brief."), 0.0)
    path = [system]
    for prompt, reply in ((40, 500), (80, 10)):
        path.append(node(path[-1], Message(Role.USER, "Why?"), 0.0))
        path.append(
            node(
                path[-1],
                Message(Role.ASSISTANT, "So."),
                0.0,
                figures=TurnFigures(prompt_tokens=prompt, predicted_tokens=reply),
            )
        )
    assert ends_of(path)[1:] == [40, 80, 80, 90]
    path.append(node(path[-1], Message(Role.USER, "x" * 400), 0.0))
    path.append(node(path[-1], Message(Role.ASSISTANT, ""), 0.0))
    assert ends_of(path)[4] == 90 and 180 < ends_of(path)[5] < 230
    assert ends_of(path, prompt=130)[5:] == [130, 130]
    assert ends_of(path, prompt=300, begun=True)[4:] == [90, ends_of(path)[5], 300]
