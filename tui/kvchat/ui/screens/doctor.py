"""The doctor's screen: what is being tried, then what was found and what to change.

It only shows. What examines is given; closing the screen ends the examination.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from kvchat.chat.errors import ChatError
from kvchat.doctor.report import DoctorReport, Severity, Verdict
from kvchat.doctor.words import GLYPHS, facts, headline
from kvchat.sanitize import clean, one_line
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.kit import ACCENT, BAD, CACHED, MUTED, STRONG, WASTED, Hint, Modal, Part, content

Examine = Callable[[Callable[[str], None], bool], Awaitable[DoctorReport]]
"""Examines the server in use: it is given what to tell progress to, and whether the user agreed to what costs
something. Raises ChatError."""

TONES: dict[Severity, str] = {Severity.PROBLEM: BAD, Severity.NOTE: WASTED, Severity.FINE: CACHED}
_CLOSE: Hint = ("dialog.close", "close")


class DoctorScreen(Modal[None]):
    """Runs an examination as it opens, and shows its report."""

    DEFAULT_CSS = """
    DoctorScreen {
        & #report { height: 1fr; scrollbar-gutter: stable; }
        & #report Horizontal { height: auto; width: 1fr; }
        & #report .glyph { width: 3; height: auto; }
        & #report .label { width: 17; height: auto; }
        & #report .apart { margin-top: 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("report")]

    def __init__(self, examine: Examine) -> None:
        super().__init__(classes="-list -wide")
        self.heading = "Doctor"
        self.hints = (_CLOSE,)
        self._examine = examine
        self._agreed = False
        self._is_examining = False
        self._report: DoctorReport | None = None

    def body(self) -> Iterable[Widget]:
        yield VerticalScroll(id="report", can_focus=False)

    def on_mount(self) -> None:
        self._run()

    @property
    def _asks(self) -> bool:
        """Whether the report waits for the user's word."""
        return not self._is_examining and self._report is not None and bool(self._report.examination.question)

    @work(exclusive=True, group="examination")
    async def _run(self) -> None:
        self._is_examining, self._report = True, None
        self.show_hints((_CLOSE,))
        await self._show([])
        try:
            self._report = await self._examine(self._tell, self._agreed)
        except ChatError as error:
            await self._show([_words((clean(str(error)), BAD))])
        else:
            await self._show(list(_told(self._report)))
        self._is_examining = False
        again: Hint = ("report.agree", "go on") if self._asks else ("report.again", "again")
        self.show_hints((again, ("report.up report.down", "scroll"), _CLOSE))

    def _tell(self, words: str) -> None:
        """A line of progress."""
        if self._is_examining and self.is_up:
            report = self.query_one("#report", VerticalScroll)
            report.mount(_words((one_line(words), MUTED)))
            report.scroll_end(animate=False)

    async def _show(self, widgets: list[Widget]) -> None:
        report = self.query_one("#report", VerticalScroll)
        await report.remove_children()
        await report.mount_all(widgets)
        report.scroll_home(animate=False)

    def action_agree(self) -> None:
        if self._asks:
            self._agreed = True
            self._run()

    def action_again(self) -> None:
        if not self._is_examining and not self._asks:
            self._run()

    def action_scroll(self, rows: int) -> None:
        self.query_one("#report", VerticalScroll).scroll_relative(y=rows, animate=False)


def _told(report: DoctorReport) -> Iterable[Widget]:
    """The report: its headline, the verdicts, then what was found out."""
    tone = CACHED if report.well else BAD if report.of(Severity.PROBLEM) else WASTED
    yield _words((headline(report), tone), (" ", ""))
    for verdict in report.verdicts:
        yield from _verdict(verdict)
    yield _words(("What was found", STRONG), apart=True)
    for name, words in facts(report.examination):
        yield _row(_words((one_line(name), MUTED), classes="label"), _words(one_line(words)))


def _verdict(verdict: Verdict) -> Iterable[Widget]:
    glyph = _words((GLYPHS[verdict.severity], TONES[verdict.severity]), classes="glyph")
    yield _row(glyph, _words(one_line(verdict.sentence)), apart=True)
    if verdict.advice:
        saved = verdict.gain
        yield _row(
            _words(("→", ACCENT), classes="glyph"),
            _words(one_line(verdict.advice), (f" ({saved})" if saved else "", MUTED)),
        )


def _words(*parts: Part, classes: str = "words", apart: bool = False) -> Static:
    return Static(content(*parts), classes=f"{classes} apart" if apart else classes)


def _row(left: Widget, right: Widget, apart: bool = False) -> Horizontal:
    return Horizontal(left, right, classes="apart" if apart else "")
