"""A memory to test with: its store, its folder, conversations to extract from, and what must always hold of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from kvchat.memory.entry import ChangeReason, Entry, Fact, Kind, Status
from kvchat.memory.ledger import ExtractionRun
from kvchat.memory.memories import Memories
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Node, Role, new_id, node, system_message
from kvchat.store import Store
from whole_rows import add_nodes

START = 1_790_000_000.0
"""Seconds since the epoch at which a test's clock begins."""
HEAD = '---\nkvchat: 1\nkind: "topic"\n---\n'


class Book:
    """One kvchat with a memory, and hands that edit its files."""

    def __init__(self, base: Path, session: str = "one", clock: Callable[[], float] | None = None) -> None:
        counted = itertools.count(int(START))
        self.base = base
        self.folder = base / "notes"
        self.session = session
        self.clock = clock or (lambda: float(next(counted)))
        self.store = Store.open(base / "data")
        self.memories = self.opened()

    def opened(self) -> Memories:
        return Memories.open(
            self.store, self.folder, self.base / "data" / "index.db", session=self.session, clock=self.clock
        )

    def again(self, session: str | None = None) -> Memories:
        """kvchat ends and is started anew."""
        self.close()
        self.session = session or self.session
        self.store = Store.open(self.base / "data")
        self.memories = self.opened()
        return self.memories

    def close(self) -> None:
        self.memories.close()
        self.store.close()

    # What is said, and what is extracted from it

    def talk(self, turns: int = 2, title: str = "A talk") -> tuple[str, list[str]]:
        """A conversation of so many questions with answers: its id, and the ids of its messages."""
        now = self.clock()
        system = node(None, system_message(""), now)
        record = self.store.create(Conversation(new_id(), system.id, now, now, title=title), system)
        assert record.head is not None
        tip = self.store.tree(record.id)[record.head]
        nodes: list[Node] = []
        for number in range(turns):
            for role in (Role.USER, Role.ASSISTANT):
                tip = node(tip, Message(role, f"{role.value} {record.id[:6]} {number}"), now + number)
                nodes.append(tip)
        add_nodes(self.store, replace(record, head=tip.id, turns=turns, updated=now + turns), nodes)
        return record.id, [one.id for one in nodes]

    def extract(
        self, *facts: Fact | str, talk: tuple[str, list[str]] | None = None, refused: str = "[]"
    ) -> list[Entry] | None:
        """One extraction that found these facts in a new conversation, or in `talk`."""
        conversation, nodes = talk or self.talk()
        found = [fact(one, nodes=nodes[:1]) if isinstance(one, str) else one for one in facts]
        run = ExtractionRun(
            new_id(), conversation, self.clock(), "facts" if found else "empty", "tiny-model", self.session, 0, refused
        )
        return self.memories.store_extraction(run, nodes, found)

    # The files

    def path(self, page: str) -> Path:
        return self.folder / page

    def text(self, page: str) -> str:
        return self.path(page).read_text("utf-8")

    def write(self, page: str, text: str) -> None:
        """As an editor does it."""
        self.path(page).parent.mkdir(parents=True, exist_ok=True)
        self.path(page).write_text(text, "utf-8")

    def change(self, page: str, old: str, new: str) -> None:
        text = self.text(page)
        assert old in text, f"{old!r} is not in {text!r}"
        self.write(page, text.replace(old, new))

    def without_line(self, page: str, words: str) -> str:
        """Delete the line with these words by hand; the line."""
        lines = self.text(page).splitlines(keepends=True)
        gone = [line for line in lines if words in line]
        assert len(gone) == 1
        self.write(page, "".join(line for line in lines if words not in line))
        return gone[0]

    def pages(self) -> dict[str, str]:
        """All pages with their text, but for the log."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_text("utf-8")
            for path in sorted(self.folder.rglob("*.md"))
            if "log" not in path.relative_to(self.folder).parts
        }

    def log(self) -> str:
        return "\n".join(path.read_text("utf-8") for path in sorted((self.folder / "log").glob("*.md")))

    def texts(self, status: Status = Status.LIVE) -> list[str]:
        return sorted(entry.text for entry in self.memories.entries(status))

    # What must always hold

    def check(self) -> None:
        """Every live entry is in exactly one line of one page, on its own page; no other entry is in any; the index
        holds the live ones, and the same when it is made anew."""
        assert self.memories.problems == ()
        assert self.memories.sync() is False
        pages = self.pages()
        for status in Status:
            for entry in self.memories.entries(status):
                places = [page for page, text in pages.items() for _ in re.findall(rf"\b{entry.id}\b", text)]
                if entry.id.startswith("h") and not places:
                    places = [
                        page for page, text in pages.items() for line in text.splitlines() if line == f"- {entry.text}"
                    ]
                assert places == ([entry.page] if status is Status.LIVE else []), (entry, places)
        bullets = sum(line.startswith("- ") for text in pages.values() for line in text.splitlines())
        assert bullets == len(self.memories.entries())
        before = self.memories.index.digest("memory/")
        assert self.memories.rebuild() == len(self.memories.entries())
        assert self.memories.index.digest("memory/") == before


def fact(
    text: str,
    kind: Kind = Kind.FACT,
    confidence: float = 0.9,
    nodes: Sequence[str] = (),
    topic: str = "",
    replaces: str = "",
    review: ChangeReason | None = None,
) -> Fact:
    return Fact(kind, text, confidence, tuple(nodes), topic, replaces, review)
