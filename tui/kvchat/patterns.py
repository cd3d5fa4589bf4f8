"""Patterns that are compiled when they are first used: a large one takes longer than it takes to open the store, and a
start needs few of them.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Later:
    def __init__(self, pattern: str, flags: int) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        """Of the compiled pattern; what was asked for once is kept here."""
        found = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, found)
        return found


def compiled_later(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """As `re.compile`, which is called when the pattern is first used; a pattern that is wrong raises then."""
    return cast("re.Pattern[str]", _Later(pattern, flags))
