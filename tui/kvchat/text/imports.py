"""What an import took, left out and skipped, in words.

A kind and its arguments become words here and nowhere else; the kinds are
`kvchat.transfer.importing.thread.ImportRefusal` and `Loss`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kvchat.sanitize import one_line
from kvchat.text.format import count, counted
from kvchat.values import Statement

MOST_TAGS = 12
"""Tags that are named at most."""
BAR = 20
"""Cells of the bar that shows how far it has come."""

_WHY: dict[str, str] = {
    # a file: "conversations.json: {...}"
    "missing": "There is no such file.",
    "unreadable": "It cannot be read: {why}.",
    "foreign": "It holds no conversations in a format that kvchat knows. kvchat imports from ChatGPT, Claude, Open "
    "WebUI, llama.cpp, LM Studio, oterm, llm, aichat and kvchat itself (JSON), and messages as OpenAI has them.",
    "no_files": "This folder holds no files.",
    "encrypted": "It is encrypted. Unpack it with its password, then import what was in it.",
    "broken_zip": "The archive is damaged. Download or export it again.",
    "bomb": "It was left out: it unpacks to {times:,} times its size, as no export does.",
    "broken_database": "The database is damaged, or its program is of a version that kvchat does not know.",
    "own_database": "This is kvchat's own database. Export from it, then import that: kvchat --data-dir FOLDER export "
    "--all -f json -o FILE",
    "cut_off": "The file is not complete: it ends in the middle of a conversation, which was left out. Download or "
    "export it again.",
    "newer": "It was written by a newer kvchat (version {version} of the format, this one reads {known}). Update "
    "kvchat.",
    "too_slow": "It was left: nothing came of it for {seconds:g} s. What came before is imported.",
    "much_memory": "It was left: it needs too much memory to read. What came before is imported.",
    "no_yaml": "Sessions of aichat need one more package: pip install 'kvchat[yaml]'",
    # conversations: "3 conversations skipped: {...}"
    "not_json": "damaged, no JSON",
    "too_large": "longer than {limit:,} characters in the file",
    "many_messages": "more than {limit:,} messages",
    "much_text": "more than {limit:,} characters, counting what several branches share in each",
    "faulty": "they are not as their program writes them",
    "too_deep": "nested more than {limit:,} levels deep",
    "not_one": "not a conversation",
    "empty": "nothing was asked in them",
    "invalid": "changed or damaged after the export",
    "differs": "a message of the same id is stored with another text",
    "in_trash": "you have deleted them; restore them from the trash",
}

_LOSSES: dict[str, tuple[str, str]] = {
    "images": ("image", "left out; a line takes its place"),
    "files": ("attached file", "left out; a line takes its place"),
    "tool_calls": ("tool call", "left out; a line takes its place"),
    "tool_results": ("tool result", "left out"),
    "other": ("part of another kind", "left out"),
    "broken": ("message", "could not be read"),
    "loose": ("message", "without the one before it: it begins a branch of its own"),
    "no_question": ("reply", "without a question: a line takes its place"),
    "late_system": ("system message", "in the middle of a conversation left out"),
    "folders": ("conversation", "of a folder there, whose name is not in the file: a tag can stand for it"),
    "edited": ("message", "changed at the source: kept as first imported"),
}
_PLURALS = {"part of another kind": "parts of another kind", "reply": "replies"}


def why(reason: Statement) -> str:
    """Why a file or conversations were not taken."""
    return _WHY[reason.kind].format(**dict(reason.arguments))


def loss(kind: str, number: int) -> str:
    """`12 images left out; a line takes its place`."""
    noun, what = _LOSSES[kind]
    return f"{counted(number, noun, _PLURALS.get(noun, ''))} {what}"


def skipped(file: str, reason: Statement, whole: bool, number: int) -> str:
    """Of a file, or of conversations in it: `export.zip: 3 conversations skipped: damaged, no JSON`."""
    if whole or reason.kind == "cut_off":
        return f"{one_line(file)}: {why(reason)}"
    return f"{one_line(file)}: {counted(number, 'conversation')} skipped: {why(reason)}"


def headline(*, made: int, grown: int, restored: int, unchanged: int, messages: int, dry_run: bool) -> str:
    """The whole import in a sentence: `Imported 120 conversations (2,410 messages) · 3 have grown · 12 unchanged`."""
    parts = []
    if made or not (grown or restored or unchanged):
        parts.append(f"{'Would import' if dry_run else 'Imported'} {counted(made, 'conversation')}")
    if grown:
        parts.append(f"{counted(grown, 'conversation')} {'would grow' if dry_run else 'grew'}")
    if restored:
        parts.append(f"{count(restored)} {'would come' if dry_run else 'came'} back from the trash")
    if parts and messages:
        parts[-1] += f" ({counted(messages, 'message')})" if len(parts) == 1 else f", {counted(messages, 'message')}"
    if unchanged:
        parts.append(
            f"{count(unchanged)} unchanged"
            if parts
            else f"Nothing new: {counted(unchanged, 'conversation')} as imported before"
        )
    return f"{' · '.join(parts)}."


def sources(programs: Mapping[str, int]) -> str:
    """`From ChatGPT (118) and llm (2)`; empty where there is none or one."""
    names = [f"{name} ({count(number)})" for name, number in programs.items()]
    return (
        f"From {', '.join(names[:-1])} and {names[-1]}."
        if len(names) > 1
        else (f"From {next(iter(programs))}." if names else "")
    )


def tags(numbers: Counter[str]) -> str:
    """`Tags: archive (12), favourite (3), home (2).`"""
    named = ", ".join(f"{one_line(name)} ({count(number)})" for name, number in numbers.most_common(MOST_TAGS))
    more = len(numbers) - MOST_TAGS
    return f"Tags: {named}{f', and {count(more)} more' if more > 0 else ''}."


def other_files(number: int) -> str:
    return f"{counted(number, 'other file')} passed over."


def undone(trashed: int, kept: int, back: int) -> str:
    """What taking an import back did."""
    parts = [f"{counted(trashed, 'conversation')} moved to the trash"] if trashed or not back else []
    if back:
        parts.append(f"{count(back)} back at where they stood")
    if kept:
        parts.append(f"{count(kept)} kept: changed or deleted since")
    return f"Import undone: {', '.join(parts)}."


def progress(done: int, total: int, conversations: int, file: str) -> str:
    """`████████············ 41 % · 410 conversations · conversations.json`."""
    share = min(1.0, done / total) if total else 0.0
    filled = round(share * BAR)
    return (
        f"{'█' * filled}{'·' * (BAR - filled)} {share:.0%} · {counted(conversations, 'conversation')}"
        f"{f' · {one_line(file)}' if file else ''}"
    )
