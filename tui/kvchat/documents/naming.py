"""Names for collections."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container
from pathlib import Path

LONGEST = 40


def named(root: Path) -> str:
    """A name for the collection of a folder or file, made of its own: `My Notes (old)` is `my-notes-old`."""
    plain = unicodedata.normalize("NFKC", root.stem if root.is_file() else root.name)
    name = re.sub(r"[^\w.]+", "-", plain).strip("-._").lower()[:LONGEST]
    return name or "documents"


def unused(name: str, taken: Container[str]) -> str:
    """The name, with a number where it is taken; `taken` holds folded names."""
    number, chosen = 1, name
    while chosen.casefold() in taken:
        number += 1
        chosen = f"{name[:LONGEST - 5]}-{number}"
    return chosen
