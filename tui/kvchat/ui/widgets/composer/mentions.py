"""A mention while it is typed: `@handbook/gui`, what it can become, and what it is replaced by.

Completion is an offer. A mention that names nothing yet stays as it was typed, and Enter takes only what is marked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from kvchat.prompt.drafts import plain_paste
from kvchat.ui.widgets.composer.suggestions import SuggestionRow, Suggestions

if TYPE_CHECKING:
    from kvchat.documents.mentions import Mention

_TYPED = re.compile(r'(?<![\w@./"])@(?:"(?P<quoted>[^"\n]*)|(?P<plain>[^\s@"<>|]*))\Z')
_ENDS = re.compile(r"[\s.,;:!?)\]}'’”»…]|\Z")
"""What may follow the cursor where the end of a word is typed."""
_ATTACH = "/attach "


class TypedMention(NamedTuple):
    """The mention at the cursor."""

    start: int
    """Its column, that of the `@`."""
    end: int
    beginning: str
    """Its name as far as it is typed."""
    sign: str = "@"
    """The sign in front of it; empty in the argument of a command that takes a path."""


def typed_at(line: str, column: int) -> TypedMention | None:
    """The mention whose end is typed at this column of a line. None: no mention is."""
    found = _TYPED.search(line, 0, column)
    if found is None:
        return None
    quoted = found["quoted"]
    if quoted is not None:
        return TypedMention(found.start(), column + line.startswith('"', column), quoted)
    return TypedMention(found.start(), column, found["plain"]) if _ENDS.match(line, column) else None


def path_at(text: str, column: int) -> TypedMention | None:
    """The path of a file to attach, while that command is typed. None: another text is."""
    if not text.startswith(_ATTACH) or "\n" in text or column != len(text):
        return None
    start = len(_ATTACH) + len(text[len(_ATTACH) :]) - len(text[len(_ATTACH) :].lstrip())
    return TypedMention(start, column, text[start:], "")


def asked_for(typed: TypedMention) -> str:
    """What its completions are asked for with: a command's path is one of the disk however it begins."""
    return typed.beginning if typed.sign else on_disk(typed.beginning)


def on_disk(path: str) -> str:
    """A path as a mention of the disk begins: with `/`, `~` or a dot."""
    return path if path.startswith(("/", "~", "./", "../")) else f"./{path}"


def is_folder(mention: Mention) -> bool:
    """Whether there is more to complete below it."""
    return mention.kind != "file"


def completed(typed: TypedMention, mention: Mention) -> tuple[str, int]:
    """The text of a mention in place of what was typed, and the cursor's distance from its end: inside the quotes of
    one that continues."""
    name = mention.text
    if is_folder(mention) and not name.endswith("/"):
        name += "/"
    if not typed.sign:
        return name if typed.beginning.startswith("./") else name.removeprefix("./"), 0
    from kvchat.documents.mentions import quoted

    written = f"@{quoted(name)}"
    if mention.kind == "collection":  # all of it is meant more often than a part: that is one Backspace away
        return f"{written} ", 0
    return written, int(is_folder(mention) and written.endswith('"'))


def is_complete(typed: TypedMention, mentions: Sequence[Mention]) -> bool:
    """Whether what was typed means something as it is, so that Enter need not complete it."""
    asked = asked_for(typed)
    return asked.endswith("/") or any(one.text.rstrip("/") == asked for one in mentions)


def useful(typed: TypedMention, mentions: Sequence[Mention]) -> list[Mention]:
    """The mentions that can be written in a line of text, without the one file that is written already."""
    asked = asked_for(typed)
    found = [
        one for one in mentions if '"' not in one.text and "\n" not in one.text and plain_paste(one.text) == one.text
    ]
    return [] if len(found) == 1 and found[0].text == asked and not is_folder(found[0]) else found


class MentionList(Suggestions["Mention"]):
    """What the mention at the cursor can become."""

    WIDEST = 48

    class MentionChosen(Message):
        """A mention was clicked."""

        def __init__(self, mention: Mention) -> None:
            super().__init__()
            self.mention = mention

    def __init__(self) -> None:
        super().__init__()
        self.typed: TypedMention | None = None
        """The mention for which the list was asked."""
        self.moved = False
        """Whether the user moved the cursor."""

    def offer(self, typed: TypedMention, mentions: Sequence[Mention]) -> None:
        """Show what this mention can become; where it needs nothing, none is marked."""
        found = useful(typed, mentions)
        self.typed, self.moved, self.cursor = typed, False, None
        self.show(found, marks_first=not is_complete(typed, found))

    def narrow(self, typed: TypedMention | None) -> None:
        """The text was changed: until what it can become is known, show what of the list still fits."""
        asked = asked_for(typed).casefold() if typed is not None else ""
        if typed is None or self.typed is None or typed.start != self.typed.start:
            self.close()
        elif typed != self.typed:
            self.offer(typed, [one for one in self.items if asked in one.text.casefold()])

    def close(self) -> None:
        super().close()
        self.typed, self.moved = None, False

    def move(self, step: int) -> None:
        self.moved = True
        super().move(step)

    def row_of(self, item: Mention) -> SuggestionRow:
        above, _, last = item.text.rstrip("/").rpartition("/")
        name = f"{last}/" if is_folder(item) else last
        return SuggestionRow(name, f"{item.kind} in {above}/" if above.strip(".") else str(item.kind))

    def clicked(self, item: Mention) -> None:
        self.post_message(self.MentionChosen(item))
