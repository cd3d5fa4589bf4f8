"""The store: conversations, their messages and what belongs to them, in one SQLite file.

`create`, `add` and `settle` return when what they store would survive a power cut; that is the
acknowledgement. A write that failed can be tried again with the same values. Every method may raise StoreError.

Several kvchats write the same conversations. A write is therefore given what its act changes, as a function of the row
as it is by then, and gives back what became of it. `known` is the row as the caller knows it: it says which one, and is
stored only where another kvchat deleted it for good while it was empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.figures.accounting import TurnFigures, WarmupTotals, samples_of
from kvchat.figures.speed import SpeedFit, SpeedSample, fit
from kvchat.figures.stats import Answered
from kvchat.prompt.conversation import Conversation, SavedPrompt, SearchHit, SentRequest
from kvchat.prompt.message import Node
from kvchat.prompt.tree import Tree
from kvchat.store.conversations import Change, ConversationRows
from kvchat.store.file import backup, opening, quarantine
from kvchat.store.file.database import Database
from kvchat.store.jobs import JobRows
from kvchat.store.kept import KeptRows
from kvchat.store.key_value import LibraryRows
from kvchat.store.messages import MessageRows
from kvchat.store.rows import to_json
from kvchat.text.problems import recovered_words

if TYPE_CHECKING:
    from kvchat.store.collections import CollectionRows
    from kvchat.store.fulltext.search import Search
    from kvchat.store.images import ImageRows
    from kvchat.store.imports import ImportRows
    from kvchat.store.leftovers import Leftovers
    from kvchat.store.queue import QueueRows
    from kvchat.store.side_requests import SideRequestRows


class Store:
    """One open database. Its methods can be called from any thread; they take turns."""

    def __init__(self, db: Database, notices: list[str], clock: Callable[[], float]) -> None:
        self.notices = notices
        """Sentences about what happened at opening: answers recovered, a damaged file moved aside."""
        self._db = db
        self._clock = clock
        self._conversations = ConversationRows(db)
        self._messages = MessageRows(db, self._conversations)
        self._library = LibraryRows(db)
        self._jobs = JobRows(db, clock)
        self._kept = KeptRows(db, self._conversations)

    @classmethod
    def open(cls, folder: Path | None, *, clock: Callable[[], float] = time.time) -> Store:
        """The store in `folder`, made if there is none; None is a store in memory that writes nothing to disk.

        Answers that streamed when their kvchat ended are settled as interrupted, jobs that it ran wait again. Raises
        StoreError.
        """
        if folder is None:
            return cls(opening.in_memory(), [], clock)
        db, notices = opening.on_disk(folder, clock())
        store = cls(db, notices, clock)
        try:
            if db.refusal is None:
                store.recover()
        except BaseException:
            db.close()
            raise
        return store

    def recover(self) -> None:
        """Settle what a kvchat that has ended left running: its answers, with a notice, and its jobs."""
        recovered = self._messages.recover()
        self._jobs.recover()
        if recovered:
            self.notices.append(recovered_words(recovered))

    def close(self) -> None:
        self._db.close()

    @property
    def database(self) -> Database:
        """For what keeps tables of its own in this file."""
        return self._db

    @property
    def jobs(self) -> JobRows:
        """Work that waits."""
        return self._jobs

    @property
    def kept(self) -> KeptRows:
        """The conversations whose state the user keeps."""
        return self._kept

    # What not everybody who looks at the store needs is built when it is first used.

    @cached_property
    def queue(self) -> QueueRows:
        """Messages that wait for the answer before them."""
        from kvchat.store.queue import QueueRows

        return QueueRows(self._db)

    @cached_property
    def side_requests(self) -> SideRequestRows:
        """The side requests, and their cost."""
        from kvchat.store.side_requests import SideRequestRows

        return SideRequestRows(self._db)

    @cached_property
    def collections(self) -> CollectionRows:
        """The folders that are indexed."""
        from kvchat.store.collections import CollectionRows

        return CollectionRows(self._db)

    def unread_drafts(self) -> list[Path]:
        """The folders of databases from before 0.2 that were set aside, and of which no conversation is here."""
        path = self._db.path
        left = quarantine.drafts(path) if path is not None else []
        here = "SELECT 1 FROM conversation WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1"
        return [place for place, ids in left if ids and self._db.row(here, (to_json(ids),)) is None]

    @cached_property
    def imports(self) -> ImportRows:
        """Conversations that came in from files."""
        from kvchat.store.imports import ImportRows

        return ImportRows(self._db, self._conversations)

    @cached_property
    def images(self) -> ImageRows:
        """The images that messages carry."""
        from kvchat.store.images import ImageRows

        return ImageRows(self._db, self._clock)

    @cached_property
    def _leftovers(self) -> Leftovers:
        from kvchat.store.leftovers import Leftovers

        return Leftovers(self._db)

    @cached_property
    def _search(self) -> Search:
        from kvchat.store.fulltext.search import Search

        return Search(self._db)

    # Conversations

    def conversations(self, *, trashed: bool = False) -> list[Conversation]:
        """All conversations outside the trash (or all in it), newest first."""
        return self._conversations.all(trashed)

    def servers_in_use(self) -> list[tuple[str, int]]:
        """The names of the servers that conversations are on, with how many conversations each; used last first."""
        return self._conversations.servers()

    def tags(self) -> list[tuple[str, int]]:
        """The tags that conversations outside the trash have, with how many conversations each, by name."""
        return self._conversations.tags()

    def branch_turns(self, id: str) -> int:
        """The questions on the branch that a conversation has in use."""
        return self._conversations.branch_turns(id)

    def fewer_turns(self) -> dict[str, int]:
        """As `branch_turns`, of all conversations where that may be fewer than its `turns`."""
        return self._conversations.fewer_turns()

    def titles(self, ids: Collection[str]) -> dict[str, str]:
        """The titles of these conversations, as far as there are such."""
        return self._conversations.titles(ids)

    def conversation(self, id: str) -> Conversation:
        """The conversation with this id or unique beginning of an id (4 digits at least), the trash included.
        Raises UnknownConversation."""
        return self._conversations.one(id)

    def known(self, id: str) -> Conversation | None:
        """The conversation with just this id, the trash included; None: there is none."""
        return self._conversations.exact(id)

    def create(self, conversation: Conversation, system: Node) -> Conversation:
        """Store a new conversation and return it as stored: its head is `system`, or the node that has the same bytes
        already. A head that is another stored node is kept: that is a fork."""
        return self._conversations.create(conversation, system)

    def change(self, known: Conversation, change: Change, *, shown: str | None = None) -> Conversation:
        """Store what `change` makes of the row. `shown`: the head that the window showed, for an act that moves it.
        Raises ConversationDeleted when the row is gone for good."""
        return self._conversations.change(known, change, shown)

    def take_empty(self, id: str) -> bool:
        """Have an empty conversation for this kvchat; whether it is empty and no other living one has it."""
        return self._conversations.take_empty(id)

    def purge_trash(self, older_than: float) -> None:
        """Remove for good what was put into the trash before `older_than`, in seconds since the epoch. What that leaves
        in a large file is overwritten `at_rest`."""
        if self._conversations.purge_trash(older_than):
            self._leftovers.merge_some()

    def tree(self, id: str) -> Tree:
        """The messages made in the conversation and all above them, as of now. Raises UnknownConversation."""
        return self._conversations.tree(id)

    def mark(self, id: str) -> tuple[int, int]:
        """How many messages were made in the conversation, and how many of them stream: another tree, another mark,
        but for one empty answer that took the place of another."""
        return self._conversations.mark(id)

    def like(self, system: Node) -> Node:
        """The stored system message with the bytes of this one; itself where there is none."""
        return self._conversations.like(system) or system

    # Messages

    def add(
        self,
        known: Conversation,
        nodes: Sequence[Node],
        change: Change,
        *,
        shown: str | None = None,
        whole: bool = False,
        late: bool = False,
        queued: str = "",
    ) -> Conversation:
        """Store new messages and what `change` makes of the row, in one transaction. `shown`: the head that the window
        showed. `whole`: they were made from all of that branch, which must not have grown since. `queued`: the
        message that this takes out of the queue. Ids that are stored already are left as they are; when all are, so
        is the row.

        Raises HeadMoved when the first one's parent is not settled as it was known, or the branch has grown,
        ConversationDeleted, and NotQueued. `late`: what they belong to has happened already, and they are stored in any
        case."""
        return self._messages.add(known, nodes, change, shown=shown, whole=whole, late=late, queued=queued)

    def append(self, node: str, text: str, reasoning: str, reasoning_field: str = "reasoning_content") -> None:
        """Keep what has arrived of a streaming answer since the last call. After a failure, call again with the same
        text and what came since. Nothing happens when the answer is settled."""
        self._messages.append(node, text, reasoning, reasoning_field)

    def begin_call(self, node: str) -> None:
        """Note that a call is being carried out from now on: until then a kvchat that ends has not carried it out."""
        self._messages.begin_call(node)

    def settle(
        self, node: Node, known: Conversation | None = None, change: Change | None = None
    ) -> Conversation | None:
        """Store the final form of a streaming answer, and what `change` makes of its conversation's row."""
        return self._messages.settle(node, known, change)

    def is_streaming(self, node: str, *, owner: bool = True) -> bool:
        """Whether this answer streams, into this kvchat or another one. `owner`: look whether that one lives; if not,
        the answer is settled with what came."""
        return self._messages.is_streaming(node, owner)

    def drop(self, node: str) -> None:
        """Remove an answer without children that has no text, or that of a sibling; a head on it goes to its parent.
        Else nothing happens."""
        self._messages.drop(node)

    def record_request(
        self, node: str, *, body_sha256: str, server: str, kind: str = "", build: str = "", model: str = ""
    ) -> None:
        """Keep the evidence of what was sent for an answer: the body's hash, and to which server and model."""
        self._messages.record_request(node, body_sha256, server, kind, build, model)

    def request_of(self, node: str) -> SentRequest | None:
        """What was sent for an answer, and where to; None when nothing was."""
        return self._messages.request_of(node)

    def last_reasoning_field(self, model: str) -> str:
        """The field of the reasoning in this model's last answer; empty where it has given none of late."""
        return self._messages.last_reasoning_field(model)

    def record_warmup(self, conversation: str, created: float, server: str, model: str, read: SpeedSample) -> None:
        """Keep what a warm-up cost."""
        self._messages.record_warmup(conversation, created, server, model, read)

    def warmup_samples(self, server: str, model: str, limit: int = 20) -> list[SpeedSample]:
        """How long the last warm-ups of this model on this server took, newest first."""
        return self._messages.warmup_samples(server, model, limit)

    def warmups(self, since: float = 0.0, conversation: str | None = None) -> WarmupTotals:
        """What warm-ups prefilled since then (seconds since the epoch), in all or in one conversation."""
        return self._messages.warmups(since, conversation)

    def answers(self, since: float = 0.0) -> list[Answered]:
        """The figures of all answers begun since then (seconds since the epoch), oldest first."""
        return self._messages.answers(since)

    def speed_samples(self, server: str, model: str, limit: int = 20) -> list[TurnFigures]:
        """The figures of the last answers of this model on this server, newest first, for the measured speed."""
        return self._messages.speed_samples(server, model, limit)

    def speed_fit(self, server: str, model: str) -> SpeedFit | None:
        """The prefill speed of this model on this server, from its last answers and warm-ups; None until it was
        measured. Every figure of time saved is based on it."""
        answers = samples_of(reversed(self.speed_samples(server, model, 40)))
        return fit([*reversed(self.warmup_samples(server, model)), *answers])

    # What is kept by name

    def drafts(self) -> dict[str, str]:
        """Unsent text by conversation id."""
        return self._library.drafts()

    def draft(self, id: str) -> str:
        """The unsent text of a conversation; empty if there is none."""
        return self._library.draft(id)

    def written_last(self) -> str:
        """The conversation in which something was written after the last message of all, and is not sent; empty:
        none."""
        return self._library.written_last()

    def set_draft(self, id: str, text: str) -> None:
        self._library.set_draft(id, text)

    def prompts(self) -> list[SavedPrompt]:
        """The saved system prompts, by name."""
        return self._library.prompts()

    def save_prompt(self, prompt: SavedPrompt) -> None:
        """Save a system prompt with the time of now; one of the same name is replaced. Raises StoreError."""
        self._library.save_prompt(prompt, self._clock())

    def delete_prompt(self, name: str) -> None:
        self._library.delete_prompt(name)

    def setting(self, key: str) -> str | None:
        return self._library.setting(key)

    def set_setting(self, key: str, value: str | None) -> None:
        """Keep a value under a key; None removes it. Keys that begin with `store.` are the store's own."""
        self._library.set_setting(key, value)

    # Finding, watching, saving

    def search(
        self, query: str, limit: int = 50, *, ranked: bool = False, conversation: str | None = None
    ) -> list[SearchHit]:
        """Messages and titles that hold every word of `query`: newest first, or `ranked` the best of the newest 2,000.
        The last word may be unfinished, and those that hold it whole come first; "quoted words" follow each other. With
        `conversation`, its messages only.
        `tag:NAME` keeps to the conversations with that tag, as `kvchat.prompt.tags.meant` has it; alone, it finds them.
        """
        return self._search(query, limit, ranked, conversation)

    def data_version(self) -> int:
        """A number that changes when another process has written."""
        return int(self._db.row("PRAGMA data_version")[0])

    def checkpoint(self) -> None:
        """Put the log into the database file. For an idle moment: milliseconds, and a disk that syncs twice."""
        self._db.checkpoint()

    def at_rest(self) -> None:
        """Tidy the file, when nothing was written for a while: after a removal rewrite it, so that nothing of what was
        removed is left, bring a full-text index of an earlier version up to date, and empty the log."""
        self._leftovers.renew_index()
        self._leftovers.overwrite()
        self._db.checkpoint()

    def backup_if_due(self) -> Path | None:
        """Make a checked backup if the last is older than a day; its path, or None. For an idle moment: about 10 ms
        per megabyte. Other calls go on meanwhile."""
        if self._db.path is None or not backup.is_due(self._db.path.parent, self._clock()):
            return None
        return backup.back_up(self._db.path, self._clock())
