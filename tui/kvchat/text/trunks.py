"""What is told of trunks."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.sanitize import one_line
from kvchat.text.format import count

NAMED = 3


def changed_words(name: str, changed: Sequence[str]) -> str:
    """That files of a trunk say something else now, and what to do."""
    named = ", ".join(one_line(file, 80) for file in changed[:NAMED])
    more = f" and {count(len(changed) - NAMED)} more" if len(changed) > NAMED else ""
    return (f"The trunk {name} has {named}{more} as before a change. To take that in: kvchat trunk add {name} PATH; "
            "it is prefilled anew.")
