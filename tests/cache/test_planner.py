"""The planner: the way it chooses is never dearer than sending as is, and it knows the cases that are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corpus import corpus
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.planner import DETOUR, WORTH, PlannedWay, Restorable, Way, plan, way_sparing
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.tokens import Tokens
from kvchat.text.cache import plan_words

SEPARATE = Shape(slots=2)
HYBRID = Shape(rewind=Rewind.NOWHERE, batch=64, micro_batch=64)


def ids(start: int, count: int) -> Tokens:
    return Tokens(range(start * 10_000 + 1, start * 10_000 + 1 + count))


def turn(simulator: Simulator, prompt: Tokens, owner: str, slot: int | None = None) -> Tokens:
    """A request and its answer of one token; what is held then."""
    simulator.end(simulator.begin(prompt, owner, 0.0, slot).slot, Tokens((7,)))
    return prompt


def sent(option: PlannedWay) -> PlannedWay:
    """The way alone, without what it costs others."""
    return replace(option, takes=None, lost=0, restores=None)


def chosen(simulator: Simulator, prompt: Tokens, **options: object) -> PlannedWay:
    return plan(simulator, prompt, **options).chosen  # type: ignore[arg-type]


def played(simulator: Simulator, prompt: Tokens, option: PlannedWay, restorable: Restorable | None = None) -> int:
    """The tokens that are read when `prompt` is sent in this way, those of getting there included."""
    simulator, spent = simulator.copy(), 0
    if option.way is Way.DETOUR:
        spent += len(DETOUR)
        simulator.end(simulator.begin(DETOUR, "", 0.0).slot, Tokens((-1,)))
    if option.way is Way.RESTORE:
        assert restorable is not None and option.slot is not None
        spent += restorable.cost
        simulator.restored(option.slot, Held(prompt.first(restorable.tokens)))
    return spent + len(prompt) - simulator.predict(prompt, option.slot if option.way is Way.PIN else None).cached


@st.composite
def histories(draw: st.DrawFn) -> tuple[Simulator, Tokens]:
    """A simulator after some requests, and the next prompt: parts of few kinds, so that prompts share beginnings."""
    shape = Shape(
        slots=draw(st.integers(1, 4)),
        unified=draw(st.booleans()),
        ram_bytes=draw(st.sampled_from([0, 8 << 30])),
        rewind=draw(st.sampled_from(list(Rewind))),
        window=128,
        batch=64,
        micro_batch=64,
        checkpoints=draw(st.sampled_from([2, 32])),
    )
    simulator = Simulator(shape)

    def prompt() -> Tokens:
        part = st.tuples(st.integers(1, 3), st.sampled_from([5, 40, 300, 1200]))
        parts = draw(st.lists(part, min_size=1, max_size=4))
        return Tokens.joined(ids(kind + 3 * at, size) for at, (kind, size) in enumerate(parts))

    for number in range(draw(st.integers(0, 8))):
        turn(simulator, prompt(), f"chat {number}", draw(st.sampled_from([None, None, 0, 1])))
    return simulator, prompt()


@settings(max_examples=400, deadline=None)
@given(histories(), st.integers(0, 3000), st.integers(0, 400))
def test_the_chosen_way_never_reads_more_than_as_is(history: tuple[Simulator, Tokens], kept: int, cost: int) -> None:
    simulator, prompt = history
    snapshot = Restorable(min(kept, len(prompt)), cost) if kept and simulator.shape.rewind is Rewind.ANYWHERE else None
    for restorable in (None, snapshot):
        found = plan(simulator, prompt, restorable=restorable)
        as_is = len(prompt) - simulator.predict(prompt).cached
        assert played(simulator, prompt, found.chosen, restorable) <= as_is
        for option in found.options:
            if option.way is not Way.RESTORE:
                assert played(simulator, prompt, option) == option.tokens, option


@settings(max_examples=200, deadline=None)
@given(histories())
def test_reading_ahead_never_costs_more_than_as_is_with_what_others_lose(history: tuple[Simulator, Tokens]) -> None:
    simulator, prompt = history
    found = plan(simulator, prompt, idle=True).chosen

    def cost(option: PlannedWay) -> int:
        around, lost = simulator.copy(), 0
        if option.way is Way.DETOUR:
            first = around.begin(DETOUR, "", 0.0)
            around.end(first.slot, Tokens((-1,)))
            lost += len(first.replaces.tokens) - first.common if first.replaces else 0
        last = around.predict(prompt, option.slot if option.way is Way.PIN else None)
        if last.replaces and not (option.way is Way.DETOUR and last.slot == first.slot):
            lost += len(last.replaces.tokens) - last.common
        return played(simulator, prompt, option) + lost

    assert cost(found) <= cost(PlannedWay(Way.AS_IS, 0))


@settings(max_examples=200, deadline=None)
@given(histories(), st.booleans())
def test_one_cache_for_all_slots_is_never_pinned(history: tuple[Simulator, Tokens], idle: bool) -> None:
    """Pinning there empties the other slots all the same."""
    simulator, prompt = history
    if simulator.shape.unified and simulator.shape.ram_bytes != 0:
        assert all(option.way is not Way.PIN for option in plan(simulator, prompt, idle=idle).options)


def peeked(shape: Shape = Shape(), system: int = 400, long: int = 2817, short: int = 50) -> tuple[Simulator, Tokens]:  # noqa: B008
    """A long chat, a peek into a short one with the same system prompt, and the way back."""
    simulator, shared = Simulator(shape), ids(1, system)
    a = turn(simulator, shared + ids(2, long), "a")
    turn(simulator, shared + ids(3, short), "b")
    return simulator, a + ids(4, 16)


def test_back_from_a_peek_a_detour_brings_the_parked_chat() -> None:
    simulator, back = peeked()
    found = plan(simulator, back)
    assert [(option.way, option.tokens) for option in found.options] == [(Way.DETOUR, 16 + 8), (Way.AS_IS, 2817 + 16)]
    assert found.chosen.way is Way.DETOUR
    assert "detour" in plan_words(found) and "2,833" in plan_words(found)
    assert chosen(simulator, back, detour=False).way is Way.AS_IS


def test_where_nothing_is_parked_it_is_sent_as_is() -> None:
    """Two short chats with a large system prompt take one slot in turns, and none of it is parked."""
    simulator, back = peeked(system=3000, long=400, short=300)
    assert not simulator.parked
    found = plan(simulator, back)
    assert found.options == (found.chosen,) and sent(found.chosen) == PlannedWay(Way.AS_IS, 416)
    simulator, back = peeked(replace(Shape(), ram_bytes=0))
    assert sent(chosen(simulator, back)) == PlannedWay(Way.AS_IS, 2833)


def test_a_few_tokens_are_not_worth_a_detour() -> None:
    simulator, back = peeked(system=30, long=WORTH, short=5)
    assert chosen(simulator, back).way is Way.AS_IS


def two_chats(tail_a: int, tail_c: int) -> tuple[Simulator, Tokens]:
    """Two chats with one system prompt, each in its slot, and the first question of a third. `a` was asked last, so
    that it is not parked."""
    simulator, shared = Simulator(SEPARATE), ids(1, 500)
    turn(simulator, shared + ids(3, tail_c), "c", 1)
    turn(simulator, shared + ids(2, tail_a), "a", 0)
    return simulator, shared + ids(4, 40)


def test_a_state_that_a_snapshot_gives_back_counts_as_lost_for_no_more_than_that_costs() -> None:
    simulator, prompt = Simulator(Shape(slots=2, ram_bytes=0)), ids(1, 500) + ids(4, 40)
    turn(simulator, ids(1, 500) + ids(2, 400), "a", 0)
    assert plan(simulator, prompt, idle=True).chosen.way is Way.AS_IS  # the empty slot costs 540
    turn(simulator, ids(1, 500) + ids(2, 400) + ids(3, 600), "a", 0)
    assert sent(plan(simulator, prompt, idle=True).chosen) == PlannedWay(Way.PIN, 540, 1)
    secured = plan(simulator, prompt, idle=True, secured={0: 50}).chosen
    assert sent(secured) == PlannedWay(Way.AS_IS, 40) and (secured.takes, secured.lost) == (0, 1000)


def test_a_snapshot_goes_into_the_slot_that_loses_least() -> None:
    simulator = Simulator(SEPARATE)
    turn(simulator, ids(9, 300), "other", 0)
    turn(simulator, ids(8, 900), "third", 1)
    found = plan(simulator, ids(1, 2000), restorable=Restorable(1900, 50)).chosen
    assert sent(found) == PlannedWay(Way.RESTORE, 150, 0)
    assert plan(simulator, ids(1, 2000), restorable=Restorable(1900, 50), secured={1: 20}).chosen.slot == 1
    assert plan(simulator, ids(1, 2000), restorable=Restorable(1900, 50), busy={0}).chosen.slot == 1


def test_a_pin_keeps_the_longer_tail_where_it_costs_nothing() -> None:
    simulator, prompt = two_chats(400, 20)
    as_is = simulator.predict(prompt)
    assert as_is.slot == 0 and as_is.replaces is not None and as_is.replaces.owner == "a"
    found = plan(simulator, prompt)
    assert sent(found.chosen) == PlannedWay(Way.PIN, 40, 1) and found.slot == 1
    assert simulator.predict(prompt, 1).replaces is None, "it was parked when the other was asked"


def test_nothing_is_pinned_to_a_slot_that_works_for_somebody_else() -> None:
    simulator, prompt = two_chats(400, 20)
    assert plan(simulator, prompt).slot == 1
    assert sent(chosen(simulator, prompt, busy={1})) == PlannedWay(Way.AS_IS, 40)


def test_nothing_is_pinned_when_as_is_keeps_the_longer_tail() -> None:
    simulator, prompt = two_chats(10, 400)
    assert sent(chosen(simulator, prompt)) == PlannedWay(Way.AS_IS, 40)


def test_nobody_is_pinned_to_an_empty_slot_but_ahead_of_time() -> None:
    """It would read the system prompt again: worth it only when nobody waits."""
    simulator, shared = Simulator(SEPARATE), ids(1, 100)
    turn(simulator, shared + ids(2, 90), "a")
    prompt = shared + ids(3, 5)
    assert chosen(simulator, prompt).way is Way.AS_IS
    simulator, shared = Simulator(SEPARATE), ids(1, 100)
    long = turn(simulator, shared + ids(2, 150), "a")
    assert simulator.predict(shared + ids(3, 5)).replaces is None, "it would be parked"
    assert chosen(simulator, long + ids(4, 30), idle=True).way is Way.AS_IS


def test_a_snapshot_is_restored_when_that_is_cheaper_than_reading() -> None:
    simulator = Simulator(Shape())
    turn(simulator, ids(9, 300), "other")
    prompt = ids(1, 2000)
    assert sent(chosen(simulator, prompt, restorable=Restorable(1900, 50))) == PlannedWay(Way.RESTORE, 150, 0)
    assert chosen(simulator, prompt, restorable=Restorable(1900, 1900)).way is Way.AS_IS
    turn(simulator, prompt, "it")
    assert chosen(simulator, prompt + ids(2, 40), restorable=Restorable(1900, 5)).way is Way.AS_IS, "it is warm"


def test_a_model_that_cannot_rewind_takes_the_detour_to_its_parked_state() -> None:
    simulator, back = peeked(HYBRID)
    found = chosen(simulator, back)
    assert found.way is Way.DETOUR and found.tokens == played(simulator, back, found) <= 16 + 8 + 1


HEAD, MINE, OTHERS = ids(1, 500), ids(2, 100), ids(3, 100)


@corpus(
    ("shape", "unlike", "alike"),
    [
        (Shape(slots=2), Way.AS_IS, Way.PIN),
        (Shape(slots=2, ram_bytes=0), Way.AS_IS, Way.PIN),
        (Shape(slots=4, unified=True, ram_bytes=0), Way.AS_IS, Way.PIN),
        (Shape(slots=2, rewind=Rewind.NOWHERE), Way.AS_IS, Way.DETOUR),  # which parks it
        (Shape(slots=4, unified=True), Way.AS_IS, None),
        (Shape(), Way.AS_IS, None),
        (Shape(rewind=Rewind.NOWHERE), Way.AS_IS, None),
        (Shape(ram_bytes=0), None, None),
        (Shape(ram_bytes=0, rewind=Rewind.NOWHERE), None, None),
    ],
)
def test_what_is_sent_beside_a_prompt_takes_nothing_of_it(shape: Shape, unlike: Way | None, alike: Way | None) -> None:
    simulator = Simulator(shape)
    keep = turn(simulator, HEAD + MINE, "open") + Tokens((7, 8))
    ways = [way_sparing([simulator], prompt, keep) for prompt in (ids(4, 300), HEAD + OTHERS)]
    assert [way and way.way for way in ways] == [unlike, alike]


def test_what_goes_on_with_the_same_prompt_takes_nothing_in_the_only_slot() -> None:
    simulator = Simulator(Shape(ram_bytes=0))
    keep = turn(simulator, HEAD, "open") + Tokens((7, 8))
    way = way_sparing([simulator], HEAD + OTHERS, keep)
    assert way is not None and way.way is Way.AS_IS


def test_every_guess_that_may_be_right_has_to_lose_nothing() -> None:
    with_host, without = Simulator(Shape()), Simulator(Shape(ram_bytes=0))
    for simulator in (with_host, without):
        keep = turn(simulator, HEAD + MINE, "open") + Tokens((7, 8))
    assert way_sparing([with_host], ids(4, 300), keep) is not None
    assert way_sparing([with_host, without], ids(4, 300), keep) is None


def test_no_slot_that_works_is_used_and_none_is_where_no_other_is_idle() -> None:
    simulator = Simulator(Shape(slots=2, ram_bytes=0))
    keep = turn(simulator, HEAD + MINE, "open") + Tokens((7, 8))
    assert way_sparing([simulator], HEAD + OTHERS, keep, busy={0, 1}) is None
