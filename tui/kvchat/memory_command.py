"""`kvchat memory`: what is remembered, to look at, find, write, take back and repair, as text or as JSON.

The rule: it works on the store and the files alone, without a server and beside a kvchat that runs. Where several
entries are named, all of them are looked up before the first is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kvchat.config import Settings
from kvchat.display import clean, one_line
from kvchat.index.index import Index
from kvchat.memory.entry import PROFILE, Change, Entry, Kind, MemoryTrouble, Status
from kvchat.memory.memories import Memories, index_path, memory_folder, open_memories
from kvchat.memory.sync import SCOPE
from kvchat.memory_words import (
    CHANGES,
    ENTRIES,
    JOBS,
    PENDING,
    UsageError,
    change_cells,
    entry_cells,
    instant,
    job_cells,
    none_of,
    topic,
)
from kvchat.numbers import counted
from kvchat.paths import Paths, reason
from kvchat.prompt.wire import whole_characters
from kvchat.store import Store, StoreError
from kvchat.store.errors import UnknownConversation
from kvchat.store.jobs import JobState
from kvchat.terminal import Column, Printer, print_table

EVERY = 1_000_000
"""More changes than a history has."""
SHORT, SHORTEST = 8, 4
"""Digits of a conversation's id: shown, and needed."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with."""

    store: Store
    memories: Memories
    settings: Settings
    args: argparse.Namespace
    index: Path
    """The file of the search index."""
    printer: Printer = field(default_factory=lambda: Printer(sys.stdout))

    def told(self, found: object, words: Callable[[], None]) -> None:
        """Print `found` as JSON where that is asked for, else say it in words."""
        with _printing():
            if self.args.json:
                print(json.dumps(found, indent=1, default=_fields))
            else:
                words()


@contextmanager
def _printing() -> Iterator[None]:
    """Raises MemoryTrouble where standard output cannot be written, as on a full disk."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left is written once more at the exit: nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise MemoryTrouble(f"The output cannot be written: {reason(error)}.") from None


def _fields(value: Any) -> dict[str, Any]:
    """An entry, a change or a job as an object of JSON."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def memory(places: Paths, settings: Settings, args: argparse.Namespace) -> int:
    """Carry out a memory command and return the exit status. Raises MemoryTrouble, StoreError and UsageError."""
    if args.what == "path":
        return _path(places, settings, args)
    with closing(Store.open(None if args.incognito else places.data)) as store:
        memories = open_memories(places, settings, store, uuid.uuid4().hex[:12])
        if memories is None:
            raise UsageError("An incognito run has no memory; leave out --incognito.")
        try:
            memories.sync()
            return _COMMANDS[args.what](Desk(store, memories, settings, args, index_path(places)))
        finally:
            memories.close()
            for sentence in (*store.notices, *memories.problems):
                print(f"kvchat: {one_line(sentence)}", file=sys.stderr)


def _path(places: Paths, settings: Settings, args: argparse.Namespace) -> int:
    folder, index = memory_folder(places, settings), index_path(places)
    with _printing():
        print(json.dumps({"folder": str(folder), "exists": folder.is_dir(), "index": str(index)}, indent=1)
              if args.json else clean(whole_characters(str(folder))))
    return 0


# -- looking ----------------------------------------------------------------------------------------------------------


def _list(desk: Desk) -> int:
    args = desk.args
    statuses = tuple(Status) if args.status == "all" else (Status(args.status),)
    kind = Kind(args.kind) if args.kind else None
    found = [entry for status in statuses for entry in desk.memories.entries(status, kind)]
    if args.page:
        found = [entry for entry in found if topic(entry.page) == topic(args.page)]
    found.sort(key=lambda entry: -entry.created)
    desk.told(found, lambda: _print_list(desk, found))
    return 0


def _print_list(desk: Desk, entries: Sequence[Entry]) -> None:
    if not entries:
        desk.printer.line(none_of(desk.args.status, desk.args.kind, desk.args.page))
    elif desk.args.status == "all":
        columns = (*ENTRIES[:2], Column("status"), *ENTRIES[2:])
        print_table([(*cells[:2], entry.status, *cells[2:]) for entry in entries for cells in (entry_cells(entry),)],
                    columns)
    else:
        print_table([entry_cells(entry) for entry in entries], ENTRIES)


def _search(desk: Desk) -> int:
    found = desk.memories.search(whole_characters(" ".join(desk.args.words)))
    desk.told([{**_fields(entry), "score": hit.score, "matched": hit.matched, "why": hit.why} for entry, hit in found],
              lambda: print_table([entry_cells(entry) for entry, _ in found], ENTRIES if found else ()))
    if not found:
        print("Nothing found.", file=sys.stderr)
    return 0 if found else 1


def _log(desk: Desk) -> int:
    conversation = _conversation(desk, desk.args.conversation) if desk.args.conversation is not None else ""
    changes = desk.memories.log(desk.args.number, conversation=conversation)
    desk.told(changes, lambda: _print_changes(desk, changes))
    return 0


def _print_changes(desk: Desk, changes: Sequence[Change]) -> None:
    if not changes:
        desk.printer.line("Nothing has changed yet.")
        return
    print_table([change_cells(change) for change in changes], CHANGES)


def _queue(desk: Desk) -> int:
    most = desk.args.number
    pending, jobs = desk.memories.ledger.behind(most + 1), desk.store.jobs.all()
    more = max(len(pending), len(jobs)) > most
    pending, jobs = pending[:most], jobs[:most]
    titles = desk.store.titles({id for id, _ in pending} | {job.subject for job in jobs})
    found = {
        "pending": [{"conversation": id, "title": titles.get(id), "messages": number} for id, number in pending],
        "jobs": [{**_fields(job), "title": titles.get(job.subject)} for job in jobs],
        "more": more,
    }

    def words() -> None:
        if pending:
            print_table([(id[:SHORT], str(number), titles.get(id, "")) for id, number in pending], PENDING)
        if pending and jobs:
            desk.printer.line()
        if jobs:
            print_table([job_cells(job, titles, time.time()) for job in jobs], JOBS)
        if not pending and not jobs:
            desk.printer.line("Nothing waits.")
        if more:
            desk.printer.line(f"More waits: kvchat memory queue -n {10 * most} shows it.")
        if any(job.state is JobState.PARKED for job in jobs):
            desk.printer.line("What is parked waits for you: the memory screen of the app tries it again.")

    desk.told(found, words)
    return 0


# -- writing ----------------------------------------------------------------------------------------------------------


def _add(desk: Desk) -> int:
    args = desk.args
    page = PROFILE if args.to_profile else args.page or ""
    entry = desk.memories.add(_text(args.text), Kind(args.kind or Kind.FACT), page)
    desk.told(entry, lambda: print_table([entry_cells(entry)]))
    return 0


def _edit(desk: Desk) -> int:
    entry = desk.memories.get(whole_characters(desk.args.id))
    text = _text(desk.args.text) if desk.args.text else _from_editor(entry.text, desk.settings.editor)
    if text != entry.text:
        try:
            entry = desk.memories.edit(entry.id, text)
        except (MemoryTrouble, StoreError) as error:
            raise MemoryTrouble(f"{error} Your words were: {text}") from None
    desk.told(entry, lambda: print_table([entry_cells(entry)]))
    return 0


def _delete(desk: Desk) -> int:
    entries = _named(desk)
    changes = [desk.memories.delete(entry.id) for entry in entries]
    desk.told([change.after for change in changes], lambda: _print_changes(desk, changes))
    return 0


def _accept(desk: Desk) -> int:
    if bool(desk.args.ids) == desk.args.all:
        raise UsageError("Give the ids of proposals, or --all.")
    entries = desk.memories.entries(Status.PROPOSED) if desk.args.all else _named(desk)
    for entry in entries:
        if entry.status is not Status.PROPOSED:
            raise MemoryTrouble(f"{entry.id} is no proposal: it is {entry.status}.")
    accepted = [desk.memories.accept(entry.id) for entry in entries]
    desk.told(accepted, lambda: print_table([entry_cells(entry) for entry in accepted]))
    return 0


def _named(desk: Desk) -> list[Entry]:
    """The entries of the ids, each once. Raises MemoryTrouble before anything is changed."""
    found = [desk.memories.get(whole_characters(id)) for id in desk.args.ids]
    return list({entry.id: entry for entry in found}.values())


def _text(words: Sequence[str]) -> str:
    """The text of the command line; `-` reads it from standard input."""
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if list(words) == ["-"] else " ".join(words)
    text = whole_characters(text).strip()
    if not text:
        raise UsageError("The text is empty. Give the words to remember, or pipe them in with -.")
    return text


def _from_editor(text: str, command: str) -> str:
    """`text` as the person left it in their editor. Raises MemoryTrouble."""
    import asyncio

    from kvchat.ui.editor import EditorError, edited

    try:
        changed = asyncio.run(edited(text, command)).strip()
    except EditorError as error:
        raise MemoryTrouble(str(error)) from None
    if not changed:
        raise MemoryTrouble("The text was empty, so the memory is as it was; to delete it: kvchat memory delete ID")
    return changed


# -- taking back and repairing ----------------------------------------------------------------------------------------


def _restore(desk: Desk) -> int:
    args, memories = desk.args, desk.memories
    if args.seq is not None:
        change = memories.undo(args.seq)
        desk.told({"undone": 1, "left": []}, lambda: print_table([change_cells(change)], CHANGES))
        return 0
    if args.session:
        count = memories.undo_all()
    elif args.since is not None:
        count = memories.undo_all(since=instant(args.since))
    else:
        count = memories.undo_all(conversation=_conversation(desk, args.conversation))
    desk.told({"undone": count, "left": list(memories.left)}, lambda: _print_restored(desk, count))
    return 0 if count else 1


def _conversation(desk: Desk, given: str) -> str:
    """The id of the conversation with this beginning of an id, also of one that is gone for good and left memories.
    Raises UnknownConversation."""
    try:
        return desk.store.conversation(given).id
    except UnknownConversation:
        known = {change.after.conversation for change in desk.memories.log(EVERY)}
        found = [id for id in known if len(given) >= SHORTEST and id.startswith(given.lower())]
        if len(found) != 1:
            raise
        return found[0]


def _print_restored(desk: Desk, count: int) -> None:
    if not count:
        print("There is nothing to undo that kvchat did by itself.", file=sys.stderr)
    else:
        desk.printer.line(f"{counted(count, 'change')} undone.")
    for sentence in desk.memories.left:
        desk.printer.line(sentence)


def _rebuild(desk: Desk) -> int:
    with closing(Index.open(desk.index)) as index:
        before = index.digest(SCOPE)
        entries = desk.memories.rebuild()
        equal = index.digest(SCOPE) == before
    desk.told({"entries": entries, "equal": equal}, lambda: desk.printer.line(
        f"The index was made anew from the files: {counted(entries, 'memory', 'memories')}, "
        f"{'equal to before' if equal else 'and not what it was before'}."))
    return 0


_COMMANDS: dict[str, Callable[[Desk], int]] = {
    "list": _list, "search": _search, "log": _log, "queue": _queue, "add": _add, "edit": _edit, "delete": _delete,
    "accept": _accept, "restore": _restore, "rebuild": _rebuild,
}
