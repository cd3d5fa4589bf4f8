"""Ask the user before an act."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import ClassVar, Generic, Protocol, TypeVar

from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Key, Paste, Resize
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from kvchat.sanitize import clean, one_line
from kvchat.ui.screens.kit.modal import Hint, ListModal
from kvchat.ui.screens.kit.rows import RowList
from kvchat.ui.screens.kit.tones import ACCENT, content

R = TypeVar("R")
Choice = tuple[str, str, R]
"""A key (one letter or digit), what it does, and the result."""


class QuestionWords(VerticalScroll, can_focus=False):
    """The lines of a question, as many as there is room for above its answers."""


class DraftBehind(Protocol):
    """What the user writes behind a question that opened by itself."""

    quiet_s: ClassVar[float]
    """Seconds without a key after which nothing is being typed."""

    @property
    def is_written(self) -> bool:
        """Whether it holds text."""

    def take(self, text: str, *, is_pasted: bool) -> None:
        """Write on with `text`."""


class ConfirmScreen(ListModal[R], Generic[R]):
    """A question with its consequences and a few answers, each with a key. Escape answers None. An answer that cannot
    be seen, or that could not when the key was pressed, is not given.

    One that a letter may have opened is answered by a letter only alone. What is typed and is no answer goes to the
    draft, and the question steps back. One that opened by itself is answered by no key at all while the draft holds
    text. Once the user goes among the answers (Tab, an arrow, a click) all of them are answered at once.
    """

    DEFAULT_CSS = """
    ConfirmScreen QuestionWords { height: auto; margin-bottom: 1; }
    ConfirmScreen.-tight QuestionWords { margin-bottom: 0; }
    ConfirmScreen.-tight #frame { padding: 0 1; }
    """
    alone_s: ClassVar[float] = 0.3
    """Seconds without another key that make a letter an answer: one that begins a word is followed sooner."""

    def __init__(self, title: str, lines: Sequence[str], choices: Sequence[Choice[R]], *, gist: str = "") -> None:
        """`gist`: what is asked, in a line; empty: the last of the lines."""
        super().__init__(classes="-small")
        self.heading = title
        self.gist = gist or (lines[-1] if lines else "")
        self.hints = (("rows.choose", "choose"), ("dialog.close", "cancel"))
        self._lines = lines
        self._choices = choices
        self._since = inf
        """Monotonic seconds at which the answers were first drawn: what was typed before did not mean them."""
        self._drawn_in = Size(0, 0)
        """The terminal's size when the answers were drawn last."""
        self._draft: DraftBehind | None = None
        """Takes what is typed here and is no answer."""
        self._is_meant = True
        """Whether the user asked for it, or went to it."""
        self._typed_at = -inf
        """Monotonic seconds of the last key here."""
        self._is_quiet = True
        """Whether the last key came alone."""
        self._takes_letters = True
        """Whether a letter answers at once; else it may begin a word."""
        self._held = ""
        """A letter that answers, while another may follow."""
        self.has_stepped_back = False
        """Whether the user went on writing instead of answering."""

    def open_over(self, draft: DraftBehind, *, is_meant: bool) -> None:
        """The user did not ask for it. `is_meant`: they went to it."""
        self._draft, self._is_meant, self._takes_letters = draft, is_meant, is_meant

    def open_for(self, draft: DraftBehind) -> None:
        """The user asked for it, if the key was not the beginning of a word."""
        self._draft, self._takes_letters = draft, False

    def body(self) -> Iterable[Widget]:
        if self._lines:
            with QuestionWords():
                yield Static(Content("\n").join(content(clean(line)) for line in self._lines), classes="words")
        yield RowList(self._draw, classes="-fits")

    def on_mount(self) -> None:
        self.rows.show(len(self._choices))

    def on_resize(self, event: Resize) -> None:
        """The answers always have their rows; the words scroll in what is left."""
        room = int(event.size.height * 0.96) - 2 - len(self._choices)
        self.set_class(room < 6, "-tight")
        for words in self.query(QuestionWords):
            words.styles.max_height = max(1, room - (0 if room < 6 else 3))
        self.rows.refresh()
        self.call_after_refresh(self._show_keys)

    def _show_keys(self) -> None:
        scroll: Hint = ("rows.page_up rows.page_down", "read on")
        goes_on = any(words.max_scroll_y for words in self.query(QuestionWords))
        self.show_hints([self.hints[0], *[scroll] * goes_on, *self.hints[1:]], fits=True)

    @property
    def can_be_answered(self) -> bool:
        """Whether the question is on the screen."""
        return self._since < inf

    def _draw(self, index: int, width: int) -> Content:
        if self._since == inf:
            self._since = monotonic()
        self._drawn_in = self.app.size
        key, label, _ = self._choices[index]
        cells = max(len(one_line(key, 8)) for key, _, _ in self._choices)
        return content((one_line(key, 8).ljust(cells), ACCENT), "  ", one_line(label, width))

    def on_key(self, event: Key) -> None:
        if event.key == "escape":
            return
        text = event.character if event.is_printable and event.character else ""
        keys = [key.casefold() for key, _, _ in self._choices]
        self._is_quiet = self._draft is None or event.time >= self._typed_at + self._draft.quiet_s
        self._typed_at = event.time
        if event.time <= self._since or self._held:  # it was not meant for an answer, or the letter before began a word
            event.stop()
            event.prevent_default()
            self._write(self._held + text)
        elif text.casefold() in keys:
            event.stop()
            index = keys.index(text.casefold())
            if not self._can_be_chosen(index):
                self._write(text)
            elif self._takes_letters or not self.alone_s:
                self.choose(index)
            else:
                self._held = text
                self.set_timer(self.alone_s, partial(self.choose, index))
        elif text and self._draft is not None:
            event.stop()
            self._write(text)
        elif event.key in ("up", "down", "tab"):
            self._is_meant = self._takes_letters = True

    def on_paste(self, event: Paste) -> None:
        self._write(self._held + event.text, is_pasted=True)

    def on_click(self) -> None:
        self._is_meant = self._takes_letters = True

    def _can_be_chosen(self, index: int) -> bool:
        """Whether an answer is on the screen, and its key is not one of a sentence."""
        found = self.find_widget(self.rows)
        row = found.region.y + index - self.rows.scroll_offset.y
        draft = None if self._is_meant else self._draft
        is_writing = draft is not None and (draft.is_written or not self._is_quiet)
        is_drawn = self._drawn_in == self.app.size and row < self.app.size.height  # the layout may come later
        is_seen = is_drawn and found.visible_region.contains(found.region.x, row)
        return is_seen and not is_writing

    def _write(self, text: str, *, is_pasted: bool = False) -> None:
        """Have `text` written in the draft, and step back; where the user asked, it is not meant for anything."""
        if self._draft is not None and text:
            self.has_stepped_back = True
            self._draft.take(text, is_pasted=is_pasted)
            self.finish(None)

    def action_choose(self) -> None:
        if self.rows.cursor is not None and self._can_be_chosen(self.rows.cursor):
            self.choose(self.rows.cursor)

    def action_page(self, direction: int) -> None:
        """The words scroll; the answers are few."""
        self._is_meant = self._takes_letters = True
        for words in self.query(QuestionWords):
            words.scroll_relative(y=direction * max(1, words.size.height - 1), animate=False)

    def choose(self, index: int) -> None:
        self.finish(self._choices[index][2])
