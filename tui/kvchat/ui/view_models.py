"""From nodes and running answers to what the transcript shows. Pure functions."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

from kvchat.prompt.citations import cited, sources
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Node, NoteKind, Role, State
from kvchat.prompt.tools import ToolCall, taken_apart
from kvchat.prompt.tree import Tree
from kvchat.text.findings import cause_name
from kvchat.text.format import message_time
from kvchat.text.notes import note_sentence
from kvchat.text.servers import model_name
from kvchat.text.tools import shown_call
from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript import TranscriptItem, reading_row, sources_of, unknown_reading_row, waiting_row

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
    from kvchat.ui.terminal import Prefilled

YOU = "You"
Continues = Callable[[Node], bool]
PATIENCE = 0.3
"""Seconds without news before the row says what is waited for: a warm answer starts without a flicker."""


class BranchItems:
    """The messages of the branch in use; the system message only where it is not the standing one of an empty
    conversation. An item is made when it is asked for, of what its message is then.

    An `ItemSource` of the transcript."""

    def __init__(
        self,
        conversation: OpenConversation,
        model: str,
        now: datetime,
        continues: Continues = lambda _: True,
        below: TranscriptItem | None = None,
    ) -> None:
        """`continues`: whether its server continues an answer. `below`: what is shown below the branch."""
        self._conversation = conversation
        self._nodes = conversation.path()[1:]
        self._model = model
        self._now = now
        self._continues = continues
        self._below = below
        self.ids = [node.id for node in self._nodes]
        if below is not None:
            self.ids.append(below.node_id)

    def texts(self) -> Sequence[str]:
        live, done = self._conversation.live, State.DONE
        texts = [
            node.message.text if node.state is done and node.note is None else _shown_text(node, live)
            for node in self._nodes
        ]
        return texts if self._below is None else [*texts, self._below.text]

    def item(self, index: int) -> TranscriptItem:
        if index == len(self._nodes) and self._below is not None:
            return self._below
        node, conversation = self._nodes[index], self._conversation
        known: dict[int, ContextBlock] = {}
        for number in cited(node.text) if self._sources and node.role is Role.ASSISTANT else ():
            brought = self._sources.get(number, ())
            if there := bisect_right(brought, index, key=itemgetter(0)):
                known[number] = brought[there - 1][1]
        return item_of(conversation.tree, node, conversation.live, self._model, self._now, known, self._continues)

    @cached_property
    def _sources(self) -> Mapping[int, Sequence[tuple[int, ContextBlock]]]:
        """What each number means, from which message on."""
        brought: defaultdict[int, list[tuple[int, ContextBlock]]] = defaultdict(list)
        for at, node in enumerate(self._nodes):
            for number, block in sources((node,)).items() if node.message.blocks else ():
                brought[number].append((at, block))
        return brought


def item_of(
    tree: Tree,
    node: Node,
    live: LiveAnswer | None,
    model: str,
    now: datetime,
    known: Mapping[int, ContextBlock] | None = None,
    continues: Continues = lambda _: True,
) -> TranscriptItem:
    """One message; `live` gives a streaming answer its text so far. `known`: the sources on its branch, where they are
    at hand."""
    if known is None:
        known = sources(tree.path(node.id))
    shown = _live_of(node, live)
    call = written_call(shown.call) if shown else _broken_call(node)[1]
    own = model if node.state is State.STREAMING or node.figures is not None else ""  # else it may be imported
    return TranscriptItem(
        node_id=node.id,
        role=node.role,
        title=_title(node, model_name(node.model or own)),
        time=message_time(node.created, now),
        text=_shown_text(node, live),
        reasoning=shown.reasoning if shown else node.message.reasoning,
        blocks=node.message.blocks,
        state=node.state,
        note=note_sentence(node.note) if node.note and node.note.kind != NoteKind.LONGEST else "",
        siblings=tree.version(node.id) if node.id in tree else (1, 1),  # it may be dropped before it is drawn
        figures=node.figures,
        streaming=shown is not None,
        sources=sources_of(node.text, known) if known and node.role is Role.ASSISTANT and shown is None else (),
        call=call,
        goes_on=continues(node),
    )


def _live_of(node: Node, live: LiveAnswer | None) -> LiveAnswer | None:
    """What there is of a message that streams."""
    return live if node.state is State.STREAMING and live is not None and live.node == node.id else None


def _shown_text(node: Node, live: LiveAnswer | None) -> str:
    shown = _live_of(node, live)
    return shown.text if shown else _broken_call(node)[0]


def _broken_call(node: Node) -> tuple[str, str]:
    """The text of a message, and the call in it that could not be carried out."""
    if node.note is not None and node.note.is_a(NoteKind.BROKEN_CALL):
        return taken_apart(node.text, str(node.note["call"]))
    return node.text, ""


def written_call(call: ToolCall | None) -> str:
    """A call as far as it is written: `read_file: {"path": "no`."""
    return f"{call.name}: {call.arguments}" if call is not None and call.name else ""


def _title(node: Node, model: str) -> str:
    if node.role is Role.TOOL:
        return shown_call(node.message.call)
    return YOU if node.role is Role.USER else model or "Answer"


def prefilled(live: LiveAnswer, now: float) -> Prefilled:
    """How much of what the server has to prefill is done at `now` (monotonic seconds). None once tokens come, for an
    answer that is stopped, while the server is offline, and for one that starts at once."""
    offline = live.waiting is not None and live.waiting.phase == "gone"
    if live.first_token_at is not None or live.stopping or offline or now - live.sent_at < PATIENCE:
        return None
    progress = live.prefill
    if progress is None:
        return "unknown"
    done, whole = progress.processed - progress.cached, progress.total - progress.cached
    return min(100, max(0, done * 100 // whole)) if whole > 0 else 100


def live_row(live: LiveAnswer, now: float, speed: float | None) -> Callable[[int], Sequence[Run]] | None:
    """What to draw below the conversation at `now` (monotonic seconds), or nothing once tokens come. `speed`: the
    measured prefill speed in tokens/s, for the time left before this prefill has a speed of its own."""
    seconds = now - live.sent_at
    waiting, current = live.waiting, live.prefill_at(now, speed)
    if live.first_token_at is not None:
        if waiting is None:
            return None
        return lambda width: waiting_row(width, waiting.phase, waiting.seconds, waiting.server_alive, waiting.words)
    if current is not None:
        return lambda width: reading_row(
            width,
            total=current.total,
            cached=current.cached,
            processed=current.processed,
            speed=current.speed or speed,
            seconds_left=current.seconds_left(speed),
            wasted=current.wasted,
            only_new=current.only_new,
            estimated=current.estimated,
            cause=cause_name(current.cause) if current.cause else "",
        )
    if waiting is not None and waiting.phase not in ("prefill", "connecting"):
        return lambda width: waiting_row(
            width, waiting.phase, max(seconds, waiting.seconds), waiting.server_alive, waiting.words
        )
    if seconds < PATIENCE:
        return None
    if waiting is not None and waiting.phase == "connecting":
        return lambda width: waiting_row(width, "connecting", seconds, None)
    return lambda width: unknown_reading_row(width, seconds)
