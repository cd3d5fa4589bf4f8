"""Numbers, sizes, times, days and paths as people read them, the same on every screen and in every export; sentences
from their forms.

A value is rounded for reading and never invented. What is not known is `UNKNOWN`, not 0.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import date, datetime
from pathlib import Path
from string import Formatter
from typing import Any

from kvchat.sanitize import one_line

UNKNOWN = "–"
FAVOURITE_MARK, KEPT_MARK = "★", "◆"
"""In front of a conversation that is a favourite, and of one whose state is kept."""
FORK_MARK = "↳ "
"""In front of a fork's title, so that it shows in a narrow list."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def count(number: int | None) -> str:
    """A whole number with its thousands apart: `8,120`."""
    return UNKNOWN if number is None else f"{number:,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and what it counts: `1 message`, `8,120 messages`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _scaled(number: float, units: tuple[str, ...], gap: str = " ") -> str:
    """`number` in the largest unit that leaves at least 1, two digits below ten: `412 MB`, `1.1 GB`."""
    index = 0
    while index < len(units) - 1 and round(abs(number)) >= 1000:
        number /= 1000
        index += 1
    digits = 1 if index and round(abs(number), 1) < 10 else 0
    return f"{number:,.{digits}f}{gap}{units[index]}".rstrip()


def short_count(number: int | None) -> str:
    """A number in at most four cells: `412`, `1.2k`, `48k`, `3.1M`."""
    return UNKNOWN if number is None else _scaled(number, ("", "k", "M", "G"), "")


def size(octets: int | None) -> str:
    """A size in decimal units, as file managers show it: `712 B`, `412 MB`, `1.1 GB`."""
    return UNKNOWN if octets is None else _scaled(octets, ("B", "kB", "MB", "GB", "TB"))


def percent(ratio: float | None) -> str:
    """A ratio of 0 to 1 as whole per cent: `93 %`."""
    return UNKNOWN if ratio is None or not math.isfinite(ratio) else f"{ratio * 100:.0f} %"


def speed(tokens_per_second: float | None) -> str:
    """A speed: `58.2 tok/s`, `350 tok/s`."""
    if tokens_per_second is None or not math.isfinite(tokens_per_second):
        return UNKNOWN
    digits = 1 if round(tokens_per_second, 1) < 100 else 0
    return f"{tokens_per_second:,.{digits}f} tok/s"


def duration(seconds: float | None) -> str:
    """A time span: `0.14 s`, `10.6 s`, `35 s`, `2 min 17 s`, `1 h 2 min`, `3 d 4 h`. Less than nothing is `0 s`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds <= 0:
        return "0 s"
    if seconds < 0.005:
        return "< 0.01 s"
    if round(seconds, 2) < 1:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 20:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return _two(whole, _MINUTE, "min", 1, "s")
    if whole < _DAY:
        return _two(whole, _HOUR, "h", _MINUTE, "min")
    return _two(whole, _DAY, "d", _HOUR, "h")


def age(seconds: float | None) -> str:
    """How long ago something was, in its largest unit: `12 s`, `4 min`, `3 h`, `2 d`. The future is `0 s`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if whole >= unit:
            return f"{whole // unit:,} {name}"
    return f"{whole} s"


def about(seconds: tuple[float, float] | None) -> str:
    """A time from a price, in one unit: `~35 s`, or `2–3 min` while too few turns have measured the speed; empty:
    unknown."""
    if seconds is None:
        return ""
    shortest, longest = seconds
    if longest < 0.1:
        return "under 0.1 s"
    for size, unit in ((_HOUR, "h"), (_MINUTE, "min"), (1, "s")):
        if longest >= size - 0.5 * (size > 1) or unit == "s":
            low, high = (_rounded(value / size, unit) for value in (shortest, longest))
            return f"~{high} {unit}" if low == high else f"{low}–{high} {unit}"
    raise AssertionError


def _rounded(value: float, unit: str) -> str:
    """Two digits where that is more than guessed: tenths of a second below 10, and of an hour."""
    fine = unit == "h" or (unit == "s" and value < 9.95)
    return f"{max(value, 0.1):.1f}".removesuffix(".0") if fine else f"{max(value, 1):.0f}"


def _two(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large:,} {large_unit}" + (f" {rest} {small_unit}" if rest else "")


def local(seconds: float, now: datetime | None = None) -> datetime | None:
    """The instant `seconds` after the epoch in the zone of `now` (naive or None: this machine's zone).

    None for what no calendar holds.
    """
    try:
        return datetime.fromtimestamp(seconds, now.tzinfo if now else None)
    except (OverflowError, ValueError, OSError):
        return None


def clock(seconds: float, now: datetime | None = None) -> str:
    """The time of day: `09:16`."""
    instant = local(seconds, now)
    return _time(instant) if instant else UNKNOWN


def date_and_time(seconds: float, now: datetime | None = None) -> str:
    """The full date and the time of day: `2026-11-21 09:16`."""
    instant = local(seconds, now)
    return f"{instant.date().isoformat()} {_time(instant)}" if instant else UNKNOWN


def short_day(day: date) -> str:
    """A day of this year or the last: `Mon 15 Jun`."""
    return f"{_DAYS[day.weekday()]} {day.day} {_MONTHS[day.month - 1]}"


def day_range(first: date, last: date) -> str:
    """From a day to another one: `15–21 Jun 2026`, `29 Dec 2025 – 4 Jan 2026`; one day: `21 Jun 2026`."""
    end = f"{last.day} {_MONTHS[last.month - 1]} {last.year}"
    if first == last:
        return end
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day}–{end}"
    year = f" {first.year}" if first.year != last.year else ""
    return f"{first.day} {_MONTHS[first.month - 1]}{year} – {end}"


def moment(seconds: float, now: datetime) -> str:
    """An instant seen from `now`: `today 09:16`, `yesterday 17:02`, `Mon 14:20`, `12 Mar`, `12 Mar 2025`."""
    instant = local(seconds, now)
    if instant is None:
        return UNKNOWN
    is_near = 0 <= (now.date() - instant.date()).days < 7
    return f"{_day(instant, now)} {_time(instant)}" if is_near else _day(instant, now)


def message_time(seconds: float, now: datetime) -> str:
    """When a message was written: `09:16`, with its day where that is not today: `yesterday 17:02`, `12 Mar 09:16`."""
    instant = local(seconds, now)
    if instant is None:
        return UNKNOWN
    return f"{_day(instant, now)} {_time(instant)}".removeprefix("today ")


def _day(instant: datetime, now: datetime) -> str:
    days = (now.date() - instant.date()).days
    if 0 <= days < 7:
        return "today" if days == 0 else "yesterday" if days == 1 else _DAYS[instant.weekday()]
    day = f"{instant.day} {_MONTHS[instant.month - 1]}"
    return day if instant.year == now.year else f"{day} {instant.year}"


def _time(instant: datetime) -> str:
    return f"{instant.hour:02}:{instant.minute:02}"


def day_time(seconds: float) -> str:
    """`moment` as seen from this instant on this machine, for what is printed once."""
    return moment(seconds, datetime.now())


def span(seconds: float) -> str:
    """A time in words, in its largest unit: `90 s`, `7 min`, `2 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


on_command_line: ContextVar[bool] = ContextVar("on_command_line", default=False)
"""Whether sentences are read on the command line, which has other ways to do what they advise, and not in the app. Set
once, by a command."""

_PART = re.compile(r"<(\w+)(?:=([^:]+))?:([^<>|]*)(?:\|([^<>]*))?>")
_AS: dict[str, Callable[[Any], str]] = {
    "count": count,
    "tokens": lambda number: counted(number, "token"),
    "took": duration,
    "size": size,
    "binary": lambda octets: f"{octets / 2**30:.1f} GiB" if octets >= 2**30 else f"{octets / 2**20:.1f} MiB",
    "stop": lambda words: stopped(str(words)),
}


class _Form(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        convert = _AS.get(format_spec)
        return convert(value) if convert is not None else str(super().format_field(value, format_spec))


def filled(form: str, arguments: Mapping[str, object]) -> str:
    """A sentence from its form. Raises KeyError, TypeError and ValueError for arguments that do not fit.

    `{name}` is an argument, also as `{name:count}`, `:tokens`, `:took` (seconds), `:size`, `:binary` (bytes) or `:stop`
    (with a full stop). `<name:part|other>` is the part where that argument is given and neither empty, 0 nor False, and
    else the other one; `<name=value:part|other>` the part where it has that value. `cli` goes by the place where it is
    read.
    """
    words = {**arguments, "cli": on_command_line.get()}

    def chosen(part: re.Match[str]) -> str:
        given = words.get(part[1])
        return (part[3] if (given if part[2] is None else str(given) == part[2]) else part[4]) or ""

    while (plain := _PART.sub(chosen, form)) != form:
        form = plain
    return _Form().vformat(form, (), words)


def home_path(path: Path | str) -> str:
    """A path on one line, as it is shown: below the home folder, or below where that really is, with ~."""
    text, home = str(path), os.path.expanduser("~")  # noqa: PTH111  Path.home raises where there is none
    below = next((one for one in (home, os.path.realpath(home)) if text.startswith(one + os.sep)), "")
    return one_line(f"~{text[len(below) :]}" if below else text)


def spoken_title(title: str) -> str:
    """The title of a conversation for one who listens: in words that it is a fork, and at most 80 characters of it."""
    return one_line(title.removeprefix(FORK_MARK), 80) + (", a fork" if title.startswith(FORK_MARK) else "")


def stopped(sentence: str) -> str:
    """A sentence with its full stop."""
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."
