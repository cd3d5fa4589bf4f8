"""Draw a conversation that has no message yet: its place, its server, and a few ways on.

It shows as much as fits, most important first; nothing is cut off in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from rich.cells import cell_len, chop_cells
from textual.content import Content

from kvchat.sanitize import clean, one_line

WIDTH = 72
"""Cells of its lines, at the most."""
RECENT = 5
TIPS = 3
WORDMARK = ("╻┏ ╻ ╻┏━╸╻ ╻┏━┓╺┳╸", "┣┻┓┃┏┛┃  ┣━┫┣━┫ ┃", "╹ ╹┗┛ ┗━╸╹ ╹╹ ╹ ╹")
"""The name, in the strokes of the rail."""
BEGINNING = 16
"""Rows from which on there is room for it."""
MARK_STYLES = {"●": "$cache-cached", "◐": "$cache-cached", "⠋": "$text-accent", "!": "$text-warning"}


class Recent(Struct, frozen=True):
    """A conversation that one may go back to."""

    mark: str
    title: str
    aside: str
    """When it was used, or what opening it would prefill."""


def first_steps(key: Callable[[str], str]) -> list[str]:
    """What the rail means, and the first keys."""
    return [
        "A green line next to a message: the server need not read it again.",
        "",
        f"{key('composer.messages')} to the messages · @ attaches a file",
        f"{key('model')} chooses the model and the server · {key('quit')} quits",
    ]


def tips(key: Callable[[str], str], number: int) -> list[str]:
    """Three of the tips; another `number`, three others. The last says how one leaves. `key` gives the key of an
    action."""
    known = [
        f"{key('inspector')} shows where every token of the prompt came from.",
        f"{key('palette')} finds any action · {key('help')} lists all keys.",
        "@ attaches a file · / runs a command.",
        f"{key('model')} chooses the model and the server.",
        f"{key('composer.messages')} goes to the conversation: {key('transcript.edit')} edits, "
        f"{key('transcript.regenerate')} regenerates, {key('transcript.copy')} copies.",
        f"{key('search')} searches all conversations · {key('list')} lists them.",
        "/system sets the system prompt of this conversation.",
        f"{key('export')} writes a conversation to Markdown, HTML or JSON.",
        'git diff | kvchat ask "review this" works in the shell.',
    ]
    *others, last = (known[(number * TIPS + step) % len(known)] for step in range(TIPS))
    return [*others, f"{last.removesuffix('.')} · {key('quit')} quits"]


def empty_screen(
    width: int,
    height: int,
    *,
    facts: str,
    notes: Sequence[str],
    recent: Sequence[Recent],
    tips: Sequence[str],
    left: Sequence[str] = (),
) -> Content:
    """The name and the server's `facts`, then what is left to do (`left`, each line whole), what is new to a newcomer
    (`notes`), the conversations used last, and tips; `width` and `height` in cells."""
    room = max(16, min(width, WIDTH))
    name = [Content.styled(line, "$cache-cached") for line in WORDMARK]
    head = [*name, Content("")] if height >= BEGINNING else [Content.styled("kvchat", "bold $text-accent")]
    head += _clauses(facts, room)
    blocks = [
        [Content.styled(part, "$text-warning") for line in left for part in chop_cells(clean(line), room)],
        [line for note in notes for line in _clauses(note, room)],
        [Content.styled("Recent", "bold"), *(_row(one, room) for one in recent[:RECENT])] if recent else [],
        [line for tip in tips for line in _clauses(tip, room)],
    ]
    lines = head
    for block in blocks:
        if block and len(lines) + 1 + len(block) <= height:
            lines = [*lines, Content(""), *block]
    return Content("\n").join(line.pad_right(room - line.cell_length) for line in lines)


def _clauses(text: str, room: int) -> list[Content]:
    """Clauses with `·` between them, in as many lines as they need; one takes two lines at most."""
    lines: list[str] = []
    for clause in text.split(" · "):
        if lines and cell_len(f"{lines[-1]} · {clause}") <= room:
            lines[-1] += f" · {clause}"
        else:
            lines.append(clause)
    return [part for line in lines for part in Content.styled(one_line(line, 2 * room), "$text-muted").wrap(room)]


def _row(one: Recent, room: int) -> Content:
    title = one_line(one.title, max(8, room - cell_len(one.aside) - 4))
    gap = " " * max(1, room - cell_len(title) - cell_len(one.aside) - 2)
    return Content.assemble(
        (one.mark, MARK_STYLES.get(one.mark, "$text-muted")), " ", title, gap, (one.aside, "$text-muted")
    )
