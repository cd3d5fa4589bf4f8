"""The simulator of the server's cache on its own: what it says follows from what it was told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.hypotheses import Hypotheses
from kvchat.cache.llamacpp.simulator import Held, Prediction, Simulator, StatePlace
from kvchat.cache.tokens import NO_TOKENS, Tokens

DENSE = Shape()
A, B = 1000, 2000


def ids(start: int, count: int) -> Tokens:
    """`count` different ids from `start`."""
    return Tokens(range(start, start + count))


def turn(
    simulator: Simulator,
    prompt: Tokens,
    owner: str = "",
    slot: int | None = None,
    sampled: Tokens = NO_TOKENS,
) -> Prediction:
    found = simulator.begin(prompt, owner, 0.0, slot)
    simulator.end(found.slot, sampled)
    return found


def test_the_next_turn_reads_only_what_is_new_and_the_last_sampled_token() -> None:
    simulator, first, answer = Simulator(DENSE), ids(A, 100), ids(5000, 20)
    turn(simulator, first, sampled=answer)
    assert simulator.predict(first + answer + ids(9000, 30)).cached == 119


def test_the_same_prompt_again_reads_its_last_token() -> None:
    simulator, prompt = Simulator(DENSE), ids(A, 100)
    turn(simulator, prompt)
    found = simulator.predict(prompt)
    assert (found.common, found.cached, found.source) == (100, 99, "slot")


def test_a_parked_state_that_a_later_one_begins_with_goes_when_its_ids_are_found() -> None:
    simulator, first, longer = Simulator(DENSE), ids(A, 100), ids(A, 150)
    unknown = [Held(Tokens.unknown(100), "a"), Held(Tokens.unknown(90), "b"), Held(Tokens.unknown(150), "a")]
    simulator.recall([None], unknown, [])
    simulator.identify(lambda held: held)
    assert len(simulator.parked) == 3, "what is unknown may be of any conversation"
    known = {100: first, 150: longer}
    simulator.identify(lambda held: replace(held, tokens=known.get(len(held.tokens), held.tokens)))
    assert [held.owner for held in simulator.parked] == ["b", "a"]
    assert simulator.parked[1].tokens == longer


def test_an_unrelated_prompt_parks_the_slot_and_it_comes_back() -> None:
    simulator, first, other = Simulator(DENSE), ids(A, 100), ids(B, 100)
    turn(simulator, first, "a")
    found = turn(simulator, other, "b")
    assert (found.cached, found.source, found.chosen_by, found.replaces) == (0, "nothing", "least recent", None)
    assert [held.owner for held in simulator.parked] == ["a"]
    back = turn(simulator, first + ids(9000, 10), "a")
    assert (back.cached, back.source, back.best, back.best_where) == (100, "parked", 100, StatePlace("parked", 0))
    assert [held.owner for held in simulator.parked] == ["b"]


def test_without_memory_for_parked_states_the_slot_is_lost() -> None:
    simulator = Simulator(replace(DENSE, ram_bytes=0))
    turn(simulator, ids(A, 100), "a")
    found = turn(simulator, ids(B, 100), "b")
    assert found.replaces is not None
    assert found.replaces.owner == "a"
    assert simulator.predict(ids(A, 100)).best == 0


def test_a_parked_state_is_not_looked_up_while_the_slot_keeps_half_of_its_own() -> None:
    system, simulator = ids(A, 40), Simulator(DENSE)
    turn(simulator, system + ids(3000, 200), "long")
    turn(simulator, system + ids(4000, 10), "short")
    found = simulator.predict(system + ids(3000, 210))
    assert (found.cached, found.best, found.best_where) == (40, 240, StatePlace("parked", 0))


def test_a_pin_beyond_the_last_slot_has_parked_states_looked_up() -> None:
    system, simulator = ids(A, 40), Simulator(DENSE)
    turn(simulator, system + ids(3000, 200), "long")
    turn(simulator, system + ids(4000, 10), "short")
    found = simulator.predict(system + ids(3000, 210), slot=1)
    assert (found.slot, found.cached, found.source, found.chosen_by) == (0, 240, "parked", "pinned")


def test_with_one_cache_for_all_slots_idle_ones_are_parked_and_emptied() -> None:
    simulator = Simulator(Shape(slots=3, unified=True))
    turn(simulator, ids(A, 100), "a")
    turn(simulator, ids(B, 100), "b")
    assert [held.owner if held else None for held in simulator.slots] == [None, "b", None]
    assert [held.owner for held in simulator.parked] == ["a"]
    assert simulator.predict(ids(A, 100), slot=0).cached == 0  # an empty slot that is pinned looks nothing up


def test_slots_of_their_own_keep_their_states_and_copies_are_parked() -> None:
    simulator = Simulator(Shape(slots=2))
    turn(simulator, ids(A, 100), "a", slot=0)
    turn(simulator, ids(B, 100), "b", slot=1)
    assert [held and held.owner for held in simulator.slots] == ["a", "b"]
    assert [held.owner for held in simulator.parked] == ["a"]
    assert simulator.predict(ids(A, 110)).slot == 0


def test_slots_that_were_never_used_are_taken_from_the_last_one() -> None:
    simulator = Simulator(Shape(slots=3))
    assert [turn(simulator, ids(1000 * at, 50)).slot for at in range(4)] == [2, 1, 0, 2]


def test_a_slot_with_a_tenth_of_the_prompt_or_less_is_not_chosen_for_it() -> None:
    simulator = Simulator(Shape(slots=2))
    turn(simulator, ids(A, 10), slot=1)
    assert simulator.predict(ids(A, 100)).chosen_by == "least recent"
    assert simulator.predict(ids(A, 99)).chosen_by == "prefix"


def test_a_busy_slot_is_left_alone() -> None:
    simulator = Simulator(Shape(slots=2, unified=True))
    first = simulator.begin(ids(A, 100), "a", 0.0)
    second = simulator.begin(ids(A, 110), "b", 0.0)
    assert {first.slot, second.slot} == {0, 1}
    assert not simulator.parked
    assert all(simulator.slots)


def test_a_parked_state_of_which_little_is_of_use_stays_parked() -> None:
    simulator = Simulator(DENSE)
    turn(simulator, ids(A, 24) + ids(3000, 76), "a")
    turn(simulator, ids(B, 10), "b")
    assert simulator.predict(ids(A, 24) + ids(4000, 10)).cached == 0
    turn(simulator, ids(A, 25) + ids(5000, 75), "c")
    turn(simulator, ids(B, 10), "b")
    assert simulator.predict(ids(A, 25) + ids(4000, 10)).cached == 25


def test_a_parked_state_that_would_lose_a_larger_part_of_itself_than_the_slot_stays_parked() -> None:
    simulator = Simulator(DENSE)
    turn(simulator, ids(A, 300) + ids(3000, 700), "long")
    turn(simulator, ids(A, 40) + ids(4000, 60), "short")
    found = simulator.predict(ids(A, 300) + ids(9000, 10))
    assert (found.source, found.cached, found.best) == ("slot", 40, 300)


def test_a_conversation_that_grew_is_parked_once() -> None:
    simulator = Simulator(Shape(slots=2))
    for length in (100, 200):
        turn(simulator, ids(A, length), "a", slot=0)
        turn(simulator, ids(B, 50), "b", slot=1)
    assert [(held.owner, len(held.tokens)) for held in simulator.parked] == [("b", 50), ("a", 200)]


def test_the_oldest_parked_states_go_when_there_is_no_room() -> None:
    simulator = Simulator(Shape(ram_bytes=2500, token_bytes=10))
    for at, owner in enumerate("abcd"):
        turn(simulator, ids(1000 * at, 100), owner)
    assert [held.owner for held in simulator.parked] == ["b", "c"]
    turn(simulator, ids(7000, 300), "large")
    turn(simulator, ids(8000, 10), "e")
    assert [held.owner for held in simulator.parked] == ["c", "d"], "a state larger than all the room is not parked"


def test_without_a_limit_in_bytes_the_context_limits_the_parked_tokens() -> None:
    simulator = Simulator(Shape(ram_bytes=None, context=250))
    for at, owner in enumerate("abcd"):
        turn(simulator, ids(1000 * at, 100), owner)
    assert [held.owner for held in simulator.parked] == ["b", "c"]


def test_a_cancelled_prompt_keeps_what_was_read() -> None:
    simulator, prompt = Simulator(DENSE), ids(A, 1000)
    found = simulator.begin(prompt, "a", 0.0)
    simulator.cut(found.slot, 512)
    assert simulator.predict(prompt).cached == 512
    assert simulator.observe([768]) == [], "the server finished one more batch"
    assert simulator.predict(prompt).cached == 768
    simulator.begin(prompt, "a", 0.0)
    simulator.cut(found.slot, 0)
    assert simulator.predict(prompt).cached == 768, "what was cached stays"


def test_a_stopped_answer_may_have_gone_on_a_little() -> None:
    simulator, prompt, answer = Simulator(DENSE), ids(A, 100), ids(5000, 10)
    simulator.begin(prompt, "a", 0.0)
    simulator.end(0, answer, stopped=True)
    assert simulator.observe([112]) == []
    assert simulator.predict(prompt + answer).cached == 109
    simulator.begin(prompt, "a", 0.0)
    simulator.end(0, answer, stopped=True)
    assert len(simulator.observe([800])) == 1, "so much is not late, it is another client"


def test_the_last_token_of_a_stopped_answer_may_be_held_too() -> None:
    simulator, prompt, answer = Simulator(DENSE), ids(A, 100), ids(5000, 20)
    simulator.begin(prompt, "", 0.0)
    simulator.end(0, answer, stopped=True)
    assert simulator.observe([120]) == []
    assert simulator.predict(prompt + answer + ids(9000, 10)).cached == 120


def test_a_slot_that_is_found_empty_was_erased_and_what_it_held_is_not_parked() -> None:
    simulator = Simulator(replace(DENSE, slots=2))
    turn(simulator, ids(A, 100), "a", slot=0)
    (found,) = simulator.observe([0, 0])
    assert found.held is not None and found.count == 0
    assert simulator.parked == ()


@pytest.mark.parametrize("rewind", [Rewind.NOWHERE, Rewind.WINDOW])
def test_checkpoints_beyond_what_the_server_reused_are_gone(rewind: Rewind) -> None:
    shape = Shape(rewind=rewind, window=32, batch=64, micro_batch=64)
    simulator, prompt = Simulator(shape), ids(A, 600)
    turn(simulator, prompt)
    other = prompt.first(560) + ids(7000, 20)
    said = simulator.begin(other, "", 0.0)
    assert said.cached > 500
    simulator.reported(said.slot, 0)
    simulator.end(said.slot, NO_TOKENS)
    held = simulator.slots[said.slot]
    assert held is not None and held.tokens == other
    assert min(c.request for c in held.checkpoints) == said_request(simulator), "all were made by this request"


def said_request(simulator: Simulator) -> int:
    """The number of the last request."""
    return simulator._clock - 1


def test_a_task_that_is_seen_late_may_be_the_stopped_one() -> None:
    """It was cancelled before its slot showed its number."""
    for count in (100, 112):
        simulator, prompt = Simulator(DENSE), ids(A, 100)
        simulator.begin(prompt, "a", 0.0)
        simulator.end(0, ids(5000, 1), stopped=True)
        assert simulator.observe([count], used=[0]) == []
        assert simulator.predict(prompt + ids(6000, 9)).cached == 100


def test_a_count_that_does_not_fit_means_another_client() -> None:
    simulator, prompt = Simulator(replace(DENSE, ram_bytes=0)), ids(A, 100)
    turn(simulator, prompt, "a")
    assert simulator.observe([100]) == []
    (found,) = simulator.observe([37])
    assert (found.slot, found.held and found.held.owner, found.count) == (0, "a", 37)
    held = simulator.slots[0]
    assert held is not None
    assert (held.owner, len(held.tokens)) == ("", 37)
    assert simulator.predict(prompt).best == 0
    assert simulator.observe([37]) == []


def test_what_another_client_pushed_out_is_parked_where_the_server_parks() -> None:
    simulator, prompt = Simulator(DENSE), ids(A, 100)
    turn(simulator, prompt, "a")
    simulator.observe([37])
    assert simulator.predict(prompt).source == "parked"


def test_a_restart_forgets_all() -> None:
    simulator = Simulator(Shape(slots=2))
    turn(simulator, ids(A, 100))
    turn(simulator, ids(B, 100))
    simulator.forget()
    assert not any(simulator.slots)
    assert not simulator.parked
    assert simulator.predict(ids(A, 100)).best == 0


def test_a_restored_slot_serves_its_conversation() -> None:
    simulator = Simulator(DENSE)
    simulator.restored(0, Held(ids(A, 100), "a", 5.0))
    assert simulator.predict(ids(A, 120)).cached == 100
    simulator.cleared(0)
    assert simulator.predict(ids(A, 120)).cached == 0


def test_a_hybrid_model_goes_on_but_goes_back_only_to_a_checkpoint() -> None:
    simulator = Simulator(Shape(rewind=Rewind.NOWHERE))
    prompt = ids(A, 1000)
    turn(simulator, prompt, sampled=ids(5000, 10))
    assert simulator.predict(prompt + ids(5000, 9) + ids(9000, 5)).cached == 1009
    assert simulator.predict(prompt).cached == 996, "four tokens before the end of the prompt"
    assert simulator.predict(prompt.first(900) + ids(9000, 5)).cached == 484, "one batch before that"
    assert simulator.predict(prompt.first(300) + ids(9000, 5)).cached == 0


def test_a_hybrid_model_reads_from_a_checkpoint_when_nothing_is_new() -> None:
    simulator, prompt = Simulator(Shape(rewind=Rewind.NOWHERE)), ids(A, 1000)
    for cached in (0, 996, 996):
        assert turn(simulator, prompt).cached == cached
        held = simulator.slots[0]
        assert held is not None
        assert [c.tokens for c in held.checkpoints] == [484, 996]


def test_the_start_of_the_last_question_is_a_checkpoint() -> None:
    simulator = Simulator(Shape(rewind=Rewind.NOWHERE))
    prompt = ids(A, 5000)
    simulator.begin(prompt, "a", 0.0, users=[1000, 1200, 3000])
    simulator.end(0, NO_TOKENS)
    held = simulator.slots[0]
    assert held is not None
    assert [c.tokens for c in held.checkpoints] == [1000, 3000, 4484, 4996]
    assert simulator.predict(prompt.first(3500) + ids(9000, 5)).cached == 3000


def test_a_sliding_window_goes_back_within_its_window() -> None:
    shape = Shape(rewind=Rewind.WINDOW, window=128)
    simulator, prompt = Simulator(shape), ids(A, 3000)
    turn(simulator, prompt)
    assert simulator.predict(prompt.first(2900) + ids(9000, 5)).cached == 2900
    assert simulator.predict(prompt.first(1000) + ids(9000, 5)).cached == 0
    turn(simulator, ids(B + 9000, 3000))  # parks it: of the window only what the model still sees is saved
    back = simulator.predict(prompt.first(2900) + ids(9000, 5))
    assert (back.source, back.common, back.cached) == ("parked", 2900, 2483)


@pytest.mark.parametrize("rewind", [Rewind.NOWHERE, Rewind.WINDOW])
def test_after_an_edit_nothing_is_reused_from_checkpoints_of_the_branch_that_was_left(rewind: Rewind) -> None:
    simulator, prompt = Simulator(Shape(rewind=rewind, window=128)), ids(A, 1000)
    turn(simulator, prompt)
    edited = prompt.first(600) + ids(7000, 1800)
    turn(simulator, edited)
    back = simulator.predict(edited.first(1200) + ids(9000, 5))
    assert back.common == 1200 and 0 < back.cached <= 600, "no more than the two branches have in common"


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Simulator(DENSE).predict(NO_TOKENS)


SHAPES = st.builds(
    Shape,
    slots=st.integers(1, 4),
    unified=st.booleans(),
    ram_bytes=st.sampled_from([0, 600, 8 << 30, None]),
    token_bytes=st.just(10.0),
    context=st.just(100),
    rewind=st.sampled_from(Rewind),
    window=st.just(6),
    checkpoints=st.sampled_from([0, 2, 32]),
    checkpoint_step=st.just(10),
    batch=st.just(16),
    micro_batch=st.just(8),
)
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=60).map(Tokens)
ACTS = st.lists(st.tuples(PROMPTS, st.none() | st.integers(0, 5), st.integers(0, 40)), max_size=12)


def state(simulator: Simulator) -> Any:
    return simulator.slots, simulator.parked, simulator._used, simulator._busy, simulator._stopped


def played(shape: Shape, acts: list[tuple[Tokens, int | None, int]]) -> Simulator:
    simulator = Simulator(shape)
    for prompt, slot, length in acts:
        found = simulator.begin(prompt, "x", 1.0, slot)
        if length < len(prompt) // 2:
            simulator.cut(found.slot, max(length, found.cached))
        else:
            simulator.end(found.slot, Tokens([1] * length))
    return simulator


@settings(deadline=None)
@given(SHAPES, ACTS, PROMPTS, st.none() | st.integers(0, 5))
def test_predicting_changes_nothing_and_says_what_beginning_does(
    shape: Shape,
    acts: list[tuple[Tokens, int | None, int]],
    prompt: Tokens,
    slot: int | None,
) -> None:
    simulator = played(shape, acts)
    before = simulator.copy()
    said = simulator.predict(prompt, slot)
    assert state(simulator) == state(before)
    assert simulator.begin(prompt, "", 0.0, slot) == said
    assert 0 <= said.cached <= min(said.common, len(prompt) - 1)
    assert said.common <= said.best <= len(prompt)
    assert (said.best > 0) == (said.best_where is not None)
    assert (said.source == "nothing") == (said.common == 0)


@settings(deadline=None)
@given(SHAPES, ACTS, PROMPTS)
def test_a_copy_goes_its_own_way(shape: Shape, acts: list[tuple[Tokens, int | None, int]], prompt: Tokens) -> None:
    simulator = played(shape, acts)
    same = simulator.copy()
    turn(simulator, prompt, sampled=Tokens([1, 2, 3]))
    simulator.observe([0] * shape.slots)
    assert state(same) == state(played(shape, acts))


@settings(deadline=None)
@given(SHAPES, ACTS)
def test_a_server_as_the_simulator_sees_it_surprises_nobody(
    shape: Shape,
    acts: list[tuple[Tokens, int | None, int]],
) -> None:
    simulator = played(shape, acts)
    assert simulator.observe([len(held.tokens) if held else 0 for held in simulator.slots]) == []
    assert all(held.tokens for held in simulator.parked)
    assert shape.ram_bytes != 0 or not simulator.parked


def test_several_answers_take_the_first_free_slots_and_leave_them_empty() -> None:
    """As measured on b11549: the states there are lost where they are nowhere else; the first answer's stays."""
    simulator = Simulator(Shape(slots=4, ram_bytes=0))
    for slot in range(4):
        simulator.begin(Tokens(range(100 * slot, 100 * slot + 50)), f"c{slot}", 0.0, slot)
        simulator.end(slot, Tokens([7]))
    prompt = Tokens(range(200, 260))
    said = simulator.begin(prompt, "mine", 1.0, answers=3)
    assert (said.slot, said.copies, said.cached) == (2, (0, 1), 50)
    assert {held.owner for held in said.overwritten} == {"c0", "c1"}
    simulator.end(2, Tokens([1, 2, 3]), order=(0, 2, 1))
    assert [len(held.tokens) if held else 0 for held in simulator.slots] == [0, 0, 62, 50]
    assert simulator.observe([0, 0, 62, 50]) == []
    assert [*simulator.least_recent] == [3, 2, 1, 0], "in the order in which they ended"
    assert simulator.predict(Tokens([*range(200, 260), 1, 2, 9])).cached == 62
    assert simulator.predict(Tokens([*range(200, 260), 8, 8, 8])).cached == 60


def test_what_the_host_cache_has_survives_several_answers() -> None:
    simulator = Simulator(Shape(slots=2))
    for slot in (1, 0):
        simulator.begin(Tokens(range(100 * slot, 100 * slot + 50)), f"c{slot}", 0.0, slot)
        simulator.end(slot, Tokens([7]))
    said = simulator.begin(Tokens(range(500, 560)), "mine", 1.0, answers=2)
    assert said.slot == 1 and [held.owner for held in said.overwritten] == ["c0"], "what was used last is not parked"
    assert simulator.cut(1, 60) is None
    assert [held is None for held in simulator.slots] == [True, False]


def test_a_host_cache_that_was_too_small_is_known_by_its_size() -> None:
    """What comes back proves that there is one; what does not, that it has no room for so much."""
    guesses = Hypotheses([Shape(), Shape(ram_bytes=0)])
    talks = [ids(1000 * number, 500) for number in range(1, 5)]

    def asked(talk: int, cached: int) -> Prediction:
        said = guesses.begin(talks[talk], str(talk), 0.0)
        guesses.reported(cached)
        guesses.end(ids(90_000, 1))
        return said

    for talk in range(4):
        asked(talk, 0)
    assert asked(3, 499).cached == 499 and asked(2, 499).cached == 499, "there is a host cache"
    assert asked(0, 0).cached == 499, "the oldest was pushed out"
    assert guesses.best.shape.ram_bytes and guesses.proved_shape.ram_bytes, "it is too small, and not absent"
    assert asked(1, 0).cached == 0, "what is as old is not believed any more"
    assert asked(0, 499).cached == 499, "what was parked last has room"


def test_a_parked_state_of_unknown_ids_is_gone_when_a_request_had_more_than_was_known() -> None:
    simulator = Simulator(Shape())
    unknown = [Held(Tokens.unknown(count, mark), "old") for mark, count in ((2, 700), (3, 400), (4, 2000))]
    simulator.recall([None], unknown, [0])
    said = simulator.begin(ids(A, 500), "new", 0.0)
    assert said.cached == 0 and said.allows(300) and not said.allows(3000)
    simulator.reported(said.slot, 300)
    assert list(simulator.parked) == [unknown[0], unknown[2]], "the server moved the one of which it loses least"


@pytest.mark.parametrize("at", [0, 1])
def test_what_another_client_ran_over_is_parked_or_it_went_on_in_it(at: int) -> None:
    simulator = Simulator(Shape(slots=2))
    for prompt in (ids(A, 600), ids(5000, 400)):
        turn(simulator, prompt)
    slot = simulator.least_recent[at]
    held = simulator.slots[slot]
    assert held is not None
    counts = [len(state.tokens) if state else 0 for state in simulator.slots]
    counts[slot] = 900
    simulator.observe(counts)
    said = simulator.begin(held.tokens + ids(100, 20), "", 0.0)
    assert said.source == "parked" and said.cached == len(held.tokens) and said.allows(100)
    if at == 1:
        simulator.reported(said.slot, 100)
        assert simulator.predict(held.tokens).cached == len(held.tokens) - 1, (
            "less than half of it stayed: it is parked"
        )


def test_a_request_that_another_slot_answered_is_played_there() -> None:
    guesses = Hypotheses([Shape(slots=2)])
    prompt = ids(A, 300)
    said = guesses.begin(prompt, "one", 0.0)
    other = 1 - said.slot
    guesses.answered_in(other, 0)
    guesses.end(ids(90_000, 5))
    counts = [0, 0]
    counts[other] = 304
    assert not guesses.observe(counts) and guesses.begin(prompt + ids(90_000, 9), "one", 1.0).cached == 304


def test_what_one_guess_does_not_know_tells_nothing_of_the_others() -> None:
    guesses = Hypotheses([Shape(slots=1), Shape(slots=1, ram_bytes=0)])
    guesses.recall([None], [Held(Tokens.unknown(700, 2), "old")], [0], {})
    before = guesses.records
    guesses.begin(ids(A, 500), "new", 0.0)
    guesses.reported(300)
    assert guesses.records == before
