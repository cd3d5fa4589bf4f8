"""The field for a text of several lines, which is kept until it is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import BindingType
from textual.widgets import TextArea

from kvchat.sanitize import clean
from kvchat.ui.bindings import binding, users_keys

if TYPE_CHECKING:
    from kvchat.chat.conversations.drafts import Drafts


class LongText(TextArea):
    """Changes a text. What was written under the same name before, and not saved, is there again."""

    DEFAULT_CSS = """
    LongText {
        border: none; padding: 0; background: transparent; scrollbar-size-vertical: 1;
        & .text-area--cursor-line { background: transparent; }
        &:focus { border: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [binding("undo", "undo")]

    def __init__(self, drafts: Drafts, **options: Any) -> None:
        super().__init__(compact=True, soft_wrap=True, **options)
        self._drafts = drafts
        self._key = self._before = self._left = ""

    def begin(self, key: str, text: str) -> None:
        """Change `text`, and keep what is written under this key (`Drafts.begin`); empty: it is not kept. What was left
        there takes its place, in one step that can be undone."""
        self.end()
        self._key, self._before = key, clean(text)
        self._left = clean(self._drafts.left(key)) if key else ""
        self.text = self._before
        if self._left:
            self.replace(self._left, (0, 0), self.document.end)
        self.move_cursor(self.document.end)
        if key:
            self._drafts.begin(key, self)

    @property
    def is_changed(self) -> bool:
        return self.text.strip() != self._before.strip()

    @property
    def unsaved(self) -> str:
        return self.text if self.is_changed else ""

    @property
    def notice(self) -> str:
        """A notice that the restored text is not saved, and the key that takes it back; empty: the text is another
        one."""
        if not self._left or self.text != self._left:
            return ""
        return f"Not saved; {users_keys(self.app).key_of('undo')} takes it back."

    def saved(self) -> None:
        """What is written is where it belongs."""
        if self._key:
            self._drafts.saved(self._key)

    def end(self) -> None:
        """Leave the field."""
        if self._key:
            self._drafts.end(self._key, self)
        self._key = ""

    def on_unmount(self) -> None:
        self.end()
