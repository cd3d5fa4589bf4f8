"""Token ids as one value: where two prompts part."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from kvchat.cache.tokens import NO_TOKENS, Tokens

IDS = st.lists(st.integers(0, 3), max_size=40)


@given(IDS, IDS)
def test_the_common_prefix_is_where_the_ids_part(a: list[int], b: list[int]) -> None:
    expected = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))))
    assert Tokens(a).common(Tokens(b)) == expected == Tokens(b).common(Tokens(a))


@given(st.integers(0, 20_000), st.integers(0, 20_000), st.integers(0, 20_000))
def test_long_prompts_part_at_the_very_token(common: int, left: int, right: int) -> None:
    a = Tokens([7] * common + [1] * left)
    b = Tokens([7] * common + [2] * right)
    assert a.common(b) == common


@given(IDS, st.integers(0, 50))
def test_a_prompt_is_its_beginning_and_what_follows(ids: list[int], count: int) -> None:
    tokens = Tokens(ids)
    assert list(tokens.first(count)) == ids[:count]
    assert list(tokens.after(count)) == ids[count:]
    assert tokens.first(count) + tokens.after(count) == tokens
    assert tokens.starts_with(tokens.first(count))


@given(IDS, IDS)
def test_starts_with_means_all_of_the_other_is_common(a: list[int], b: list[int]) -> None:
    assert Tokens(a).starts_with(Tokens(b)) == (Tokens(a).common(Tokens(b)) == len(b))


@given(IDS, st.integers(1, 5), IDS)
def test_unknown_tokens_are_like_no_others(before: list[int], unknown: int, after: list[int]) -> None:
    held = Tokens(before) + Tokens.unknown(unknown) + Tokens(after)
    assert len(held) == len(before) + unknown + len(after)
    assert held.common(held) == len(before)
    assert held.common(Tokens([*before, *[-1] * unknown, *after])) == len(before)
    assert held.after(len(before) + unknown) == Tokens(after)
    assert held.after(len(before) + unknown).common(Tokens(after)) == len(after)
    assert held.first(len(before) + 1).common(held) == len(before)


def test_equal_ids_are_equal_values() -> None:
    assert Tokens([1, 2]) == Tokens((1, 2)) != Tokens([1, 3])
    assert len({Tokens([1, 2]), Tokens([1, 2]), Tokens([2, 1])}) == 2
    assert not NO_TOKENS
    assert NO_TOKENS.common(Tokens([1])) == 0
