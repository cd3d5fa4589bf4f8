"""A source: the text as it was sent, where it is from, and whether the file says something else by now.

The rule: it shows what was sent. The file is opened only on a key, and only where it may be; nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from kvchat.chat.errors import ChatError
from kvchat.prompt.context import ContextBlock
from kvchat.sanitize import clean, one_line
from kvchat.ui.render.sources import ending, headings_of, title_of
from kvchat.ui.render.wrap import breaks
from kvchat.ui.screens.filtering import highlighted
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.source_file import NOT_TEXT, SourceService, Standing, file_lines, home_path, place_in, standing
from kvchat.ui.screens.source_pager import handed_over, paged, paged_text
from kvchat.ui.screens.tones import ACCENT, BAD, MUTED, Part, content, removed_words
from kvchat.ui.terminal.clipboard import copy
from kvchat.ui.terminal.editor import opened


class TextRows(RowList, can_focus=True, inherit_bindings=False):
    """The lines of the text, with the keys of the screen."""

    class Resized(Message):
        """There is another width for the lines."""

    def on_resize(self) -> None:
        super().on_resize()
        self.post_message(self.Resized())


class SourceScreen(ListModal[None]):
    """One passage or file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "move(1)", "Down", show=False),
        Binding("k", "move(-1)", "Up", show=False),
        Binding("space", "page(1)", "Page down", show=False),
        Binding("e,E,ctrl+g", "editor", "Editor", show=False),
        Binding("p", "pager", "Pager", show=False),
        Binding("y", "copy_place", "Copy the place", show=False),
        Binding("Y", "copy_text", "Copy the text", show=False),
    ]
    DEFAULT_CSS = """
    SourceScreen {
        & #about { margin-bottom: 1; }
        & TextRows { height: 1fr; }
        & #note { height: auto; max-height: 2; margin-top: 1; }
    }
    """
    AUTO_FOCUS: ClassVar[str | None] = "TextRows"

    def __init__(self, service: SourceService, block: ContextBlock, *, number: int | None = None,
                 query: str = "") -> None:
        """`query`: what it was found for, to be marked in the text."""
        super().__init__(classes="-list -wide")
        self.heading = f"[{number}] {title_of(block)}" if number is not None else title_of(block)
        self.hints = (("e", "editor"), ("p", "pager"), ("y", "copy place"), ("Y", "copy text"), ("esc", "close"))
        self.service = service
        self.block = block
        self.place = place_in(block)
        self.standing: Standing | None = None
        """None: it is being looked up."""
        self._query = query
        self._lines = clean(block.text).strip("\n").expandtabs(4).split("\n")
        self._rows: list[tuple[int | None, str]] = []
        """The number of a line, where it begins here, and what of it stands in this row."""
        self._width = 0

    def body(self) -> Iterable[Widget]:
        yield Static(classes="words", id="about")
        yield TextRows(self._draw, cursor=False)
        yield Static(classes="words", id="note")

    def on_mount(self) -> None:
        self._about()
        self.look()

    # -- showing

    @property
    def _stands(self) -> bool:
        """Whether there is something to draw on: what was waited for may come when the screen is being closed."""
        return self.is_running and bool(self.query("#note"))

    @work(exclusive=True, group="look", exit_on_error=False)
    async def look(self) -> None:
        """See what the file says by now."""
        block = self.block
        try:
            self.standing = await self.service.with_documents(lambda files: standing(files, block))
        except ChatError as error:
            self.standing = Standing(words=str(error))
        self._about()
        self._width = 0
        self.call_after_refresh(self._wrap)

    def _about(self) -> None:
        """The headings, the file, and what has become of it."""
        if not self._stands:
            return
        width = max(20, self.query_one("#about", Static).content_size.width or self.size.width - 12)
        lines: list[Content] = []
        if headings := headings_of(self.block):
            lines.append(content((one_line(headings, width), ACCENT)))
        state = self.standing
        if state is not None and state.path is not None:
            lines.append(content((ending(home_path(state.path), width), MUTED)))
        if state is not None and state.words:
            lines.append(content((one_line(state.words, 3 * width), BAD)))
        if words := removed_words(self.block.text):
            lines.append(content((words, BAD)))
        about = self.query_one("#about", Static)
        about.display = bool(lines)
        about.update(Content("\n").join(lines))

    @on(TextRows.Resized)
    def _wrap(self) -> None:
        """The text in rows as wide as there is room."""
        if not self._stands:
            return
        rows, state = self.rows, self.standing
        first = state.line if state is not None and state.exact else None
        digits = len(f"{first + len(self._lines) - 1}") + 3 if first is not None else 0
        width = rows.room - digits
        if width == self._width or width < 1:
            return
        self._width, self._rows = width, []
        for index, line in enumerate(self._lines):
            for start, stop in breaks(line, width):
                self._rows.append((first + index if first is not None and not start else None, line[start:stop]))
        at = rows.scroll_offset.y
        rows.show(len(self._rows), cursor=None)
        rows.scroll_to(y=at, animate=False, immediate=True)

    def _draw(self, index: int, width: int) -> Content:
        number, text = self._rows[index]
        left: list[Part] = []
        if self.standing is not None and self.standing.exact:
            digits = max(1, width - self._width - 3)
            left = [(f"{'' if number is None else number:>{digits}} │ ", MUTED)]
        return content(*left) + highlighted(content(text), self._query)

    def tell(self, text: str, *, bad: bool = False) -> None:
        """A sentence below the text."""
        if self._stands:
            self.query_one("#note", Static).update(content((one_line(text, 300), BAD if bad else ACCENT)))

    # -- doing

    @property
    def _file(self) -> Standing:
        return self.standing or Standing()

    @work(group="editor")
    async def action_editor(self) -> None:
        """The file in the person's editor, at the line."""
        file = self._file
        if file.path is None:
            self.tell(file.words or "The file is being looked up.", bad=True)
        elif file.path.suffix.lower() in NOT_TEXT:
            self.tell(f"An editor cannot show a {file.path.suffix[1:].upper()} file; p shows its text.")
        else:
            trouble = await handed_over(self.app, opened(file.path, file.line, self.service.settings.editor))
            self.refresh(layout=True)
            self.tell(trouble, bad=True)
            self.look()

    @work(group="editor")
    async def action_pager(self) -> None:
        """The file in the pager, or the text, where there is no file to show."""
        file = self._file
        if file.path is None or file.path.suffix.lower() in NOT_TEXT:
            trouble = await handed_over(self.app, paged_text(self.block.text))
        else:
            trouble = await handed_over(self.app, paged(file.path, file.line))
        self.refresh(layout=True)
        self.tell(trouble, bad=True)

    def action_copy_place(self) -> None:
        place = file_lines(self._file, self.place) if self.block.ref else title_of(self.block)
        place = place.replace("\n", "␊").replace("\t", "␉")  # pasted into a shell it runs nothing
        self.tell(f"{place} is in {copy(self.app, place)}.")

    def action_copy_text(self) -> None:
        self.tell(f"The text is in {copy(self.app, self.block.text)}.")
