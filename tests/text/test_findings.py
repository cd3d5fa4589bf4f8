"""Words for findings: every kind has a sentence, and what was stored as a sentence stays one."""

from __future__ import annotations

import re

import pytest

from corpus import corpus
from kvchat.cache.causes.cause import Reason, Remedy
from kvchat.text.findings import behind_colon, cause_name, evidence_sentence, remedy_sentence
from kvchat.values import Argument, Statement, said

GIVEN: dict[str, Argument] = {
    "now": "/models/b.gguf",
    "before": "a",
    "build": "b11600",
    "turns": 3,
    "prefilled": 12_000,
    "whole": 23_400,
    "kept": 6_100,
    "act": "edit",
    "message": 3,
    "text": "10:15",
    "date": "2026-11-21",
    "token": 512,
    "block": 528,
    "name": "The light",
    "slot": 1,
    "tokens": 4_096,
    "answered": 0,
    "wanted": 9_929,
    "cached": 40,
    "expected": 900,
    "window": 4_096,
    "flag": "--flag 1",
    "words": "Start vLLM with --flag 1.",
    "program": "vLLM",
    "known": True,
}


@corpus("reason", Reason)
@pytest.mark.parametrize("given", [GIVEN, {}], ids=["all arguments", "none"])
def test_every_reason_is_one_sentence(reason: Reason, given: dict[str, Argument]) -> None:
    sentence = evidence_sentence(said(reason, **given), 1_387)
    assert re.fullmatch(r"\S[^\n]*[^.\n]\.", sentence), sentence
    assert "later version" not in sentence
    behind = behind_colon(said(reason, **given), 1_387)
    assert (
        behind
        and not behind.endswith(".")
        and "1,387 tokens were prefilled again" not in behind.removeprefix("1,387 tokens were prefilled again, though")
    ), behind


@corpus("remedy", Remedy)
@pytest.mark.parametrize("given", [GIVEN, {}], ids=["all arguments", "none"])
def test_every_remedy_is_one_sentence(remedy: Remedy, given: dict[str, Argument]) -> None:
    assert re.fullmatch(r"[A-Zk][^\n]*[^.\n]\.", remedy_sentence(said(remedy, **given)))


def test_a_server_that_reports_nothing_is_not_said_to_have_read_nothing_again() -> None:
    assert evidence_sentence(said(Reason.SLEPT), 0) == "The model slept; it does not report what it prefilled again."


def test_a_kind_of_a_later_version_is_not_guessed() -> None:
    later = Statement("sabotaged", (("by", "gremlins"),))
    assert evidence_sentence(later, 12) == "The cause is one of a later version: 12 tokens were prefilled again."
    assert remedy_sentence(later) == "" and cause_name("sabotage") == "unknown"
