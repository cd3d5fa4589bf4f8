"""What a request runs over is known: the states that are lost, why, and what may be reused where ids are not known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.backends.dialect import ChatTurn
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.hypotheses import Hypotheses, guesses
from kvchat.cache.llamacpp.simulator import Prediction, Simulator
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.chat.cache.tracked_turn import TokenizedRequest
from kvchat.chat.cache.turn_journal import TurnJournal
from kvchat.figures.accounting import TurnFigures

A, B = 1000, 2000


def ids(start: int, count: int) -> Tokens:
    return Tokens(range(start, start + count))


def turn(
    simulator: Simulator, prompt: Tokens, owner: str = "", sampled: Tokens = NO_TOKENS, tip: str = ""
) -> Prediction:
    found = simulator.begin(prompt, owner, 0.0, tip=tip)
    simulator.end(found.slot, sampled, tip=tip)
    return found


def owners(states: tuple[Held, ...]) -> list[str]:
    return [held.owner for held in states]


def test_a_slot_that_is_taken_without_a_host_cache_is_overwritten() -> None:
    simulator = Simulator(Shape(ram_bytes=0))
    turn(simulator, ids(A, 100), "a")
    found = turn(simulator, ids(B, 100), "b")
    assert owners(found.overwritten) == ["a"] and found.pushed_out == ()


def test_a_state_that_is_parked_or_gone_on_from_is_not_lost() -> None:
    simulator = Simulator(Shape())
    turn(simulator, ids(A, 100), "a", ids(A + 100, 10))
    assert turn(simulator, ids(A, 130), "a").overwritten == ()
    assert turn(simulator, ids(B, 100), "b").overwritten == ()


def test_a_parked_state_that_is_taken_back_for_another_branch_is_overwritten_by_that() -> None:
    simulator = Simulator(Shape())
    turn(simulator, ids(A, 400), "first branch")
    turn(simulator, ids(B, 100), "b")
    found = turn(simulator, ids(A, 200) + ids(7000, 100), "second branch")
    assert (found.source, owners(found.overwritten), found.pushed_out) == ("parked", ["first branch"], ())


def test_a_state_for_which_there_is_no_room_is_pushed_out() -> None:
    simulator = Simulator(Shape(ram_bytes=150, token_bytes=1.0))
    turn(simulator, ids(A, 100), "a")
    turn(simulator, ids(B, 100), "b")
    found = turn(simulator, ids(3000, 100), "c")
    assert (found.overwritten, owners(found.pushed_out)) == ((), ["a"])


def test_a_host_cache_that_lost_a_state_reuses_what_is_left() -> None:
    simulator = Simulator(Shape())
    turn(simulator, ids(A, 300), "a")
    turn(simulator, ids(A, 100) + ids(7000, 300), "other branch")
    turn(simulator, ids(B, 100), "b")
    prompt = ids(A, 310)
    assert simulator.predict(prompt).cached == 300
    assert simulator.without_parked(prompt, 200).predict(prompt).cached == 100
    assert simulator.predict(prompt).cached == 300, "nothing was changed"


@pytest.mark.parametrize(("rewind", "learns"), [(Rewind.ANYWHERE, True), (Rewind.WINDOW, False)])
def test_a_state_that_could_not_be_rewound_says_nothing_of_the_host_caches_size(rewind: Rewind, learns: bool) -> None:
    simulator = Simulator(Shape(rewind=rewind, window=256))
    for start, owner in ((A, "a"), (B, "b"), (3000, "c"), (A, "a"), (B, "b")):
        found = simulator.begin(ids(start, 400), owner, 0.0, users=(300,))
        simulator.reported(found.slot, found.cached)  # it was seen to bring states back
        simulator.end(found.slot, NO_TOKENS)
    found = simulator.begin(ids(A, 380) + ids(9000, 100), "branch", 0.0)
    assert found.source == "parked" and found.cached > 256
    simulator.reported(found.slot, 0)
    assert (simulator.host != simulator.shape) == learns
    assert ("c" in owners(tuple(simulator.parked))) != learns


@pytest.mark.parametrize(("cached", "user", "common"), [(303, 333, 354), (400, 420, 430), (250, 300, 310)])
def test_a_window_is_there_where_a_server_went_on_from_less_than_was_believed(
    cached: int, user: int, common: int
) -> None:
    simulator = Simulator(Shape(rewind=Rewind.WINDOW, window=128))
    turn(simulator, ids(A, 1484))
    found = simulator.begin(ids(A, 1500), "", 0.0, users=(user, 1490))
    simulator.reported(found.slot, cached)
    simulator.end(found.slot, ids(B, 2))
    assert simulator.predict(ids(A, common) + ids(B, 30)).cached == user - 1, "by the checkpoint before that message"


def after_an_alike_client(shape: Shape, count: int, cached: int, *ends: int) -> Simulator:
    """Another client has gone on in the slot with the beginning of our conversation of 511 tokens, whose messages begin
    at 334, 458 and 491; then ours came back, of which the slot had `cached`."""
    simulator = Simulator(shape)
    users = (334, 458, 491)
    found = simulator.begin(ids(A, 500), "ours", 0.0, users=users)
    simulator.end(found.slot, ids(A + 500, 12))
    simulator.observe([count], {0})
    found = simulator.begin(ids(A, 783), "ours", 0.0, users=(*users, 574))
    assert found.source == "parked" and found.allows(cached), "what the other one asked is not known"
    simulator.reported(found.slot, cached, ends)
    simulator.end(found.slot, ids(A + 783, 2))
    return simulator


WINDOW = Shape(rewind=Rewind.WINDOW, window=128)
NOWHERE = Shape(rewind=Rewind.NOWHERE)


@pytest.mark.parametrize("count", [382, 304, 500])
@pytest.mark.parametrize(("ends", "comes"), [((574, 779, 783), 302), ((334, 574, 779, 783), 333), ((), 333)])
def test_batches_show_whether_another_client_left_a_checkpoint(count: int, ends: tuple[int, ...], comes: int) -> None:
    simulator = after_an_alike_client(WINDOW, count, 303, *ends)
    turn(simulator, ids(A, 785) + ids(7000, 700))
    assert simulator.predict(ids(A, 400) + ids(B, 30)).cached == comes


@pytest.mark.parametrize(
    ("shape", "count", "cached", "kept"),
    [
        (Shape(), 382, 303, 0),  # more than half of ours was of use to the other client
        (Shape(), 382, 200, 511),
        (NOWHERE, 382, 56, 56),  # it may have been more than what a checkpoint goes back to
        (NOWHERE, 200, 56, 511),
        (WINDOW, 382, 240, 240),
    ],
)
def test_what_another_client_went_on_in_is_kept_parked_where_that_is_sure(
    shape: Shape, count: int, cached: int, kept: int
) -> None:
    simulator = after_an_alike_client(shape, count, cached)
    parked = [held for held in simulator.parked if held.owner == "ours"]
    assert [held.tokens.known for held in parked] == [kept] * bool(kept)
    assert [len(held.tokens) for held in parked] == [511] * bool(kept)
    assert not [held for held in simulator.parked if not held.tokens.known], "its text was gone on in: it is not parked"


def test_where_the_ids_of_an_answer_are_not_known_more_may_be_reused() -> None:
    simulator = Simulator(Shape())
    turn(simulator, ids(A, 100), sampled=Tokens.unknown(21))
    found = simulator.predict(ids(A, 200))
    assert (found.cached, found.most) == (100, 120)
    assert [found.allows(cached) for cached in (99, 100, 120, 121)] == [False, True, True, False]
    assert found.allows(99, 1) and found.allows(121, 1)


kinds = st.sampled_from(
    [
        Shape(),
        Shape(ram_bytes=0),
        Shape(slots=2),
        Shape(slots=2, ram_bytes=0),
        Shape(slots=3, unified=True),
        Shape(ram_bytes=300, token_bytes=1.0),
    ]
)
few = st.lists(st.integers(1, 3), min_size=1, max_size=30)
requests = st.lists(st.tuples(st.integers(0, 2), few, st.integers(0, 8)), min_size=1, max_size=14)


@settings(deadline=None)
@given(kinds, requests)
def test_every_state_that_is_gone_is_named_by_the_request_that_it_went_with(shape: Shape, walk: list) -> None:
    simulator = Simulator(shape)
    for start, words, sampled in walk:
        before = list(simulator.held)
        found = simulator.begin(Tokens([start + 10, *words]), str(start), 0.0)
        after = simulator.held
        gone = [held for held in before if not any(now.tokens.starts_with(held.tokens) for now in after)]
        assert sorted(map(id, gone)) == sorted(map(id, (*found.overwritten, *found.pushed_out)))
        assert shape.token_bytes or not found.pushed_out
        simulator.end(found.slot, Tokens([4] * sampled))


@settings(deadline=None)
@given(st.sampled_from(Rewind), few, few, few, st.integers(0, 60))
def test_what_is_reused_lies_within_what_may_be_where_ids_are_not_known(
    rewind: Rewind, first: list[int], answer: list[int], then: list[int], back: int
) -> None:
    shape = Shape(rewind=rewind, window=16 if rewind is Rewind.WINDOW else 0, batch=8, micro_batch=8)
    knows, guesses_it = Simulator(shape), Simulator(shape)
    turn(knows, Tokens(first), sampled=Tokens(answer))
    turn(guesses_it, Tokens(first), sampled=Tokens.unknown(len(answer)))
    whole = [*first, *answer]
    prompt = Tokens([*whole[: max(len(first), len(whole) - back)], *then])
    assert guesses_it.predict(prompt).allows(knows.predict(prompt).cached)


# -- what reports prove ------------------------------------------------------------------------------------------------


def asked(candidates: Hypotheses, real: Simulator, prompt: Tokens, sampled: Tokens = NO_TOKENS) -> None:
    """A request to a server whose cache is `real`."""
    candidates.begin(prompt, "", 0.0)
    found = turn(real, prompt, sampled=sampled)
    candidates.reported(found.cached)
    candidates.end(sampled)
    candidates.observe([len(held.tokens) if held else 0 for held in real.slots])


def test_a_host_cache_and_what_a_model_cannot_do_are_claimed_only_once_they_were_seen() -> None:
    for real, dense in ((Shape(), True), (Shape(rewind=Rewind.NOWHERE), False)):
        candidates, server = Hypotheses(guesses(1)), Simulator(real)
        asked(candidates, server, ids(A, 300))
        assert candidates.is_dense is None and candidates.proved_shape.rewind is Rewind.ANYWHERE
        asked(candidates, server, ids(B, 300))
        assert candidates.proved_shape.ram_bytes == 0, "nobody has seen anything come back"
        asked(candidates, server, ids(A, 310))
        assert candidates.proved_shape.ram_bytes != 0
        asked(candidates, server, ids(A, 300))  # back by a little
        assert candidates.is_dense is dense and (candidates.proved_shape.rewind is Rewind.ANYWHERE) is dense
        assert candidates.proved is not None and candidates.proved.shape == candidates.proved_shape


def test_a_model_is_dense_where_no_guess_says_otherwise() -> None:
    assert Hypotheses([Shape()]).is_dense is True
    assert Hypotheses([Shape(rewind=Rewind.WINDOW, window=512)]).is_dense is False


# -- going on from what another run knew -------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    st.sampled_from([Shape(), Shape(slots=2), Shape(slots=3, unified=True), Shape(slots=2, ram_bytes=0)]),
    requests,
    requests,
)
def test_a_simulator_goes_on_from_what_another_one_knew(shape: Shape, before: list, after: list) -> None:
    simulator, next_one = Simulator(shape), Simulator(shape)
    for start, words, sampled in before:
        turn(simulator, Tokens([start + 10, *words]), sampled=Tokens([4] * sampled))
    next_one.recall(simulator.slots, simulator.parked, simulator.least_recent)
    for start, words, sampled in after:
        prompt, answer = Tokens([start + 10, *words]), Tokens([4] * sampled)
        one, other = turn(simulator, prompt, sampled=answer), turn(next_one, prompt, sampled=answer)
        assert (one.cached, one.slot, one.source) == (other.cached, other.slot, other.source)


def test_guesses_go_on_with_their_records_and_with_how_far_each_can_go_back() -> None:
    shapes = guesses(1)
    hidden = next(shape for shape in shapes if shape.rewind is Rewind.NOWHERE)
    first, server = Hypotheses(shapes), Simulator(hidden)
    for prompt in (ids(A, 300), ids(A, 300) + ids(5000, 40), ids(A, 200) + ids(6000, 50), ids(B, 200)):
        asked(first, server, prompt)
    second = Hypotheses(shapes)
    second.recall(first.best.slots, first.best.parked, first.best.least_recent, first.memories)
    second.recall_records(first.records)
    assert second.proved_shape == first.proved_shape and second.is_dense is False
    for prompt in (ids(A, 310), ids(B, 150), ids(A, 330)):
        assert second.begin(prompt, "", 0.0).cached == first.begin(prompt, "", 0.0).cached
        found = turn(server, prompt)
        for candidates in (first, second):
            candidates.reported(found.cached)
            candidates.end(NO_TOKENS)


def test_a_slot_that_another_client_used_is_not_ours_even_with_as_many_tokens() -> None:
    simulator = Simulator(Shape(ram_bytes=0))
    turn(simulator, ids(A, 100), "a")
    assert simulator.observe([100]) == []
    (found,) = simulator.observe([100], used=[0])
    assert found.held is not None and found.held.owner == "a" and simulator.predict(ids(A, 110)).cached == 0
    simulator.adopt(0, Held(ids(A, 100), "b", 1.0, tip="77"))
    assert simulator.predict(ids(A, 110)).cached == 100


def test_a_state_keeps_what_it_is_of() -> None:
    simulator = Simulator(Shape())
    found = simulator.begin(ids(A, 100), "a", 1.0, tip="before")
    held = simulator.slots[0]
    assert held is not None and held.tip == "before"
    simulator.end(found.slot, ids(A + 100, 10), tip="after")
    turn(simulator, ids(B, 50), "b", tip="other")
    assert [held.tip for held in simulator.parked] == ["after"]
    simulator.identify(lambda held: replace(held, tip=held.tip.upper()))
    assert [held.tip for held in simulator.held] == ["OTHER", "AFTER"]


def test_tokens_of_unknown_ids_begin_only_what_has_the_same_mark() -> None:
    one, other = Tokens.unknown(5, 2), Tokens.unknown(9, 3)
    assert not other.starts_with(one) and Tokens.unknown(9, 2).starts_with(one)
    assert one.common(one) == one.known == 0 and (ids(A, 4) + one).known == 4


def test_a_side_request_of_the_same_conversation_that_ran_over_its_end_is_told() -> None:
    """As that of a compaction that was not used: it has the first turns only."""
    journal, chat = TurnJournal(lambda: 1.0), Tokens(range(1, 1000))
    simulator = Simulator(Shape(ram_bytes=0))
    simulator.end(simulator.begin(chat, "one", 0.0).slot, Tokens([5000]))
    summary = chat.first(400) + Tokens(range(6000, 6050))
    said = simulator.begin(summary, "one", 1.0)
    journal.log.used("side", "one", "", said.slot, {None: said})
    simulator.end(said.slot, Tokens([5000]))
    asked = TokenizedRequest(ChatTurn((), "one"), (), number=journal.log.next(), tokens=chat + Tokens([1, 2]))
    figures = TurnFigures(prompt_tokens=1001, cached_tokens=400, new_tokens=2)
    (use,) = journal.evidence(asked, figures, str, lambda node: None).uses
    assert (use.kind, use.lost) == ("side", 999)

    whole = Simulator(Shape(ram_bytes=0))
    whole.end(whole.begin(chat, "one", 0.0).slot, Tokens([5000]))
    said = whole.begin(chat + Tokens([7, 8]), "one", 1.0)
    suffix = TurnJournal(lambda: 1.0)
    suffix.log.used("side", "one", "", said.slot, {None: said})
    asked = replace(asked, number=suffix.log.next())
    assert not suffix.evidence(asked, figures, str, lambda node: None).uses, "it went on behind all of it"
