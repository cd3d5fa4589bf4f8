"""One message of the conversation as rows: title, folds, body, how it ended.

An item is plain data from the app; nothing here knows the service or the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from rich.cells import cell_len

from kvchat.commands.keymap import KeyOf, default_key
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.citations import number_of
from kvchat.prompt.context import FILE, IMAGE, MEMORY, NOTE, STDIN, SUMMARY, TIME, ContextBlock
from kvchat.prompt.images import Thumbnail, sha256_of
from kvchat.prompt.message import CUT, Role, State
from kvchat.sanitize import clean, one_line
from kvchat.text.cache import answer_words
from kvchat.text.messages import GO_ON
from kvchat.ui.runs import Run, width_of
from kvchat.ui.widgets.transcript.render.progress import CACHED, EVALUATED, WASTED, cells
from kvchat.ui.widgets.transcript.render.rows import BLANK, GAP, Row
from kvchat.ui.widgets.transcript.render.sources import Source, given_rows, origin_of, source_rows
from kvchat.ui.widgets.transcript.render.wrap import plain_rows, wrapped

_FOLDED, _UNFOLDED = "▸ ", "▾ "
_BAR = Run("│ ", "border", "")
CARET = Run("▍", "accent", "")
"""At the end of what is being written."""
MOST_SHOWN = 800
"""Characters of a call that are looked at for its line."""


class TranscriptItem(Struct, frozen=True):
    """What the transcript shows of a node."""

    node_id: str
    role: Role
    title: str
    """The model's name, or `You`."""
    time: str = ""
    """When it was said, as shown: `09:16`."""
    text: str = ""
    reasoning: str = ""
    blocks: Sequence[ContextBlock] = ()
    state: State = State.DONE
    note: str = ""
    """One sentence about how it ended."""
    siblings: tuple[int, int] = (1, 1)
    """Its place among the versions of this message, from 1, and how many there are."""
    figures: TurnFigures | None = None
    """What an answer cost."""
    streaming: bool = False
    sources: tuple[Source, ...] = ()
    """What a settled answer cites."""
    call: str = ""
    """The call of a tool that is being written, or calls that could not be carried out."""
    goes_on: bool = True
    """Whether the server continues it where it is cut, as far as that is known; else it is asked to by a message."""

    @property
    def is_cut(self) -> bool:
        """Whether it is the beginning of an answer that can be continued."""
        return self.role is Role.ASSISTANT and self.state in CUT and bool(self.text or self.reasoning or self.call)

    @property
    def is_stopped_call(self) -> bool:
        """Whether it is a call that was stopped: the answer that ends its turn says so."""
        return self.role is Role.TOOL and self.state is State.CANCELLED

    @property
    def names_keys(self) -> bool:
        """Whether it says with which keys one goes on from how it ended."""
        return self.state is State.ERROR or self.state in _ENDINGS or bool(self.note)


class Folds(Struct, frozen=True):
    """Which parts of a message are unfolded."""

    context: bool = False
    reasoning: bool = False
    call: bool = False


def as_text(items: Sequence[TranscriptItem]) -> str:
    """Messages for another program, as Markdown: of several each under the name of who wrote it."""
    texts = [clean("\n\n".join(filter(None, (item.text, item.call))) or _result(item) or item.note) for item in items]
    if len(items) == 1:
        return texts[0]
    return "\n\n".join(f"## {one_line(item.title)}\n\n{text.strip()}" for item, text in zip(items, texts, strict=True))


def _result(item: TranscriptItem) -> str:
    """What a call of a tool gave."""
    given = [block.text for block in item.blocks if block.kind != NOTE] if item.role is Role.TOOL else ()
    return "\n\n".join(given)


VERSIONS = "versions"
"""The style of the mark of a message with other versions."""
BAR = 6
"""Cells of the bar in an answer's title."""
WORDY = 50
"""From this many cells on, a word precedes the number of the version."""
TITLE_ROOM = 14
"""Cells of the title that figures leave alone."""


def title_row(item: TranscriptItem, width: int, *, selected: bool = False, key: KeyOf = default_key) -> Row:
    """The title at the left with `version 2/3` when there are other versions; figures or time at the right."""
    index, total = item.siblings
    versions = f"  {'version ' if width >= WORDY else ''}{index}/{total}" if total > 1 else ""
    hint = f"  {key('transcript.sibling_previous')} {key('transcript.sibling_next')}" if versions and selected else ""
    room = width - cell_len(versions + hint)
    wanted = min(cell_len(one_line(item.title)), width // 2) + 2
    right = figure_spans(item.figures, room - max(TITLE_ROOM, wanted)) if item.figures else []
    if not right and room - cell_len(item.time) >= TITLE_ROOM:
        right = [Run(one_line(item.time), "muted", "")]
    taken = width_of(right)
    title = one_line(item.title, max(4, room - taken - 2)) or "unnamed"
    gap = max(1, width - cell_len(title + versions + hint) - taken)
    style = "title-user" if item.role is Role.USER else "title-model"
    return Row((Run(title, style), Run(versions, VERSIONS, ""), Run(hint, "key", ""), Run(" " * gap, "", ""), *right))


def figure_spans(figures: TurnFigures, room: int) -> list[Run]:
    """`█████▒ 98 % cached · TTFT 0.14 s · 58 tok/s`, as much of it as fits in `room` cells: what part of the prompt was
    cached, new and wasted, then the figures. The first of them and the speed stay longest; then a cause gives way."""
    words, bar = answer_words(figures), list[Run]()
    rate = next((text for text in words if text.endswith(" tok/s")), "")
    if words and cell_len(f"{words[0]} · {rate}") > room:
        words[0] = words[0].partition(":")[0]
    first = [text for text in (*words[:1], rate) if text]
    kept = next((some for some in (first, first[:1]) if cell_len(" · ".join(some)) <= room), [])
    prompt, cached, evaluated = figures.prompt_tokens, figures.cached_tokens, figures.evaluated_tokens
    known = prompt and cached is not None and evaluated is not None
    if known and kept and cell_len(" · ".join(kept)) + BAR < room:
        lost = figures.notable_waste
        parts = (cached or 0, CACHED), (lost, WASTED), ((evaluated or 0) - lost, EVALUATED)
        bar = [*cells([(tokens / (prompt or 1), *look) for tokens, look in parts], BAR), Run(" ")]
        room -= BAR + 1
    for text in words if kept else ():
        if text not in kept and cell_len(" · ".join((*kept, text))) <= room:
            kept.append(text)
    runs: list[Run] = []
    for text in (text for text in words if text in kept):
        style = "wasted" if figures.notable_waste and text is words[0] else "muted"
        runs += [Run(" · " if runs else "", "muted"), Run(text, style)]
    return [run.uncopied() for run in (*bar, *runs)]


def head_rows(
    item: TranscriptItem, width: int, folds: Folds, *, selected: bool = False, key: KeyOf = default_key
) -> list[Row]:
    """The rows above the body: the title, and an answer's reasoning. `key`: as for `foot_rows`."""
    if item.role is Role.TOOL:
        return call_rows(item, width, unfolded=folds.context)
    rows = [title_row(item, width, selected=selected, key=key)]
    if item.reasoning:
        rows += reasoning_rows(item, width, unfolded=folds.reasoning)
    return rows


def call_rows(item: TranscriptItem, width: int, *, unfolded: bool) -> list[Row]:
    """A call of a tool in one line, with what it gave folded behind it."""
    lines = sum(len(block.text.splitlines()) for block in item.blocks if block.kind != NOTE)
    size = f" · {lines:,} {'line' if lines == 1 else 'lines'}" if item.blocks else ""
    label = one_line(item.title, max(8, width - 2 - cell_len(size))) + size
    if not item.blocks:
        return [Row((Run(_FOLDED, "fold-mark", ""), Run(label, "fold", "")), "")]
    rows = [_fold_row(label, "fold:context", unfolded)]
    for block in item.blocks if unfolded else ():
        if block.kind != NOTE:
            rows.append(Row((_BAR, Run(one_line(block.source, max(8, width - 2)), "fold", ""))))
            rows += plain_rows(clean(block.text).strip("\n"), width, "reasoning", first=(_BAR,), rest=(_BAR,))
    return rows


def written_rows(item: TranscriptItem, width: int, *, unfolded: bool) -> list[Row]:
    """A call of an answer in one line, with its length where it has no room; one that could not be carried out is
    unfolded below it."""
    label, room = one_line(item.call[:MOST_SHOWN]), max(8, width - 3)
    if cell_len(label) > room or len(item.call) > MOST_SHOWN:
        size = f" · {len(item.call):,} characters"
        label = one_line(label, max(8, room - cell_len(size))) + size
    if item.streaming:
        return [Row((Run(_FOLDED, "fold-mark", ""), Run(label, "fold", ""), CARET), "")]
    rows = [_fold_row(label, "fold:call", unfolded)]
    if unfolded:
        rows += plain_rows(clean(item.call), width, "reasoning", first=(_BAR,), rest=(_BAR,))
    return rows


def reasoning_rows(item: TranscriptItem, width: int, *, unfolded: bool) -> list[Row]:
    """The reasoning, folded to one line with its length or unfolded below it."""
    words = len(item.reasoning.split())
    thinking = item.streaming and not item.text and not item.call
    label = f"{'thinking' if thinking else 'thought in'} {words:,} {'word' if words == 1 else 'words'}"
    if thinking:
        label = f"thinking, {words:,} {'word' if words == 1 else 'words'}"
    rows = [_fold_row(label, "fold:reasoning", unfolded)]
    if unfolded:
        rows += plain_rows(clean(item.reasoning).strip("\n"), width, "reasoning", first=(_BAR,), rest=(_BAR,))
        rows.append(GAP)
    return rows


def _fold_row(label: str, action: str, unfolded: bool) -> Row:
    mark = _UNFOLDED if unfolded else _FOLDED
    return Row((Run(mark, "fold-mark", ""), Run(label, "fold", "")), "", action=action)


def _plural(number: int, word: str, words: str) -> str:
    return word if number == 1 else f"{number:,} {words}"


_KINDS = {
    "passage": ("1 passage", "passages"),
    "paste": ("1 pasted text", "pasted texts"),
}


def context_summary(blocks: Sequence[ContextBlock]) -> str:
    """The context in a few words: `sent with: time, 3 passages from notes/lamp.md · attached: setup.md`."""
    groups: dict[str, list[ContextBlock]] = {}
    for block in blocks:
        if block.kind != NOTE:
            groups.setdefault(block.kind, []).append(block)
    words, attached, images = [], "", ""
    for kind, members in groups.items():
        if kind == TIME:
            words.append("time")
            continue
        if kind == STDIN:
            words.append("standard input")
            continue
        if kind == SUMMARY:
            words += [one_line(block.source, 40) for block in members]
            continue
        if kind == MEMORY:
            words.append(_plural(sum(map(_lines, members)), "1 memory", "memories"))
            continue
        singular, plural = _KINDS.get(kind, (f"1 {kind}", f"{kind}s"))
        origin = one_line(origin_of(members), 60)
        if kind == FILE:
            attached = f"attached: {origin if len(members) == 1 else f'{len(members):,} files'}"
            continue
        if kind == IMAGE:
            named = ", ".join(one_line(f"{block.source} {block.text}", 60) for block in members)
            images = f"image{'s' * (len(members) > 1)}: {named}"
            continue
        words.append(_plural(len(members), singular, plural) + (f" from {origin}" if origin else ""))
    return " · ".join(filter(None, (f"sent with: {', '.join(words)}" if words else "", attached, images)))


def _lines(block: ContextBlock) -> int:
    """The memories of a block: one a line."""
    return sum(1 for line in block.text.splitlines() if line.strip())


def context_rows(blocks: Sequence[ContextBlock], width: int, *, unfolded: bool) -> list[Row]:
    """The context of a question, folded to one line or unfolded below it; of numbered ones the titles."""
    label = one_line(context_summary(blocks), max(8, width - 2))
    rows = [_fold_row(label, "fold:context", unfolded)]
    if not unfolded:
        return rows
    goes_on = False
    for number, block in enumerate(blocks):
        listed = number_of(block) is not None
        if number and not (goes_on and listed):
            rows.append(Row((_BAR,), ""))
        goes_on = listed or block.kind == NOTE
        if listed:
            rows += given_rows(block, width, (_BAR,))
            continue
        if block.kind == NOTE:
            rows += plain_rows(clean(block.text).strip("\n"), width, "reasoning", first=(_BAR,), rest=(_BAR,))
            continue
        named = block.source if block.kind in (SUMMARY, MEMORY) else f"{block.kind}: {block.source}"
        if block.kind == STDIN:
            named = "standard input"
        name = "time" if block.kind == TIME else one_line(named, max(8, width - 2))
        rows.append(Row((_BAR, Run(name, "fold", ""))))
        rows += plain_rows(clean(block.text).strip("\n"), width, "reasoning", first=(_BAR,), rest=(_BAR,))
    return rows


Does = tuple[str, str]
"""An action, and its word."""
CONTINUE, RETRY = ("transcript.continue", "continue"), ("transcript.regenerate", "retry")
ASK_ON = ("transcript.continue", f"send “{GO_ON}”")
_ENDINGS: dict[State, tuple[str, str, str, tuple[Does, ...]]] = {
    State.STREAMING: ("○", "Another window is answering", "muted", ()),
    State.CANCELLED: ("■", "Stopped", "muted", ()),
    State.INTERRUPTED: ("▲", "Interrupted", "warning", (RETRY,)),
    State.LENGTH: ("▲", "Cut at max tokens", "warning", (RETRY,)),
    State.CONTEXT_FULL: ("▲", "The context window is full", "warning", ()),
    State.EMPTY: ("▲", "The answer is empty", "warning", (RETRY,)),
}
_NOTED: tuple[str, str, str, tuple[Does, ...]] = ("▲", "", "warning", ())
"""A whole answer with something to say about it."""

NO_PICTURES: Mapping[str, Thumbnail] = {}


def foot_rows(
    item: TranscriptItem,
    width: int,
    folds: Folds,
    live: Sequence[Run] | None = None,
    *,
    selected: bool = False,
    has_keys: bool = True,
    pictures: Mapping[str, Thumbnail] = NO_PICTURES,
    key: KeyOf = default_key,
) -> list[Row]:
    """The rows below the body: images, sources or context, a call, the live row, how the message ended, and an empty
    row. `has_keys`: whether the messages have the focus, so that their keys work; else Tab leads there. `pictures`: the
    images that can be shown, by their names. `key`: the keys in force."""
    open_key = key("transcript.source")
    rows: list[Row] = []
    if item.sources:
        rows = source_rows(item.sources, width, selected=selected and has_keys, key=open_key)
    for block in item.blocks:
        if block.kind == IMAGE and (picture := pictures.get(sha256_of(block))) is not None:
            from kvchat.ui.widgets.transcript.render.picture import picture_rows

            rows += picture_rows(picture, width)
    if item.blocks and item.role is not Role.TOOL:
        rows += context_rows(item.blocks, width, unfolded=folds.context)
    if item.call:
        rows += written_rows(item, width, unfolded=folds.call)
    if live:
        rows += wrapped([run.uncopied() for run in live], width, end="")
    if item.state is State.ERROR:
        does = (*_going_on(item), RETRY, ("transcript.copy", "copy"))
        rows += error_box(clean(item.note) or "The server answered with an error.", width, does, has_keys, key)
    elif not item.streaming and (item.state in _ENDINGS or item.note) and not item.is_stopped_call:
        rows += wrapped(_ending(item, has_keys, key), width, end="")
    return [*rows, BLANK]


def _ending(item: TranscriptItem, has_keys: bool, key: KeyOf) -> list[Run]:
    """How it ended, and the keys of what can be done: `▲ Cut at max tokens (160) · Tab, then c continue · r retry`."""
    glyph, words, style, does = _ENDINGS.get(item.state, _NOTED)
    if item.state is State.LENGTH and item.figures is not None and item.figures.predicted_tokens:
        words += f" ({item.figures.predicted_tokens:,})"
    note = one_line(item.note)
    words_shown = note or words if item.state is State.CANCELLED else ": ".join(filter(None, (words, note)))
    runs = [Run(f"{glyph} {words_shown}", style, "")]
    for number, one in enumerate((*_going_on(item), *does)):
        runs += [Run(" · ", "muted", ""), *(() if number or has_keys else _way_there(key)), *_key_spans(one, key)]
    return runs


def _going_on(item: TranscriptItem) -> tuple[Does, ...]:
    """How one goes on with what is cut."""
    return (CONTINUE if item.goes_on else ASK_ON,) if item.is_cut else ()


def _way_there(key: KeyOf) -> tuple[Run, ...]:
    """In front of keys that work in the messages, while the focus is elsewhere."""
    return Run(key("composer.messages"), "key", ""), Run(", then ", "muted", "")


def _key_spans(does: Does, key: KeyOf) -> list[Run]:
    return [Run(key(does[0]), "key", ""), Run(f" {does[1]}", "muted", "")]


def error_box(note: str, width: int, does: Sequence[Does], has_keys: bool, key: KeyOf) -> list[Row]:
    """A failure in a frame, with the keys of what can be done."""
    inner = max(8, min(width, 96) - 4)
    lines = [row.runs for row in plain_rows(note.strip(), inner, "error-text")]
    hints = [run for one in does for run in (*_key_spans(one, key), Run("   ", "", ""))][:-1]
    way = _way_there(key)
    there = way if not has_keys and width_of([*way, *hints]) <= inner else ()
    lines.append((*there, *hints))
    heading = "─ error "
    rows = [Row((Run(f"╭{heading}{'─' * (inner + 2 - len(heading))}╮", "error", ""),), "", action="")]
    for runs in lines:
        used = sum(cell_len(run.text) for run in runs)
        rows.append(
            Row((Run("│ ", "error", ""), *runs, Run(" " * (inner - used) + " ", "", ""), Run("│", "error", "")))
        )
    rows.append(Row((Run(f"╰{'─' * (inner + 2)}╯", "error", ""),)))
    return rows
