"""What the conversation service tells the screen. Events are facts that happened; the screen reads the rest
from the service's live objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct


class ConversationsChanged(Struct, frozen=True):
    """The list changed: created, renamed, deleted, restored, reordered, or changed by another process."""


class ConversationChanged(Struct, frozen=True):
    """A conversation's tree, head or options changed (not its streaming text)."""

    conversation: str


class WrittenElsewhere(Struct, frozen=True):
    """Another kvchat wrote in a conversation that is open here. `followed`: it is shown here; else it is on another
    branch (`OpenConversation.elsewhere`)."""

    conversation: str
    followed: bool


class DeletedElsewhere(Struct, frozen=True):
    """Another kvchat put a conversation that is open here into the trash."""

    conversation: str


class HeadAwaited(Struct, frozen=True):
    """A question begins to wait for the reply of another kvchat, or waits no longer: read `awaits_reply`."""

    conversation: str


class AnswerStarted(Struct, frozen=True):
    conversation: str
    node: str


class AnswerProgressed(Struct, frozen=True):
    """Text, reasoning, prompt progress, figures or a waiting notice of a streaming answer changed: read them from
    the conversation's `live` answer. Sent at most every 30 ms for text."""

    conversation: str
    node: str


class AnswerEnded(Struct, frozen=True):
    """The answer is settled and stored; its state is on the node."""

    conversation: str
    node: str


class QuestionRefused(Struct, frozen=True):
    """The server refused a question for the length of its prompt. It stays in the tree with its answer, but the
    head is again where it was before it. Sent after `AnswerEnded`."""

    conversation: str
    question: str
    tokens: int | None
    """Of the prompt; None: the server does not say."""
    window: int | None


class ToolAsked(Struct, frozen=True):
    """A call of a tool waits for the user's word, or waits no longer: read `tools.waiting`."""

    conversation: str


class QueueChanged(Struct, frozen=True):
    """The messages that wait in a conversation, or what holds them: read `queue.of` and `queue.held`."""

    conversation: str


class CompactionChanged(Struct, frozen=True):
    """The compaction of a conversation began, came further (at most every 30 ms) or ended: read `compacting`."""

    conversation: str


class SummaryPrepared(Struct, frozen=True):
    """A summary was written at rest: read `compactor.ready_summary`."""

    conversation: str


class ServerChanged(Struct, frozen=True):
    """The server was identified, lost, starting or changed: read `servers.info` and `servers.connection`."""


class FallbackChosen(Struct, frozen=True):
    """The server used last is off, and new conversations begin on another one. Both by their names, as
    `server_words.place_words` takes them."""

    off: str
    used: str


class WarmthChanged(Struct, frozen=True):
    """What the server holds of some conversation may have changed, or how far one is warmed up: read
    `tracker.warmth`, `tracker.warming` and `tracker.warmup_progress`."""


class JobsChanged(Struct, frozen=True):
    """A job began, ended, or was put into the queue: read `jobs` and `at_work`."""


class MemoryBegins(Struct, frozen=True):
    """The first extraction of memories in this installation is about to begin."""


class MemoriesNoted(Struct, frozen=True):
    """An extraction stored memories, or proposed some."""

    conversation: str
    noted: tuple[str, ...]
    """The ids of the new entries that are in force."""
    pending: tuple[str, ...]
    """The ids of those that wait for the user's yes."""


class MemoriesChanged(Struct, frozen=True):
    """What is remembered changed: by the user, in the files, or by tidying."""


class IndexingProgressed(Struct, frozen=True):
    """Indexing a collection began or came further (at most ten times a second): read `indexing`."""

    collection: str


class DocumentsChanged(Struct, frozen=True):
    """A collection was added, removed, or indexed to the end: read `reports` and the library."""


class StorageChanged(Struct, frozen=True):
    """Writing failed (`trouble` is a sentence) or works again (empty)."""

    trouble: str


class Noticed(Struct, frozen=True):
    """Something worth a line on the screen."""

    text: str
    severity: Literal["information", "warning", "error"] = "information"


ServiceEvent = (
    ConversationsChanged
    | ConversationChanged
    | WrittenElsewhere
    | DeletedElsewhere
    | HeadAwaited
    | AnswerStarted
    | AnswerProgressed
    | AnswerEnded
    | QuestionRefused
    | ToolAsked
    | QueueChanged
    | CompactionChanged
    | SummaryPrepared
    | ServerChanged
    | FallbackChosen
    | WarmthChanged
    | JobsChanged
    | MemoryBegins
    | MemoriesNoted
    | MemoriesChanged
    | IndexingProgressed
    | DocumentsChanged
    | StorageChanged
    | Noticed
)

Listener = Callable[[ServiceEvent], None]


class EventBus:
    """Tells every listener every event, in the order in which they came to listen."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event, on the loop, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: ServiceEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)
