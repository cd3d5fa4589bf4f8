"""What is told of trunks."""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.sanitize import one_line

NAMED = 3


def changed_words(name: str, changed: Sequence[str]) -> str:
    """That files of a trunk say something else now, and what to do."""
    named = [one_line(file, 80) for file in changed[:NAMED]]
    if len(changed) > NAMED:
        named.append(f"{len(changed) - NAMED} more")
    files = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return (f"{files} {'has' if len(changed) == 1 else 'have'} changed since the trunk {name} was made. "
            f"To make it anew: kvchat trunk add {name} PATH")
