"""The last line of defence: whatever widget drew it, no control character reaches the terminal.

The first line is `kvchat.sanitize.clean` at the edge. Here a line that is already clean costs one look per segment and
is passed on as it is.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from kvchat.sanitize import clean


class ControlFilter(LineFilter):
    """Makes control characters in drawn text visible. Put it first in `App.get_line_filters`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments, with unprintable characters replaced; the same list when there are none."""
        for text, _, control in segments:
            if not control and not text.isprintable():
                return [_guarded(segment) for segment in segments]
        return segments


def _guarded(segment: Segment) -> Segment:
    text, style, control = segment
    if control or text.isprintable():
        return segment
    return Segment(clean(text).replace("\n", " ").replace("\t", " "), style)
