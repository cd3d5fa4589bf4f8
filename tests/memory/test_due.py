"""When a conversation is gone through for memories."""

from __future__ import annotations

import pytest
from answers import talk

from kvchat.config import MemorySettings
from kvchat.memory.ledger import due
from kvchat.store.jobs import JobReason

SHORT, LONG = "And how wide is the gate?", "I told you of the harbour, the boats and the keeper. " * 16


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ([LONG], JobReason.RESTS),
        ([LONG] * 4, JobReason.ENOUGH),
        ([LONG * 5] * 2, JobReason.ENOUGH),
        ([LONG * 10], JobReason.ENOUGH),
        ([SHORT] * 2, JobReason.RESTS),
        ([SHORT] * 8, JobReason.RESTS),
        ([SHORT] * 19, JobReason.RESTS),
        ([SHORT] * 20, JobReason.MOST),
    ],
)
def test_it_waits_until_what_came_is_worth_the_request(questions: list[str], why: JobReason) -> None:
    found = due(talk(*questions)[1:], MemorySettings(), 100.0)
    assert found is not None
    assert found.why == why


def test_what_a_person_leaves_does_not_wait() -> None:
    found = due(talk(SHORT)[1:], MemorySettings(), 100.0, left=True)
    assert found is not None
    assert (found.why, found.at) == (JobReason.LEFT, 100.0)


def test_a_person_may_have_every_question_gone_through_at_once() -> None:
    found = due(talk(SHORT)[1:], MemorySettings(every_messages=2, worth_tokens=0, rest_seconds=0), 100.0)
    assert found is not None
    assert (found.why, found.at) == (JobReason.ENOUGH, 100.0)
