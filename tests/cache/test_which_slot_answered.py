"""Which slot answered is what the server shows, not what was predicted: also where as much was reused as predicted."""

from __future__ import annotations

import pytest

from kvchat.cache import Cache, SlotCount, Tokens

ID = "light"
FIRST = Tokens(range(100, 400))
ANSWER = Tokens(range(500, 512))
BEFORE = FIRST + ANSWER.first(len(ANSWER) - 1)
"""What a slot holds after the first answer."""
NEXT = BEFORE + Tokens(range(600, 640))


def after_another_client(slots: int) -> tuple[Cache, list[SlotCount], int]:
    """Another client has gone on with our conversation in the slot that held it: what that holds is unknown, and begins
    with all of ours. What the slots show, and that slot."""
    cache = Cache(slots)
    counts = [SlotCount(0)] * slots
    cache.left(counts)
    slot = cache.sent(FIRST, ID).slot
    cache.heard(0)
    cache.ended(ANSWER)
    counts[slot] = SlotCount(len(BEFORE), 1)
    assert not cache.left(counts, slot, len(BEFORE))
    counts[slot] = SlotCount(len(BEFORE) + 30, 2)
    assert cache.left(counts)
    return cache, counts, slot


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize(("stopped", "late"), [(False, 0), (True, 0), (True, 3)])
def test_a_request_that_reused_as_much_in_another_slot_is_played_there(slots: int, stopped: bool, late: int) -> None:
    cache, counts, slot = after_another_client(slots)
    said = cache.sent(NEXT, ID)
    assert said.slot != slot and said.cached == len(BEFORE), "else the test shows nothing"
    cache.heard(len(BEFORE))
    cache.ended(ANSWER, stopped=stopped)
    counts[slot] = SlotCount(len(NEXT) + len(ANSWER) - 1 + late, 3)
    seen = len(list(cache.journal.seen_of(cache.server)))
    assert not cache.left(counts, None if stopped else slot, len(NEXT) + len(ANSWER) - 1)
    assert len(list(cache.journal.seen_of(cache.server))) == seen, "no other client was there"
    whole = NEXT + ANSWER.first(len(ANSWER) - 1)
    again = cache.sent(whole + Tokens(range(700, 720)), ID)
    assert (again.slot, again.cached, again.source) == (slot, len(whole), "slot")


def test_of_several_slots_with_a_new_task_none_is_taken_for_it() -> None:
    cache, counts, slot = after_another_client(2)
    said = cache.sent(NEXT, ID)
    cache.heard(len(BEFORE))
    cache.ended(ANSWER)
    counts[slot], counts[said.slot] = SlotCount(77, 4), SlotCount(len(NEXT) + len(ANSWER) - 1, 3)
    cache.left(counts, said.slot, len(NEXT) + len(ANSWER) - 1)
    held = cache.best.slots[said.slot]
    assert held is not None and held.owner == ID and held.tokens.known == len(held.tokens)
