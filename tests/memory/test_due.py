"""When a conversation is read for memories."""

from __future__ import annotations

from answers import talk

from corpus import corpus
from kvchat.config import MemorySettings
from kvchat.memory.ledger import rest_of, why_due
from kvchat.store.jobs import JobReason

SHORT, LONG = "And how wide is the gate?", "I told you of the harbour, the boats and the keeper. " * 16


@corpus(
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
    assert why_due(talk(*questions)[1:], MemorySettings()) == why


def test_what_a_person_leaves_does_not_wait() -> None:
    why = why_due(talk(SHORT)[1:], MemorySettings(), left=True)
    assert why == JobReason.LEFT and rest_of(why, MemorySettings()) == 0.0


def test_a_person_may_have_every_question_read_at_once() -> None:
    settings = MemorySettings(every_messages=2, worth_tokens=0, rest_seconds=0)
    why = why_due(talk(SHORT)[1:], settings)
    assert why == JobReason.ENOUGH and rest_of(why, settings) == 0.0
