"""The sampling parameters of a conversation.

The rule: an empty field leaves the server's default alone; nothing here ever touches the prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from kvchat.display import one_line
from kvchat.prompt.request import Parameters
from kvchat.ui.screens.modal import Modal
from kvchat.ui.screens.tones import BAD, MUTED, content


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter: what it is called, what it does, and which values it takes."""

    name: str
    label: str
    does: str
    lowest: float
    highest: float
    whole: bool = False

    def parsed(self, text: str) -> float | int | None:
        """The value that `text` says; None for an empty one. Raises ValueError with a sentence."""
        text = text.strip()
        if not text:
            return None
        kind = "A whole number" if self.whole else "A number"
        end = f"to {self.highest:,.10g}." if math.isfinite(self.highest) else "up."
        limits = f"{kind} from {self.lowest:g} {end}"
        try:
            value = int(text) if self.whole else float(text.replace(",", "."))
        except ValueError:
            raise ValueError(limits) from None
        if not self.lowest <= value <= self.highest:
            raise ValueError(limits)
        return value


FIELDS = (
    Field("temperature", "temperature", "0: the likeliest token, 1: freely", 0, 5),
    Field("top_p", "top p", "the likeliest tokens up to this share", 0, 1),
    Field("top_k", "top k", "only this many of the likeliest", 0, 1_000_000, whole=True),
    Field("min_p", "min p", "at least this share of the best", 0, 1),
    Field("max_tokens", "max tokens", "where an answer is cut", 1, math.inf, whole=True),
    Field("seed", "seed", "the same seed, the same sampling", -1, math.inf, whole=True),
    Field("presence_penalty", "presence penalty", "against words that came at all", -2, 2),
    Field("frequency_penalty", "frequency penalty", "against words that came often", -2, 2),
    Field("repeat_penalty", "repeat penalty", "against repetition; 1 does nothing", 0, 5),
)
STOP_DOES = "texts that end an answer, | between"


def parsed_stop(text: str) -> tuple[str, ...]:
    r"""The stop texts, separated by |; \n is a newline, \| a bar, \\ a backslash."""
    found, current, escaped = [], "", False
    for char in text:
        if escaped:
            current += {"n": "\n", "t": "\t"}.get(char, char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "|":
            found.append(current)
            current = ""
        else:
            current += char
    return tuple(part for part in [*found, current + "\\" * escaped] if part)


def written_stop(stop: Iterable[str]) -> str:
    """Stop texts as `parsed_stop` reads them."""
    escapes = {"\\": "\\\\", "|": "\\|", "\n": "\\n", "\t": "\\t"}
    return "|".join("".join(escapes.get(char, char) for char in text) for text in stop)


class ParametersScreen(Modal[Parameters]):
    """One line a parameter. Result: the new parameters, None when nothing was changed."""

    DEFAULT_CSS = """
    ParametersScreen VerticalScroll { height: auto; max-height: 100%; margin-top: 1; }
    ParametersScreen .field {
        height: 1;
        & Label { width: 18; }
        & Input { width: 14; background: $foreground 8%; padding: 0 1; &:focus { background: $foreground 16%; } }
        & .says { width: 1fr; height: 1; margin-left: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        &:ansi Input { text-style: underline; background: ansi_default; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", "Next", show=False),
        Binding("up", "app.focus_previous", "Previous", show=False),
        Binding("enter,ctrl+s", "apply", "Apply", show=False),
    ]

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.heading = "Sampling parameters"
        self.hints = (("↑↓", "field"), ("enter", "apply"), ("esc", "cancel"))
        self._parameters = parameters

    def body(self) -> Iterable[Widget]:
        yield Static(content(("An empty field leaves the server's default. None of these touches the cache: "
                              "nothing is read again.", MUTED)), classes="words")
        with VerticalScroll(can_focus=False):
            for field in FIELDS:
                value = getattr(self._parameters, field.name)
                yield self._line(field.name, field.label, field.does, "" if value is None else f"{value:g}"
                                 if isinstance(value, float) else str(value))
            yield self._line("stop", "stop", STOP_DOES, one_line(written_stop(self._parameters.stop)))

    @staticmethod
    def _line(name: str, label: str, does: str, value: str) -> Horizontal:
        return Horizontal(
            Label(Content(label)),
            Input(value, placeholder="default", id=name, select_on_focus=False),
            Static(content((does, MUTED)), id=f"{name}-says", classes="says"), classes="field",
        )

    def on_mount(self) -> None:
        self.query_one("#temperature", Input).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        field = next((f for f in FIELDS if f.name == event.input.id), None)
        if field is not None:
            with suppress(ValueError):
                self._check(field)

    def _check(self, field: Field) -> float | int | None:
        """The field's value; a wrong one is told beside it. Raises ValueError."""
        says = self.query_one(f"#{field.name}-says", Static)
        try:
            value = field.parsed(self.query_one(f"#{field.name}", Input).value)
        except ValueError as error:
            says.update(content((str(error), BAD)))
            raise
        says.update(content((field.does, MUTED)))
        return value

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        values: dict[str, float | int | None] = {}
        for field in FIELDS:
            try:
                values[field.name] = self._check(field)
            except ValueError:
                self.query_one(f"#{field.name}", Input).focus()
                return
        stop = self._parameters.stop
        text = self.query_one("#stop", Input).value
        if text != one_line(written_stop(stop)):
            stop = parsed_stop(text)
        changed = replace(self._parameters, stop=stop, **values)  # type: ignore[arg-type]
        self.finish(changed if changed != self._parameters else None)
