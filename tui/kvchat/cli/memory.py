"""`kvchat memory`: what is remembered, to look at and to change, as text or as JSON.

The rule: it works on the store and the files alone, without a server and beside a kvchat that runs. A row holds raw
texts; the table that prints it makes them safe to show.
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from kvchat.cli import common_options
from kvchat.cli.plain_output import Column, Printer, print_table
from kvchat.cli.session import CommandError, Session, UsageError, instant, number, print_notices
from kvchat.index.index import Index
from kvchat.memory.entry import PROFILE, Change, Entry, Kind, MemoryTrouble, Status
from kvchat.memory.memories import Memories, open_memories
from kvchat.memory.place import index_path, memory_folder
from kvchat.memory.sync import SCOPE
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import clean
from kvchat.store import Store, StoreError
from kvchat.store.errors import UnknownConversation
from kvchat.store.jobs import Job, JobState
from kvchat.store.stats import side_work
from kvchat.text.cache import side_work_words
from kvchat.text.format import age, counted, day_time
from kvchat.text.memory import job_reason

ENTRIES = (Column("id"), Column("noted"), Column("page", shrinks=True), Column("memory", shrinks=True))
CHANGES = (Column("no.", right=True), Column("when"), Column("what"), Column("id"), Column("memory", shrinks=True))
PENDING = (Column("pending"), Column("messages", right=True), Column("title", shrinks=True))
JOBS = (
    Column("work"),
    Column("about", shrinks=True),
    Column("state"),
    Column("tries", right=True),
    Column("due"),
    Column("why", shrinks=True),
)
_NONE: Mapping[str, str] = {Status.LIVE: "Nothing is remembered yet.", Status.PENDING: "Nothing is pending approval."}


def none_of(status: str, *narrowed: str | None) -> str:
    """What is said where no entry of a status is found; `narrowed` are the other conditions."""
    return "There is nothing of that." if any(narrowed) else _NONE.get(status, "There is nothing of that.")


def entry_cells(entry: Entry) -> tuple[str, ...]:
    return entry.id, day_time(entry.created), topic(entry.page), entry.text


def change_cells(change: Change) -> tuple[str, ...]:
    act = f"{change.act}, undone" if change.undone else change.act
    return str(change.seq), day_time(change.at), act, change.after.id, _of_change(change)


def _of_change(change: Change) -> str:
    """The memory of a change, with what it was before, and why."""
    before, after = change.before, change.after
    words = after.text
    if before is not None and before.text != after.text:
        words += f" (was: {before.text})"
    if before is not None and before.page != after.page:
        words += f" (from {before.page})"
    return f"{words} · {change.why}" if change.why else words


def job_cells(job: Job, titles: Mapping[str, str], now: float) -> tuple[str, ...]:
    """`now` is in seconds since the epoch."""
    wait = job.due - now
    due = "" if job.state is not JobState.WAITING else "now" if wait <= 0 else f"in {age(wait)}"
    return job.kind, titles.get(job.subject, job.subject), job.state, str(job.attempts), due, job_reason(job.why)


def topic(page: str) -> str:
    """A page as the person names it: `projects` for `projects`, `projects.md` and `topics/projects.md`."""
    return page.strip().removesuffix(".md").removeprefix("topics/").removeprefix("skills/")


EVERY = 1_000_000
"""More changes than a history has."""
SHORT, SHORTEST = 8, 4
"""Digits of a conversation's id: shown, and needed."""


class Desk(Struct, frozen=True):
    """What a command works with."""

    session: Session
    store: Store
    memories: Memories
    index: Path
    """The file of the search index."""
    printer: Printer = field(default_factory=lambda: Printer(sys.stdout))

    @property
    def args(self) -> argparse.Namespace:
        return self.session.args

    def tell(self, found: object, words: Callable[[], None]) -> None:
        """Print `found` as JSON where that is asked for, else say it in words. Raises CommandError."""
        self.session.tell(found, words, _fields)


def _fields(value: Any) -> dict[str, Any]:
    """An entry, a change or a job as an object of JSON."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kvchat memory`."""
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        # After `add`, --profile is a page and not the server's profile.
        conflicts = "resolve" if name == "add" else "error"
        parser = commands.add_parser(
            name, parents=[common_options(of_command=True)], conflict_handler=conflicts, help=help
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
        return parser

    listing = command("list", "list the memories, newest first")
    listing.add_argument("--kind", choices=tuple(Kind))
    listing.add_argument(
        "--status", choices=(*Status, "all"), default="live", help="live (default): what is in the files"
    )
    listing.add_argument("--page", metavar="P", help="profile, or the name of a topic")
    command("search", "find memories by their words").add_argument("words", metavar="WORDS", nargs="+")
    add = command("add", "remember something")
    add.add_argument("text", metavar="TEXT|-", nargs="+", help="the words; - reads them from standard input")
    add.add_argument("--kind", choices=tuple(Kind))
    page = add.add_mutually_exclusive_group()
    page.add_argument("--page", metavar="P", help="the topic it belongs to")
    page.add_argument("--profile", dest="to_profile", action="store_true", help="put it into the profile")
    edit = command("edit", "change the words of a memory; without TEXT in your editor")
    edit.add_argument("id", metavar="ID", help="its id, or a beginning that no other has")
    edit.add_argument("text", metavar="TEXT|-", nargs="*")
    command("delete", "delete memories; they are not noted again").add_argument("ids", metavar="ID", nargs="+")
    accept = command("accept", "approve proposals")
    accept.add_argument("ids", metavar="ID", nargs="*")
    accept.add_argument("--all", action="store_true", help="all proposals")
    log = command("log", "list what was changed, newest first")
    log.add_argument("-n", dest="number", type=number, metavar="N", default=20, help="so many changes (20)")
    log.add_argument("--conversation", metavar="ID", default=argparse.SUPPRESS, help="what came from a conversation")
    restore = command("restore", "undo a change, or all that kvchat noted by itself")
    which = restore.add_mutually_exclusive_group(required=True)
    which.add_argument("seq", metavar="NO", nargs="?", type=number, help="the number of a change in the log")
    which.add_argument("--session", action="store_true", help="what the last extraction noted")
    which.add_argument("--conversation", metavar="ID", default=argparse.SUPPRESS, help="what came from a conversation")
    which.add_argument("--since", metavar="DATE", help="what was noted since: 2026-11-21, today, yesterday")
    command("rebuild", "rebuild the search index from the files")
    command("path", "print the folder of the files")
    queue = command("queue", "show what is queued for extraction")
    queue.add_argument("-n", dest="number", type=number, metavar="N", default=50, help="so many conversations (50)")


def run(session: Session) -> int:
    """Carry out a memory command and return the exit status. Raises CommandError."""
    session.print_problems()
    if session.args.what == "path":
        return _path(session)
    try:
        return _on_the_store(session)
    except (MemoryTrouble, StoreError) as error:
        raise CommandError(str(error)) from None


def _on_the_store(session: Session) -> int:
    args, places = session.args, session.places
    with closing(Store.open(None if args.incognito else places.data)) as store:
        memories = open_memories(places, session.settings, store, uuid.uuid4().hex[:12])
        if memories is None:
            raise UsageError("An incognito run has no memory; leave out --incognito.")
        try:
            memories.sync()
            return _COMMANDS[args.what](Desk(session, store, memories, index_path(places)))
        finally:
            memories.close()
            print_notices([*store.notices, *memories.problems])


def _path(session: Session) -> int:
    folder, index = memory_folder(session.places, session.settings), index_path(session.places)
    session.tell(
        {"folder": str(folder), "exists": folder.is_dir(), "index": str(index)},
        lambda: print(clean(whole_characters(str(folder)))),
    )
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
    desk.tell(found, lambda: _print_list(desk, found))
    return 0


def _print_list(desk: Desk, entries: Sequence[Entry]) -> None:
    if not entries:
        desk.printer.line(none_of(desk.args.status, desk.args.kind, desk.args.page))
    elif desk.args.status == "all":
        columns = (*ENTRIES[:2], Column("status"), *ENTRIES[2:])
        print_table(
            [(*cells[:2], entry.status, *cells[2:]) for entry in entries for cells in (entry_cells(entry),)], columns
        )
    else:
        print_table([entry_cells(entry) for entry in entries], ENTRIES)


def _search(desk: Desk) -> int:
    found = desk.memories.search(whole_characters(" ".join(desk.args.words)))
    desk.tell(
        [{**_fields(entry), "score": hit.score, "matched": hit.matched, "why": hit.why} for entry, hit in found],
        lambda: print_table([entry_cells(entry) for entry, _ in found], ENTRIES if found else ()),
    )
    if not found:
        print("Nothing found.", file=sys.stderr)
    return 0 if found else 1


def _log(desk: Desk) -> int:
    conversation = _conversation(desk, desk.args.conversation) if desk.args.conversation is not None else ""
    changes = desk.memories.log(desk.args.number, conversation=conversation)
    desk.tell(changes, lambda: _print_changes(desk, changes))
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
        if (week := side_work(desk.store, time.time())).count:
            desk.printer.line(f"{side_work_words(week)}.")
        if any(job.state is JobState.PAUSED for job in jobs):
            desk.printer.line("What is paused waits for you: the memory screen of the app tries it again.")

    desk.tell(found, words)
    return 0


# -- writing ----------------------------------------------------------------------------------------------------------


def _add(desk: Desk) -> int:
    args = desk.args
    page = PROFILE if args.to_profile else args.page or ""
    entry = desk.memories.add(_text(args.text), Kind(args.kind or Kind.FACT), page)
    desk.tell(entry, lambda: print_table([entry_cells(entry)]))
    return 0


def _edit(desk: Desk) -> int:
    entry = desk.memories.get(whole_characters(desk.args.id))
    text = _text(desk.args.text) if desk.args.text else _from_editor(entry.text, desk.session.settings.editor)
    if text != entry.text:
        try:
            entry = desk.memories.edit(entry.id, text)
        except (MemoryTrouble, StoreError) as error:
            raise MemoryTrouble(f"{error} Your words were: {text}") from None
    desk.tell(entry, lambda: print_table([entry_cells(entry)]))
    return 0


def _delete(desk: Desk) -> int:
    entries = _named(desk)
    changes = [desk.memories.delete(entry.id) for entry in entries]
    desk.tell([change.after for change in changes], lambda: _print_changes(desk, changes))
    return 0


def _accept(desk: Desk) -> int:
    if bool(desk.args.ids) == desk.args.all:
        raise UsageError("Give the ids of proposals, or --all.")
    entries = desk.memories.entries(Status.PENDING) if desk.args.all else _named(desk)
    for entry in entries:
        if entry.status is not Status.PENDING:
            raise MemoryTrouble(f"{entry.id} is no proposal: it is {entry.status}.")
    accepted = [desk.memories.accept(entry.id) for entry in entries]
    desk.tell(accepted, lambda: print_table([entry_cells(entry) for entry in accepted]))
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

    from kvchat.commands.editor import EditorError, OutsideText

    async def keep() -> bool:
        return False

    outside = None
    try:
        outside = OutsideText(text)
        asyncio.run(outside.edit(command, keep))
    except EditorError as error:
        if outside is not None and outside.saved is not None:
            raise MemoryTrouble(f"{error} It is in {outside.path}") from None
        if outside is not None:
            outside.remove()
        raise MemoryTrouble(str(error)) from None
    outside.remove()
    changed = text if outside.saved is None else outside.saved.strip()
    if not changed:
        raise MemoryTrouble("The text was empty, so the memory is as it was; to delete it: kvchat memory delete ID")
    return changed


# -- taking back and repairing ----------------------------------------------------------------------------------------


def _restore(desk: Desk) -> int:
    args, memories = desk.args, desk.memories
    if args.seq is not None:
        change = memories.undo(args.seq)
        desk.tell({"undone": 1, "left": []}, lambda: print_table([change_cells(change)], CHANGES))
        return 0
    if args.session:
        count = memories.undo_all()
    elif args.since is not None:
        count = memories.undo_all(since=instant(args.since))
    else:
        count = memories.undo_all(conversation=_conversation(desk, args.conversation))
    desk.tell({"undone": count, "left": list(memories.left)}, lambda: _print_restored(desk, count))
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
    desk.tell(
        {"entries": entries, "equal": equal},
        lambda: desk.printer.line(
            f"The index was made anew from the files: {counted(entries, 'memory', 'memories')}, "
            f"{'equal to before' if equal else 'and not what it was before'}."
        ),
    )
    return 0


_COMMANDS: dict[str, Callable[[Desk], int]] = {
    "list": _list,
    "search": _search,
    "log": _log,
    "queue": _queue,
    "add": _add,
    "edit": _edit,
    "delete": _delete,
    "accept": _accept,
    "restore": _restore,
    "rebuild": _rebuild,
}
