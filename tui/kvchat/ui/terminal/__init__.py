"""The terminal: what comes in from it, and what may go out to it.

It knows bytes, keys, the clipboard and the desktop, nothing of conversations. `driver` reads the input and gives the
terminal back at the end; `input` makes keys and pastes of it; `frame` writes what has changed on the screen;
`control_filter` lets no control character out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.door import door

if TYPE_CHECKING:
    from kvchat.ui.terminal.background import QUERY as QUERY
    from kvchat.ui.terminal.background import is_light as is_light
    from kvchat.ui.terminal.clipboard import ClipboardError as ClipboardError
    from kvchat.ui.terminal.clipboard import copy as copy
    from kvchat.ui.terminal.clipboard import image as image
    from kvchat.ui.terminal.colourless import COLOURLESS as COLOURLESS
    from kvchat.ui.terminal.control_filter import ControlFilter as ControlFilter
    from kvchat.ui.terminal.desktop import Desktop as Desktop
    from kvchat.ui.terminal.desktop import Prefilled as Prefilled
    from kvchat.ui.terminal.desktop import is_bare as is_bare
    from kvchat.ui.terminal.driver import TerminalDriver as TerminalDriver
    from kvchat.ui.terminal.driver import keyboard as keyboard
    from kvchat.ui.terminal.frame import Frame as Frame
    from kvchat.ui.terminal.input import Background as Background
    from kvchat.ui.terminal.input import TerminalInput as TerminalInput

__getattr__, __dir__ = door(
    __name__,
    {
        "background": ("QUERY", "is_light"),
        "clipboard": ("ClipboardError", "copy", "image"),
        "colourless": ("COLOURLESS",),
        "control_filter": ("ControlFilter",),
        "desktop": ("Desktop", "Prefilled", "is_bare"),
        "driver": ("TerminalDriver", "keyboard"),
        "frame": ("Frame",),
        "input": ("Background", "TerminalInput"),
    },
)
