"""When to try again, as a server says it: a time that a person can wait for, or just later."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.backends.errors import LONGEST_S, of_status, seconds_of

URL = "http://127.0.0.1:1"
NOW = datetime(2026, 11, 21, 9, 16, 0, 500_000, tzinfo=UTC)
HEADERS = {
    "17": "in 17 s",
    " 17 ": "in 17 s",
    "2.5": "in 3 s",
    "0": "now",
    "0.2": "in 1 s",
    "120": "in 2 min",
    "150": "in 2 min 30 s",
    "3600": "in 1 h",
    "3601": "later",
    "999999999": "later",
    "9" * 5000: "later",
    "1e999": "later",
    "-5": "later",
    "nan": "later",
    "\u0663": "later",
    "": "later",
    "soon": "later",
    "x" * 100_000: "later",
    "Thu, 99 Foo 2026 00:00:00 GMT": "later",
    "Fri, 31 Dec 1999 23:59:59 GMT": "now",
    "Fri, 31 Dec 9999 23:59:59 GMT": "later",
    "Fri, 31 Dec 99999 23:59:59 GMT": "later",
    "\x1b]52;c;x\x07": "later",
}


def told(header: str) -> str:
    return of_status(URL, 429, '{"error":"slow"}', headers={"retry-after": header}).sentence


@corpus("at", range(len(HEADERS)))
def test_a_time_is_told_if_it_can_be_waited_for(at: int) -> None:
    header, when = list(HEADERS.items())[at]
    assert told(header) == f"The server at {URL} takes no more requests now (429): slow. Try again {when}."


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("Sat, 21 Nov 2026 09:16:40 GMT", 40),
        ("Sat, 21 Nov 2026 10:16:00 GMT", 3600),
        ("Sat, 21 Nov 2026 10:16:01 GMT", None),
        ("Saturday, 21-Nov-26 09:17:00 GMT", 60),
        ("Sat, 21 Nov 2026 09:16:00 GMT", 0),
        ("Sat, 21 Nov 2026 09:16:40", 40),
        ("Sat, 21 Nov 2026 25:61:61 GMT", None),
    ],
)
def test_a_date_is_the_time_until_then(date: str, seconds: int | None) -> None:
    assert seconds_of(date, NOW) == seconds


DATES = st.from_regex(r"\A[A-Z][a-z]{2}, [0-9]{1,3} [A-Za-z]{3} [0-9]{1,6} [0-9:]{5,9} ?[A-Z]*\Z")


@given(st.text(max_size=60) | DATES)
def test_any_header_is_a_bounded_wait_or_none(header: str) -> None:
    seconds = seconds_of(header, NOW)
    assert seconds is None or 0 <= seconds <= LONGEST_S
    assert len(told(header)) < 120
