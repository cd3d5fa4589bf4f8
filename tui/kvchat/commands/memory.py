"""What `kvchat memory` and `/memory` do: what is remembered, to look at and to change.

It works on the store and the files alone, without a server, also while a kvchat runs. A row holds raw texts;
whoever shows it makes them safe.
"""

from __future__ import annotations

import time
from argparse import SUPPRESS, Namespace
from argparse import ArgumentParser as Parser
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from kvchat.commands.command import CommandResult, TableColumn, TextTable, UsageError, fields, instant, number
from kvchat.index.index import Index
from kvchat.memory.entry import PROFILE, Change, Entry, Kind, MemoryTrouble, Status
from kvchat.memory.memories import Memories
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

ENTRIES = (
    TableColumn("id"),
    TableColumn("noted"),
    TableColumn("page", shrinks=True),
    TableColumn("memory", shrinks=True),
)
CHANGES = (
    TableColumn("no.", right=True),
    TableColumn("when"),
    TableColumn("what"),
    TableColumn("id"),
    TableColumn("memory", shrinks=True),
)
PENDING = (TableColumn("pending"), TableColumn("messages", right=True), TableColumn("title", shrinks=True))
JOBS = (
    TableColumn("work"),
    TableColumn("about", shrinks=True),
    TableColumn("state"),
    TableColumn("tries", right=True),
    TableColumn("due"),
    TableColumn("why", shrinks=True),
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
    """A page as the user names it: `projects` for `projects`, `projects.md` and `topics/projects.md`."""
    return page.strip().removesuffix(".md").removeprefix("topics/").removeprefix("skills/")


EVERY = 1_000_000
"""More changes than a history has."""
SHORT, SHORTEST = 8, 4
"""Digits of a conversation's id: shown, and needed."""


class MemoryDesk(Struct, frozen=True):
    """What an act works with."""

    args: Namespace
    """As `add_arguments` has them."""
    store: Store
    memories: Memories
    index: Path
    """The file of the search index."""
    editor: str | None = None
    """The user's editor; None: a text is not changed in one."""


def add_arguments(parser: Parser, options: Callable[[], Parser] | None = None) -> None:
    """The commands of `kvchat memory`, each with these options too."""
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> Parser:
        # After `add`, --profile is a page and not the server's profile.
        conflicts = "resolve" if name == "add" else "error"
        parser = commands.add_parser(
            name, parents=[options()] if options else [], conflict_handler=conflicts, help=help
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
    log.add_argument("-n", dest="number", type=number, metavar="N", default=20, help="the number of changes (20)")
    log.add_argument("--conversation", metavar="ID", default=SUPPRESS, help="what came from a conversation")
    restore = command("restore", "undo a change, or all that kvchat noted by itself")
    which = restore.add_mutually_exclusive_group(required=True)
    which.add_argument("seq", metavar="NO", nargs="?", type=number, help="the number of a change in the log")
    which.add_argument("--session", action="store_true", help="what the last extraction noted")
    which.add_argument("--conversation", metavar="ID", default=SUPPRESS, help="what came from a conversation")
    which.add_argument("--since", metavar="DATE", help="what was noted since: 2026-11-21, today, yesterday")
    command("rebuild", "rebuild the search index from the files")
    command("path", "print the folder of the files")
    queue = command("queue", "show what is queued for extraction")
    queue.add_argument(
        "-n", dest="number", type=number, metavar="N", default=50, help="the number of conversations (50)"
    )


def carried_out(desk: MemoryDesk) -> CommandResult:
    """Do what the arguments say, on the files as they are now. Raises MemoryTrouble, StoreError and UsageError."""
    desk.memories.sync()
    return _ACTS[desk.args.what](desk)


# -- looking ----------------------------------------------------------------------------------------------------------


def _list(desk: MemoryDesk) -> CommandResult:
    args = desk.args
    statuses = tuple(Status) if args.status == "all" else (Status(args.status),)
    kind = Kind(args.kind) if args.kind else None
    found = [entry for status in statuses for entry in desk.memories.entries(status, kind)]
    if args.page:
        found = [entry for entry in found if topic(entry.page) == topic(args.page)]
    found.sort(key=lambda entry: -entry.created)
    if not found:
        return CommandResult(found, (none_of(args.status, args.kind, args.page),))
    if args.status != "all":
        return CommandResult(found, (TextTable([entry_cells(entry) for entry in found], ENTRIES),))
    cells = [(*cells[:2], entry.status, *cells[2:]) for entry in found for cells in (entry_cells(entry),)]
    return CommandResult(found, (TextTable(cells, (*ENTRIES[:2], TableColumn("status"), *ENTRIES[2:])),))


def _search(desk: MemoryDesk) -> CommandResult:
    found = desk.memories.search(whole_characters(" ".join(desk.args.words)))
    return CommandResult(
        [{**fields(entry), "score": hit.score, "matched": hit.matched, "why": hit.why} for entry, hit in found],
        (TextTable([entry_cells(entry) for entry, _ in found], ENTRIES),) if found else (),
        failed="" if found else "Nothing found.",
    )


def _log(desk: MemoryDesk) -> CommandResult:
    given = getattr(desk.args, "conversation", None)
    conversation = _conversation(desk, given) if given is not None else ""
    changes = desk.memories.log(desk.args.number, conversation=conversation)
    return CommandResult(changes, _changed(changes))


def _changed(changes: Sequence[Change]) -> tuple[str | TextTable, ...]:
    return (
        TextTable([change_cells(change) for change in changes], CHANGES) if changes else "Nothing has changed yet.",
    )


def _queue(desk: MemoryDesk) -> CommandResult:
    most = desk.args.number
    pending, jobs = desk.memories.ledger.behind(most + 1), desk.store.jobs.all()
    more = max(len(pending), len(jobs)) > most
    pending, jobs = pending[:most], jobs[:most]
    titles = desk.store.titles({id for id, _ in pending} | {job.subject for job in jobs})
    words: list[str | TextTable] = []
    if pending:
        words.append(TextTable([(id[:SHORT], str(number), titles.get(id, "")) for id, number in pending], PENDING))
    if pending and jobs:
        words.append("")
    if jobs:
        words.append(TextTable([job_cells(job, titles, time.time()) for job in jobs], JOBS))
    if not pending and not jobs:
        words.append("Nothing waits.")
    if more:
        words.append(f"More waits: kvchat memory queue -n {10 * most} shows it.")
    if (week := side_work(desk.store, time.time())).count:
        words.append(f"{side_work_words(week)}.")
    if any(job.state is JobState.PAUSED for job in jobs):
        words.append("What is paused waits for you: the memory screen of the app tries it again.")
    found = {
        "pending": [{"conversation": id, "title": titles.get(id), "messages": number} for id, number in pending],
        "jobs": [{**fields(job), "title": titles.get(job.subject)} for job in jobs],
        "more": more,
    }
    return CommandResult(found, words)


def path(folder: Path, index: Path) -> CommandResult:
    """Where the files are, and their search index."""
    found = {"folder": str(folder), "exists": folder.is_dir(), "index": str(index)}
    return CommandResult(found, (clean(whole_characters(str(folder))),))


# -- writing ----------------------------------------------------------------------------------------------------------


def _add(desk: MemoryDesk) -> CommandResult:
    args = desk.args
    page = PROFILE if args.to_profile else args.page or ""
    entry = desk.memories.add(_text(args.text), Kind(args.kind or Kind.FACT), page)
    return CommandResult(entry, (TextTable([entry_cells(entry)]),))


def _edit(desk: MemoryDesk) -> CommandResult:
    entry = desk.memories.get(whole_characters(desk.args.id))
    text = (
        _from_editor(entry.text, desk.editor)
        if desk.editor is not None and not desk.args.text
        else _text(desk.args.text)
    )
    if text != entry.text:
        try:
            entry = desk.memories.edit(entry.id, text)
        except (MemoryTrouble, StoreError) as error:
            raise MemoryTrouble(f"{error} Your words were: {text}") from None
    return CommandResult(entry, (TextTable([entry_cells(entry)]),))


def _delete(desk: MemoryDesk) -> CommandResult:
    changes = [desk.memories.delete(entry.id) for entry in _named(desk)]
    return CommandResult([change.after for change in changes], _changed(changes))


def _accept(desk: MemoryDesk) -> CommandResult:
    if bool(desk.args.ids) == desk.args.all:
        raise UsageError("Give the ids of proposals, or --all.")
    entries = desk.memories.entries(Status.PENDING) if desk.args.all else _named(desk)
    for entry in entries:
        if entry.status is not Status.PENDING:
            raise MemoryTrouble(f"{entry.id} is no proposal: it is {entry.status}.")
    accepted = [desk.memories.accept(entry.id) for entry in entries]
    return CommandResult(accepted, (TextTable([entry_cells(entry) for entry in accepted]),))


def _named(desk: MemoryDesk) -> list[Entry]:
    """The entries of the ids, each once. Raises MemoryTrouble before anything is changed."""
    found = [desk.memories.get(whole_characters(id)) for id in desk.args.ids]
    return list({entry.id: entry for entry in found}.values())


def _text(words: Sequence[str]) -> str:
    text = whole_characters(" ".join(words)).strip()
    if not text:
        raise UsageError("The text is empty. Give the words to remember, or pipe them in with -.")
    return text


def _from_editor(text: str, command: str) -> str:
    """`text` as the user left it in their editor. Raises MemoryTrouble."""
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


def _restore(desk: MemoryDesk) -> CommandResult:
    args, memories = desk.args, desk.memories
    if args.seq is not None:
        change = memories.undo(args.seq)
        return CommandResult({"undone": 1, "left": []}, _changed([change]))
    if args.session:
        count = memories.undo_all()
    elif args.since is not None:
        count = memories.undo_all(since=instant(args.since))
    else:
        count = memories.undo_all(conversation=_conversation(desk, args.conversation))
    return CommandResult(
        {"undone": count, "left": list(memories.left)},
        (*([f"{counted(count, 'change')} undone."] if count else []), *memories.left),
        failed="" if count else "There is nothing to undo that kvchat did by itself.",
    )


def _conversation(desk: MemoryDesk, given: str) -> str:
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


def _rebuild(desk: MemoryDesk) -> CommandResult:
    with closing(Index.open(desk.index)) as index:
        before = index.digest(SCOPE)
        entries = desk.memories.rebuild()
        equal = index.digest(SCOPE) == before
    return CommandResult(
        {"entries": entries, "equal": equal},
        (
            f"The index was made again from the files: {counted(entries, 'memory', 'memories')}, "
            f"{'equal to before' if equal else 'and not what it was before'}.",
        ),
    )


_ACTS: Mapping[str, Callable[[MemoryDesk], CommandResult]] = {
    "list": _list,
    "search": _search,
    "log": _log,
    "queue": _queue,
    "path": lambda desk: path(desk.memories.folder, desk.index),
    "add": _add,
    "edit": _edit,
    "delete": _delete,
    "accept": _accept,
    "restore": _restore,
    "rebuild": _rebuild,
}
