"""`kvchat memory`: what is remembered, to look at and to change, as text or as JSON."""

from __future__ import annotations

import argparse
import sys
import uuid
from contextlib import closing

from kvchat.cli import common_options
from kvchat.cli.session import CommandError, Session, UsageError, print_notices
from kvchat.commands import memory
from kvchat.memory.entry import MemoryTrouble
from kvchat.memory.memories import open_memories
from kvchat.memory.place import index_path, memory_folder
from kvchat.store import Store, StoreError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kvchat memory`."""
    memory.add_arguments(parser, lambda: common_options(of_command=True))


def run(session: Session) -> int:
    """Carry out a memory command and return the exit status. Raises CommandError."""
    args, places = session.args, session.places
    session.print_problems()
    index = index_path(places)
    if args.what == "path":
        return session.give(memory.path(memory_folder(places, session.settings), index))
    if getattr(args, "text", None) == ["-"]:
        args.text = [sys.stdin.buffer.read().decode("utf-8", "replace")]
    try:
        with closing(Store.open(None if args.incognito else places.data)) as store:
            memories = open_memories(places, session.settings, store, uuid.uuid4().hex[:12])
            if memories is None:
                raise UsageError("An incognito run has no memory; leave out --incognito.")
            try:
                desk = memory.MemoryDesk(args, store, memories, index, session.settings.editor)
                return session.give(memory.carried_out(desk))
            finally:
                memories.close()
                print_notices([*store.notices, *memories.problems])
    except (MemoryTrouble, StoreError) as error:
        raise CommandError(str(error)) from None
