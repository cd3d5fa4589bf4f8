"""Show a source: the text as it was sent, where it is from, and whether the file has changed since. And list the
sources of a message, where a number chooses one.

It shows what was sent. The file is opened only on a key, and only where that is allowed; nothing is ever fetched. The
numbers are those that the answer uses, so that `[3]` is opened with 3.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import App, SuspendNotSupported
from textual.binding import BindingType
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from kvchat.chat.errors import ChatError
from kvchat.commands.editor import NO_FILE, EditorError, opened
from kvchat.documents.source_state import NOT_TEXT, SourceState, file_lines, place_in
from kvchat.paths import reason
from kvchat.prompt.context import ContextBlock
from kvchat.sanitize import clean, one_line
from kvchat.text.format import home_path
from kvchat.text.messages import removed_words
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import ending
from kvchat.ui.screens.kit import ACCENT, BAD, MUTED, ListModal, Part, RowList, content, highlighted, joined
from kvchat.ui.terminal import copy
from kvchat.ui.widgets.transcript import breaks, headings_of, title_of

if TYPE_CHECKING:
    from kvchat.chat.background.document_service import DocumentService

_PLUS_LINE = frozenset({"less", "more", "most", "pg", "view", "vim", "vi", "nvim"})


class TextRows(RowList, can_focus=True, inherit_bindings=False):
    """The lines of the text, with the keys of the screen."""

    class Resized(Message):
        """There is another width for the lines."""

    def on_resize(self) -> None:
        super().on_resize()
        self.post_message(self.Resized())


class SourceScreen(ListModal[None]):
    """One passage or file."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("source")]
    DEFAULT_CSS = """
    SourceScreen {
        & #about { margin-bottom: 1; }
        & TextRows { height: 1fr; }
        & #note { height: auto; max-height: 2; margin-top: 1; }
    }
    """
    AUTO_FOCUS: ClassVar[str | None] = "TextRows"

    def __init__(
        self,
        documents: DocumentService,
        block: ContextBlock,
        *,
        number: int | None = None,
        query: str = "",
        editor: str = "",
    ) -> None:
        """`query`: what it was found for, to be marked in the text; `editor`: the command of the user's editor."""
        super().__init__(classes="-list -wide")
        self.heading = f"[{number}] {title_of(block)}" if number is not None else title_of(block)
        self.hints = (
            ("source.editor", "editor"),
            ("source.pager", "pager"),
            ("source.copy_place", "copy place"),
            ("source.copy_text", "copy text"),
            ("dialog.close", "close"),
        )
        self.documents = documents
        self.block = block
        self.place = place_in(block)
        self.source_state: SourceState | None = None
        """None: it is being looked up."""
        self._query = query
        self._editor = editor
        self._lines = clean(block.text).strip("\n").expandtabs(4).split("\n")
        self._rows: list[tuple[int | None, str]] = []
        """The number of a line, where it begins here, and the part of it in this row."""
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
    def _can_draw(self) -> bool:
        """Whether there is something to draw on: what was waited for may come when the screen is being closed."""
        return self.is_running and bool(self.query("#note"))

    @work(exclusive=True, group="look", exit_on_error=False)
    async def look(self) -> None:
        """See what the file says by now."""
        try:
            self.source_state = await self.documents.source_state(self.block)
        except ChatError as error:
            self.source_state = SourceState(words=str(error))
        self._about()
        self._width = 0
        self.call_after_refresh(self._wrap)

    def _about(self) -> None:
        """The headings, the file, and what has become of it."""
        if not self._can_draw:
            return
        width = max(20, self.query_one("#about", Static).content_size.width or self.size.width - 12)
        lines: list[Content] = []
        if headings := headings_of(self.block):
            lines.append(content((one_line(headings, width), ACCENT)))
        state = self.source_state
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
        if not self._can_draw:
            return
        rows, state = self.rows, self.source_state
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
        if self.source_state is not None and self.source_state.exact:
            digits = max(1, width - self._width - 3)
            left = [(f"{'' if number is None else number:>{digits}} │ ", MUTED)]
        return content(*left) + highlighted(content(text), self._query)

    def tell(self, text: str, *, bad: bool = False) -> None:
        """A sentence below the text."""
        if self._can_draw:
            self.query_one("#note", Static).update(content((one_line(text, 300), BAD if bad else ACCENT)))

    # -- doing

    @property
    def _file(self) -> SourceState:
        return self.source_state or SourceState()

    @work(group="editor")
    async def action_editor(self) -> None:
        """Open the file in the user's editor, at the line."""
        file = self._file
        if file.path is None:
            self.tell(file.words or "The file is being looked up.", bad=True)
        elif file.path.suffix.lower() in NOT_TEXT:
            self.tell(
                f"An editor cannot show this {file.path.suffix[1:].upper()} file; "
                f"{self.key('source.pager')} shows its text."
            )
        else:
            trouble = await handed_over(self.app, opened(file.path, file.line, self._editor))
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
        self.tell(trouble, bad=True)

    def action_copy_place(self) -> None:
        place = file_lines(self._file, self.place) if self.block.ref else title_of(self.block)
        place = place.replace("\n", "␊").replace("\t", "␉")  # pasted into a shell it runs nothing
        self.tell(f"{place} is in {copy(self.app, place)}.")

    def action_copy_text(self) -> None:
        self.tell(f"The text is in {copy(self.app, self.block.text)}.")


class SourcesScreen(ListModal[None]):
    """Several sources; the one that is chosen is shown above the list, and Esc comes back to it."""

    DEFAULT_CSS = "SourcesScreen .words { margin-bottom: 1; }"

    def __init__(
        self,
        documents: DocumentService,
        sources: Sequence[tuple[int | None, ContextBlock]],
        *,
        words: str = "",
        editor: str = "",
    ) -> None:
        super().__init__(classes="-list" if len(sources) > 12 else "")
        self.heading = "Sources"
        self.hints = (("rows.choose", "show"), ("1–9", "by number"), ("dialog.close", "close"))
        self.documents = documents
        self._editor = editor
        self._sources = sources
        self._words = words
        self._typed = ""

    def body(self) -> Iterable[Widget]:
        if self._words:
            yield Static(Content(one_line(self._words)), classes="words")
        yield RowList(self._draw, classes=None if len(self._sources) > 12 else "-fits")

    def on_mount(self) -> None:
        self.rows.show(len(self._sources))

    def _draw(self, index: int, width: int) -> Content:
        cells = max(len(str(number or "–")) for number, _ in self._sources)
        number, block = self._sources[index]
        left = content((f"{number or '–':>{cells}}  ", ACCENT), ending(title_of(block), width - cells - 2))
        room = width - left.cell_length - 2
        headings = one_line(headings_of(block), room) if room >= 12 else ""
        return joined(left, content((headings, MUTED)), width)

    def on_key(self, event: Key) -> None:
        """A number opens its source once no other begins with it."""
        if event.character is None or not event.character.isdecimal() or not event.character.isascii():
            self._typed = ""
            return
        event.stop()
        for typed in (self._typed + event.character, event.character):
            found = [i for i, (number, _) in enumerate(self._sources) if str(number or "").startswith(typed)]
            if found:
                break
        else:
            self._typed = ""
            return
        self._typed = typed
        exact = next((i for i in found if str(self._sources[i][0]) == typed), found[0])
        self.rows.move(exact - (self.rows.cursor or 0))
        if len(found) == 1:
            self.choose(exact)

    def choose(self, index: int) -> None:
        self._typed = ""
        number, block = self._sources[index]
        self.app.push_screen(SourceScreen(self.documents, block, number=number, editor=self._editor))


async def handed_over(app: App[Any], act: Awaitable[None]) -> str:
    """Let `act` have the terminal; what went wrong in a sentence, else nothing."""
    trouble = ""
    try:
        with app.suspend(), app.batch_update():  # nothing may be raised in here
            try:
                await act
            except EditorError as error:
                trouble = str(error)
    except SuspendNotSupported:
        if asyncio.iscoroutine(act):
            act.close()
        return "This terminal cannot be handed to another program, so none can run in it."
    return trouble


async def paged(path: Path, line: int = 1) -> None:
    """Let the user read a file in $PAGER, else less, from `line` on where the pager supports that. Raises
    EditorError."""
    command = os.environ.get("PAGER") or ("less" if shutil.which("less") else "more")
    try:
        process = await asyncio.create_subprocess_exec(*at_line(shlex.split(command), path, line))
        if status := await process.wait():
            raise EditorError(f"The pager {command} ended with status {status}.")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise EditorError(f"Cannot run the pager {command}: {why}. Set $PAGER.") from None


async def paged_text(text: str) -> None:
    """The same for a text, made safe to show. Raises EditorError."""
    try:
        path = await asyncio.to_thread(_written, clean(text))
    except OSError as error:
        raise EditorError(NO_FILE.format(reason=reason(error))) from None
    try:
        await paged(path)
    finally:
        await asyncio.to_thread(path.unlink, missing_ok=True)


def at_line(command: list[str], path: Path, line: int) -> list[str]:
    """The command with the file, and the line in the form that this pager takes."""
    name = Path(command[0]).stem.lower() if command else ""
    return [*command, *([f"+{line}"] if name in _PLUS_LINE and line > 1 else []), str(path)]


def _written(text: str) -> Path:
    with tempfile.NamedTemporaryFile(
        "w", suffix=".txt", prefix="kvchat-", encoding="utf-8", errors="replace", delete=False
    ) as file:
        file.write(text + "\n")
    return Path(file.name)
