"""The words by which memories are compared, vetted and recalled: a file for each language, read once.

Words are data, rules are code (`similarity`, `learning`, `recall`). A list holds folded words between spaces, or
alternatives of a pattern between bars. Of languages that put no spaces between words a pattern is looked for anywhere,
as is a list whose name ends in `_part`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_SPACED = ("en", "de", "fr", "es", "it", "pt", "romance", "nl", "other")
_UNSPACED = ("zh", "ja", "ko")


@cache
def _language(name: str) -> dict[str, str]:
    """The lists of a language by name; text above the first is a remark."""
    _, *parts = re.split(r"^\[(.+)\]\n", (Path(__file__).parent / f"{name}.txt").read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def listed(name: str, *languages: str) -> list[str]:
    """The words of a list, of some languages or all."""
    return " ".join(_language(one).get(name, "") for one in languages or (*_SPACED, *_UNSPACED)).split()


def any_of(name: str) -> re.Pattern[str]:
    """One of the alternatives of a list: words between the ends of words, the others anywhere."""
    parts = (rf"\b(?:{_joined(name, _SPACED)})\b", _joined(name, _UNSPACED), _joined(f"{name}_part", _SPACED))
    return re.compile("|".join(filter(None, parts)))


def synonyms() -> dict[str, list[str]]:
    """Words that mean about the same, by the name of their meaning."""
    names = [name for name in _language("en") if name.startswith("same.")]
    return {name.removeprefix("same."): listed(name) for name in names}


def counted() -> dict[str, str]:
    """Numbers written out, and their digits."""
    digits = [*map(str, range(2, 13)), "20"]
    return {
        word: digit
        for name in _SPACED
        if "counted" in _language(name)
        for word, digit in zip(listed("counted", name), digits, strict=True)
        if word != "-"
    }


def _joined(name: str, languages: tuple[str, ...]) -> str:
    found = (_language(language).get(name, "").replace("\n", "") for language in languages)
    return "|".join(filter(None, found))
