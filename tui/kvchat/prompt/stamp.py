"""The time stamp: one short line, and only when it tells the model something new.

It is put in at a branch's first turn, when the date has changed, and when `every` has passed since the
last stamp on the branch. Between stamps a message carries no time, so a quick exchange costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kvchat.prompt.context import TIME, ContextBlock
from kvchat.prompt.message import Node

STAMP_INTERVAL = timedelta(minutes=10)
"""The default of the setting `time_stamp_minutes`."""

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def time_block(now: datetime) -> ContextBlock:
    """The stamp for the aware instant `now`, minutes precise, in its own zone. Independent of the locale."""
    offset = now.strftime("%z")
    zone = f"UTC{offset[:3]}:{offset[3:5]}" if offset else "local time"
    text = f"{_DAYS[now.weekday()]} {now:%Y-%m-%d %H:%M} {zone}"
    return ContextBlock(TIME, now.isoformat(timespec="seconds"), text)


def last_stamp(branch: Iterable[Node]) -> datetime | None:
    """The instant of the newest time stamp along `branch`, or None."""
    found = None
    for node in branch:
        for block in node.message.blocks:
            if block.kind == TIME:
                found = datetime.fromisoformat(block.source)
    return found


def stamp_due(now: datetime, last: datetime | None, every: timedelta = STAMP_INTERVAL) -> bool:
    """Whether a message sent at `now` carries a stamp. A clock that went backwards stamps again."""
    if last is None:
        return True
    local = last.astimezone(now.tzinfo)
    return local.date() != now.date() or not (timedelta(0) <= now - last < every)
