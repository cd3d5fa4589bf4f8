"""Tags: words that the user puts on conversations. A favourite and the archive are two of them that the list knows.

A tag is written in one way only, small, so that two that look alike are one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvchat.prompt.conversation import Conversation

FAVOURITE = "favourite"
"""It comes first in the list."""
ARCHIVE = "archive"
"""It is left out of the list until something is looked for."""
LONGEST = 40
TERM = "tag:"
"""In front of a tag among the words that are looked for."""

_ALSO: dict[str, str] = {"favorite": FAVOURITE, "favourites": FAVOURITE, "favorites": FAVOURITE, "archived": ARCHIVE}
_TAG = re.compile(rf'[^\s/,"#-][^\s/,"]{{0,{LONGEST - 1}}}')


class TagError(ValueError):
    """What was written cannot be a tag; the text says so in a sentence."""


def tag_name(text: str) -> str:
    """The tag that the user means by `text`. Raises TagError."""
    name = unicodedata.normalize("NFC", text.strip().removeprefix("#")).lower()
    if not _TAG.fullmatch(name) or not name.isprintable():
        raise TagError(
            f"“{text.strip()[:LONGEST]}” cannot be a tag: give one word of up to {LONGEST} characters, "
            'without / , or ".'
        )
    return _ALSO.get(name, name)


def written_tags(names: str) -> tuple[list[str], list[str]]:
    """The tags that `work -home` puts on and takes off. Raises TagError."""
    words = names.split()
    return (
        [tag_name(word) for word in words if not word.startswith("-")],
        [tag_name(word[1:]) for word in words if word.startswith("-")],
    )


def tagged(tags: Iterable[str], add: Iterable[str] = (), remove: Iterable[str] = ()) -> tuple[str, ...]:
    """`tags` with some more and without others, in their order."""
    return tuple(sorted({*tags, *add} - {*remove}))


def own(tags: Iterable[str]) -> tuple[str, ...]:
    """Those that the user made up."""
    return tuple(tag for tag in tags if tag not in (FAVOURITE, ARCHIVE))


def having(conversations: Iterable[Conversation], tags: Collection[str]) -> list[Conversation]:
    """Those that have all these tags."""
    return [one for one in conversations if set(tags) <= set(one.tags)]


def meant(term: str, known: Iterable[str]) -> frozenset[str]:
    """The tags of `known` that a search for `term` means: the one of that name, else those that begin with it."""
    term = unicodedata.normalize("NFC", term.removeprefix("#")).lower()
    term, found = _ALSO.get(term, term), frozenset(known)
    return frozenset({term}) if term in found else frozenset(tag for tag in found if tag.startswith(term))


def terms(query: str) -> tuple[str, list[str]]:
    """The words of a filter that are no `tag:`, and what follows each `tag:`."""
    words = query.split()
    return (
        " ".join(word for word in words if not is_term(word)),
        [word[len(TERM) :] for word in words if is_term(word)],
    )


def in_words(tags: Iterable[str]) -> str:
    """The user's own as they are shown: `#home #work`."""
    return " ".join(f"#{tag}" for tag in own(tags))


def is_term(word: str) -> bool:
    """Whether a word asks for a tag."""
    return word[: len(TERM)].lower() == TERM


def in_order(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Favourites first, else as they are."""
    return sorted(conversations, key=lambda one: FAVOURITE not in one.tags)


def listed(conversations: Sequence[Conversation]) -> list[Conversation]:
    """The list as it is shown: favourites first, the archived left out."""
    return in_order([one for one in conversations if ARCHIVE not in one.tags])
