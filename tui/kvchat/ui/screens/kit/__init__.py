"""What dialogs are made from: a modal screen with its keys, lists that filter and search, fields, confirmations.

It knows nothing of what a dialog is about: a dialog gives it rows and takes the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.door import door

if TYPE_CHECKING:
    from kvchat.ui.screens.kit.ask import AskScreen as AskScreen
    from kvchat.ui.screens.kit.ask import LineError as LineError
    from kvchat.ui.screens.kit.confirm import Choice as Choice
    from kvchat.ui.screens.kit.confirm import ConfirmScreen as ConfirmScreen
    from kvchat.ui.screens.kit.confirm import DraftBehind as DraftBehind
    from kvchat.ui.screens.kit.filter_list import FilterList as FilterList
    from kvchat.ui.screens.kit.filter_list import Heading as Heading
    from kvchat.ui.screens.kit.filter_list import SearchList as SearchList
    from kvchat.ui.screens.kit.filter_list import grouped as grouped
    from kvchat.ui.screens.kit.long_text import LongText as LongText
    from kvchat.ui.screens.kit.manager import Due as Due
    from kvchat.ui.screens.kit.manager import Jump as Jump
    from kvchat.ui.screens.kit.manager import ManagerScreen as ManagerScreen
    from kvchat.ui.screens.kit.manager import ManagerSource as ManagerSource
    from kvchat.ui.screens.kit.manager import Page as Page
    from kvchat.ui.screens.kit.modal import Hint as Hint
    from kvchat.ui.screens.kit.modal import ListModal as ListModal
    from kvchat.ui.screens.kit.modal import Modal as Modal
    from kvchat.ui.screens.kit.rows import FilterInput as FilterInput
    from kvchat.ui.screens.kit.rows import FilterLine as FilterLine
    from kvchat.ui.screens.kit.rows import RowList as RowList
    from kvchat.ui.screens.kit.rows import column as column
    from kvchat.ui.screens.kit.rows import highlighted as highlighted
    from kvchat.ui.screens.kit.rows import kept as kept
    from kvchat.ui.screens.kit.tones import ACCENT as ACCENT
    from kvchat.ui.screens.kit.tones import BAD as BAD
    from kvchat.ui.screens.kit.tones import CACHED as CACHED
    from kvchat.ui.screens.kit.tones import EVALUATED as EVALUATED
    from kvchat.ui.screens.kit.tones import GLYPHS as GLYPHS
    from kvchat.ui.screens.kit.tones import MARK_TONES as MARK_TONES
    from kvchat.ui.screens.kit.tones import MATCH as MATCH
    from kvchat.ui.screens.kit.tones import MUTED as MUTED
    from kvchat.ui.screens.kit.tones import STRONG as STRONG
    from kvchat.ui.screens.kit.tones import TONE_CLASSES as TONE_CLASSES
    from kvchat.ui.screens.kit.tones import TONE_CSS as TONE_CSS
    from kvchat.ui.screens.kit.tones import USER as USER
    from kvchat.ui.screens.kit.tones import WARNING as WARNING
    from kvchat.ui.screens.kit.tones import WASTED as WASTED
    from kvchat.ui.screens.kit.tones import Part as Part
    from kvchat.ui.screens.kit.tones import content as content
    from kvchat.ui.screens.kit.tones import joined as joined

__getattr__, __dir__ = door(
    __name__,
    {
        "ask": ("AskScreen", "LineError"),
        "confirm": ("Choice", "ConfirmScreen", "DraftBehind"),
        "filter_list": ("FilterList", "Heading", "SearchList", "grouped"),
        "long_text": ("LongText",),
        "manager": ("Due", "Jump", "ManagerScreen", "ManagerSource", "Page"),
        "modal": ("Hint", "ListModal", "Modal"),
        "rows": ("FilterInput", "FilterLine", "RowList", "column", "highlighted", "kept"),
        "tones": (
            "ACCENT",
            "BAD",
            "CACHED",
            "EVALUATED",
            "GLYPHS",
            "MARK_TONES",
            "MATCH",
            "MUTED",
            "Part",
            "STRONG",
            "TONE_CLASSES",
            "TONE_CSS",
            "USER",
            "WARNING",
            "WASTED",
            "content",
            "joined",
        ),
    },
)
