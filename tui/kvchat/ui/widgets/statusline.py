"""The bars of the main screen: header, status line and the line of keys.

These widgets only hold what the app gives them and draw it; the sentences are in `header_text` and `status_text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.content import Content

from kvchat.figures.accounting import PromptProgress, TurnFigures
from kvchat.prompt.message import State
from kvchat.sanitize import one_line
from kvchat.text.messages import WAITING
from kvchat.ui.runs import Run, Runs, fit, width_of
from kvchat.ui.widgets import header_text, status_text
from kvchat.ui.widgets.bars import BarLine
from kvchat.ui.widgets.header_text import HeaderState
from kvchat.ui.widgets.status_text import Live

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import LiveAnswer

LEFT_CELLS = 32
"""Cells of the header that the model and its place keep where it also says what is searched."""
CHARACTERS_PER_TOKEN = 4
"""For the estimate of a running answer's tokens, when the server does not count them."""


class StatusLine(BarLine):
    """What the last turn cost, or how the running one does; at the right a remark of the app."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._turns: Sequence[TurnFigures] = ()
        self._state = State.DONE
        self._seen: set[TurnFigures] = set()
        self._live: Live | None = None
        self._waiting = ""
        self._aside = ""
        self._problem = ""
        self._ready = False
        self._memory, self._memory_key = "", ""
        self._background = ""
        self._warm_up: PromptProgress | None = None
        self._warms_up = False
        self.why_key = "F2"
        """The key that leads to more about a turn."""

    def set_turns(self, turns: Sequence[TurnFigures], *, state: State = State.DONE) -> None:
        """The figures of the branch's answers, oldest first, and how the last one ended. A warning about it stays
        until `acknowledge` or the next turn."""
        self._turns, self._state = tuple(turns), state
        self.refresh()

    def set_live(self, live: Live | None) -> None:
        """The running answer; None when there is none, and the turns' figures come back."""
        self._live = live
        self.refresh()

    def set_waiting(self, words: str) -> None:
        """What a message waits for that is not sent yet; empty: none waits."""
        if words != self._waiting:
            self._waiting = words
            self.refresh()

    def set_aside(self, text: str) -> None:
        """A short remark at the right end, dropped when there is no room."""
        self._aside = text
        self.refresh()

    def set_problem(self, words: str) -> None:
        """What went wrong and what to do, in place of the turn's figures; empty: nothing."""
        self._problem = words
        self.refresh()

    def set_ready(self, ready: bool) -> None:
        """Whether the server has answered: until then the header says how it is."""
        if ready != self._ready:
            self._ready = ready
            self.refresh()

    def set_memory(self, words: str, key: str = "") -> None:
        """Show what was noted since the user looked last, at the right end until it is looked at; empty: nothing. `key`
        leads to it."""
        self._memory, self._memory_key = words, key
        self.refresh()

    def set_background(self, words: str) -> None:
        """How far work in the background is (documents, a model that is fetched), quietly at the right end; empty:
        there is none."""
        if words != self._background:
            self._background = words
            self.refresh()

    def set_warm_up(self, active: bool, progress: PromptProgress | None = None) -> None:
        """Whether the conversation on the screen is being read ahead, and how far."""
        if (active, progress) != (self._warms_up, self._warm_up):
            self._warms_up, self._warm_up = active, progress
            self.refresh()

    def acknowledge(self) -> None:
        """The user has seen why tokens were prefilled again: show the figures of this turn instead of the sentence."""
        self._seen.update(self._turns[-1:])
        self.refresh()

    def runs(self, width: int) -> tuple[Runs, Runs]:
        screen = width + status_text.PADDING
        seen = self._seen.issuperset(self._turns[-1:])
        left = (
            [Run(one_line(self._waiting), "accent")]
            if self._waiting
            else status_text.running(self._live, screen)
            if self._live is not None
            else [Run(fit(one_line(self._problem), width), "alert")]
            if self._problem
            else status_text.settled(
                self._turns, screen, state=self._state, seen=seen, key=self.why_key, ready=self._ready
            )
        )
        aside = [Run(one_line(self._aside), "quiet")] if self._aside else []
        if self._warms_up and self._live is None:
            aside = status_text.warm_up_runs(self._warm_up, width - 3 - width_of(left))
        room = width - 3 - width_of(left)
        memory = status_text.remembered(self._memory, self._memory_key, room)
        background = [Run(one_line(self._background), "quiet")] if self._background else []
        return left, status_text.together(room, aside, background, memory)


def live_of(answer: LiveAnswer, now: float, doing: str = "answering", *, speed: float | None = None) -> Live:
    """What the status line shows of a running answer at `now` (monotonic seconds). Tokens the server does not count
    are estimated from the text, how far the prompt is at `speed` tokens/s, as measured before."""
    tokens = answer.reported.predicted_tokens
    estimated = tokens is None
    if tokens is None:
        tokens = (len(answer.text) + len(answer.reasoning)) // CHARACTERS_PER_TOKEN
    waiting = answer.waiting
    if waiting is not None and waiting.phase == "prefill" and answer.prefill is not None:
        waiting = None  # its progress is shown there
    return Live(
        elapsed=max(0.0, now - answer.sent_at),
        progress=answer.prefill_at(now, speed),
        first_token=None if answer.ttft_ms is None else answer.ttft_ms / 1000,
        tokens=tokens,
        estimated=estimated,
        stopping=answer.stopping,
        waiting="" if waiting is None else waiting.words or WAITING.get(waiting.phase, waiting.phase),
        doing=doing,
    )


class Header(BarLine):
    """The conversation, the model, where it runs, and the context meter."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.state = HeaderState(phase="connecting")
        self._documents: Sequence[str] = ()

    def set_state(self, state: HeaderState) -> None:
        self.state = state
        self.tooltip = Content(one_line(state.sentence)) if state.sentence else None
        self.refresh()

    def set_documents(self, words: Sequence[str]) -> None:
        """What the conversation searches by itself, the longest way to say it first; empty: nothing. It is shown next
        to the window's meter where there is room."""
        if words != self._documents:
            self._documents = words
            self.refresh()

    def set_title(self, title: str) -> None:
        """The conversation's; empty: it has none yet."""
        self.set_state(replace(self.state, title=title))

    def set_context(self, used: int | None, size: int | None, *, exact: bool = True) -> None:
        """The tokens in the window and how many fit; None is unknown. `exact`: as the server reported them."""
        self.set_state(replace(self.state, context_used=used, context_is_exact=exact, context_size=size))

    def runs(self, width: int) -> tuple[Runs, Runs]:
        right = header_text.meter(self.state, width + 2)
        if self._documents:
            left = width_of(header_text.left(self.state, width))
            said = header_text.documents(self._documents[:1], width - width_of(right) - 4 - left)
            if not said:  # the name is worth more than the bar, and than all of the model's name
                right = header_text.meter(self.state, width + 2, bar_shown=False)
                said = header_text.documents(self._documents, width - width_of(right) - 4 - min(left, LEFT_CELLS))
            right = [*said, *right]
        return header_text.left(self.state, width - width_of(right) - (2 if right else 0)), right


_SHORT_KEYS = {
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "enter": "Enter",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "space": "Space",
    "tab": "Tab",
    "delete": "Del",
    "question_mark": "?",
}


def key_name(key: str) -> str:
    """A key as the line of keys shows it: ctrl+n is ^N, f4 is F4, alt+down is Alt+↓."""
    *modifiers, last = key.split("+")
    last = _SHORT_KEYS.get(
        last,
        last.upper()
        if (modifiers and len(last) == 1) or last[1:].isdigit()
        else last
        if len(last) == 1
        else last.capitalize(),
    )
    return "".join("^" if m == "ctrl" else m.capitalize() + "+" for m in modifiers) + last


def fitting(keys: Sequence[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """The keys that fit in `width` cells: the last one, which leads to all others, always; then from the first on."""
    if not keys:
        return []
    *others, last = keys
    room = width - _key_width(last)
    shown = []
    for key in others:
        room -= _key_width(key)
        if room < 0:
            break
        shown.append(key)
    return [*shown, last]


def _key_width(key: tuple[str, str]) -> int:
    return cell_len(f"{key_name(key[0])} {one_line(key[1])}  ")


class KeyBar(BarLine):
    """The most useful keys, in order of use; the last one (help) is always there. A click presses the key."""

    def __init__(
        self, keys: Sequence[tuple[str, str]] = (), *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._keys = keys

    def set_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """The keys as (key, label): ("ctrl+n", "new")."""
        self._keys = keys
        self.refresh()

    def runs(self, width: int) -> tuple[Runs, Runs]:
        left: list[Run] = []
        for key, label in fitting(self._keys, width + 2):
            left += [Run("  ", "plain"), Run(key_name(key), "accent"), Run(f" {one_line(label)}", "quiet")]
        return left[1:], ()

    def on_click(self, event: events.Click) -> None:
        at = event.x - 1
        for key in fitting(self._keys, self.content_size.width + 2):
            if 0 <= at < _key_width(key) - 2:
                self.app.simulate_key(key[0])
                return
            at -= _key_width(key)
