"""What an import took, what it left out, and why: counts, and kinds with their arguments. `kvchat.text.imports` has the
words."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from kvchat.text import imports as words
from kvchat.transfer.importing.files import Missed
from kvchat.transfer.importing.thread import Loss
from kvchat.values import Statement


class Skip(Struct, frozen=True):
    """Something that was not taken."""

    file: str
    why: Statement
    whole: bool
    """Whether it is the file; else conversations in it."""


class ImportReport(Struct):
    dry_run: bool
    batch: str = ""
    """The id under which it can be taken back; empty: there is nothing to take back."""
    made: int = 0
    """Conversations that are new."""
    grown: int = 0
    """Those that were there and have new messages."""
    restored: int = 0
    """Those that came back out of the trash, where an undone import had put them."""
    unchanged: int = 0
    messages: int = 0
    """New questions and answers, on all branches."""
    passed_over: int = 0
    """Files of folders and archives in which there is no conversation."""
    stopped: bool = False
    """Whether the user stopped it."""
    programs: Counter[str] = field(default_factory=Counter)
    """Conversations that were found, by the program whose format they are in."""
    tags: Counter[str] = field(default_factory=Counter)
    """Of the new conversations, by their names here."""
    losses: Counter[Loss] = field(default_factory=Counter)
    skipped: Counter[Skip] = field(default_factory=Counter)

    @property
    def taken(self) -> int:
        return self.made + self.grown + self.restored

    @property
    def failed(self) -> bool:
        """Whether nothing at all was in the files."""
        return not self.taken and not self.unchanged

    def skip(self, missed: Missed) -> None:
        self.skipped[Skip(missed.file, missed.why, missed.whole)] += 1

    def lines(self) -> list[str]:
        """What to say of it, the sum first."""
        said = [
            words.headline(
                made=self.made,
                grown=self.grown,
                restored=self.restored,
                unchanged=self.unchanged,
                messages=self.messages,
                dry_run=self.dry_run,
            )
            if not self.failed or not self.skipped
            else "",
            words.sources(self.programs) if self.taken else "",
            words.tags(self.tags) if self.tags else "",
            *(words.loss(kind.value, number) for kind, number in sorted(self.losses.items())),
            *(words.skipped(one.file, one.why, one.whole, number) for one, number in self.skipped.items()),
            words.other_files(self.passed_over) if self.passed_over else "",
        ]
        return [line for line in said if line]

    def json(self) -> dict[str, object]:
        """As plain values."""
        return {
            "import": self.batch or None,
            "dry_run": self.dry_run,
            "stopped": self.stopped,
            "new": self.made,
            "grown": self.grown,
            "restored": self.restored,
            "unchanged": self.unchanged,
            "messages": self.messages,
            "programs": dict(self.programs),
            "tags": dict(self.tags),
            "left_out": {kind.value: number for kind, number in self.losses.items()},
            "other_files": self.passed_over,
            "skipped": [
                {
                    "file": one.file,
                    "whole_file": one.whole,
                    "conversations": 0 if one.whole else number,
                    "kind": one.why.kind,
                    "arguments": dict(one.why.arguments),
                }
                for one, number in self.skipped.items()
            ],
        }
