"""When to try again, as a server says it in `Retry-After`: seconds, or a date of HTTP."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

LONGEST_S = 3600
"""More than that is not waited for: it is "later"."""
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_DATE = re.compile(r"[A-Za-z]{3,9}, [0-9A-Za-z: -]{15,40}", re.ASCII)


def seconds_of(header: str, now: datetime) -> int | None:
    """Whole seconds from `now` until a request is welcome again, rounded up; 0 for a time that has passed. None where
    the header says nothing, something that is no time, or a time beyond LONGEST_S."""
    text = header.strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif _DATE.fullmatch(text):
        from email.utils import parsedate_to_datetime  # hardly ever needed, and slow to import

        try:
            then = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds()
    else:
        return None
    return max(0, math.ceil(seconds)) if seconds <= LONGEST_S else None
