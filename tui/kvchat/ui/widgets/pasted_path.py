"""A path as a terminal pastes it when a file is dragged into it.

The rule: whether there is such a file is looked up elsewhere; here only the text is judged, and at once.
"""

from __future__ import annotations

import re

LONGEST = 4096
_BEGINS = re.compile(r"""['"]?(?:/|~/|\./|\.\./|file://)""")


def pasted_path(text: str) -> str | None:
    """The one path that a pasted text is: plain, in quotes, with backslashes, or as a file: address. None: it is
    something else."""
    text = text.strip()
    if not text or len(text) > LONGEST or "\n" in text or "\r" in text or not _BEGINS.match(text):
        return None
    if text.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        try:
            return unquote(urlsplit(text).path) or None
        except ValueError:
            return None
    import shlex

    try:
        words = shlex.split(text)
    except ValueError:
        return text
    return words[0] if len(words) == 1 else text
