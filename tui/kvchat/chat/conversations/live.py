"""An open conversation and its streaming answer: the live objects the screen reads."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import Prompted, Reported, Waiting
from kvchat.chat.errors import ChatError
from kvchat.figures.accounting import PromptProgress, Totals, TurnFigures, totals
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, Role, State, instructions_of, tools_of
from kvchat.prompt.prefilled_before import NOTHING_PREFILLED, PrefilledBefore
from kvchat.prompt.tools import ToolCall, tool_names
from kvchat.prompt.tree import Tree
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.cache import Finding
    from kvchat.figures.speed import SpeedFit


class LiveAnswer(Struct):
    """An answer while it streams. `text` and `reasoning` only grow, until all of the text proves to be a thought."""

    node: str
    sent_at: float
    """Monotonic seconds."""
    text: str = ""
    reasoning: str = ""
    reasoning_field: str = "reasoning_content"
    call: ToolCall | None = None
    """The call of a tool that is being written, as far as it is there."""
    progress: PromptProgress | None = None
    progress_at: float = 0.0
    """When the server reported it, monotonic seconds."""
    ahead: PromptProgress | None = None
    """How far the warm-up of this very question came that it waited for; `total` is the question's."""
    reported: Reported = field(default_factory=Reported)
    waiting: Waiting | None = None
    prompted: Prompted | None = None
    """The prompt, where it went as token ids."""
    sampled: list[int] = field(default_factory=list)
    """Then the ids of what came."""
    first_token_at: float | None = None
    """Monotonic seconds."""
    stopping: bool = False
    context_size: int | None = None
    """Of the server and model that it was asked of."""
    continued: str | None = None
    """The id of the cut answer that this one continues; None: it continues none."""
    read: PrefilledBefore = NOTHING_PREFILLED
    """What a server has read of its prompt before."""
    ended: State | None = None
    """How it ended; None: it streams."""
    ended_at: float = 0.0
    """Monotonic seconds."""

    @property
    def prefill(self) -> PromptProgress | None:
        """How far the prompt is, for the screen: with the warm-up that it waited for as one prefill."""
        progress, ahead = self.progress, self.ahead
        if progress is not None and progress.shared is None:
            progress = replace(progress, shared=self.read.tokens)
        if progress is None or ahead is None:
            return progress or ahead
        cached, elapsed = min(progress.cached, ahead.cached), progress.elapsed_ms + ahead.elapsed_ms
        return replace(progress, cached=cached, elapsed_ms=elapsed, shared=ahead.shared, cause=ahead.cause)

    def prefill_at(self, now: float, speed: float | None) -> PromptProgress | None:
        """`prefill` as it likely is at `now` (monotonic seconds), between what the server tells. `speed`: the measured
        prefill speed in tokens/s, for the time before this one has a speed of its own."""
        progress = self.prefill
        if progress is None or not self.progress_at:
            return progress
        if not progress.elapsed_ms and progress.processed > progress.cached:  # the server tells no times
            return replace(progress, elapsed_ms=(now - self.sent_at) * 1000)
        return progress.after(now - self.progress_at, speed)

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_token_at is None else (self.first_token_at - self.sent_at) * 1000


class OpenConversation(Struct, weakref=True):
    """A conversation with its tree loaded."""

    record: Conversation
    tree: Tree
    draft: str = ""
    live: LiveAnswer | None = None
    alternatives: tuple[LiveAnswer, ...] = ()
    """The answers of which one is to be chosen, from when they begin until it is; `live` is the first of them."""
    stamped: datetime | None = None
    """The time of the stamp that was prefilled for the next question; it is used while it is not too old."""
    mark: tuple[int, int] | None = None
    """`Store.mark` of the tree when it was loaded; None: it must be loaded again."""
    elsewhere: str | None = None
    """The head as it is stored, where another window moved it and this one stays on its own branch."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """By answer: what was found in this run, with where the prompts part."""

    @property
    def id(self) -> str:
        return self.record.id

    def path(self) -> list[Node]:
        """The branch in use, system message first."""
        return self.tree.path(self.record.head)

    def message(self, id: str) -> Node:
        """The message `id`. Raises ChatError where another window has removed it."""
        if id not in self.tree:
            raise ChatError(ChatProblem.REPLACED)
        return self.tree[id]

    def turn_of(self, id: str) -> tuple[Node, Node | None]:
        """What `Tree.turn_of` says of it. Raises ChatError too."""
        return self.tree.turn_of(self.message(id).id)

    @property
    def instructions(self) -> str:
        """The system prompt, without the safety policy."""
        path = self.path()
        return instructions_of(path[0].text) if path else ""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that the model may call."""
        return tool_names(tools_of(self.path()))

    @property
    def context_used(self) -> int | None:
        """Tokens of the branch in use: as the server reported them after its last answer, else as they were known."""
        answer = self._last_answer
        if answer is None:
            return None
        used = answer.figures.context_used if answer.figures is not None else None
        return self.record.context_used if used is None else used

    @property
    def context_is_exact(self) -> bool:
        """Whether the server reported `context_used`; else it is an estimate."""
        answer = self._last_answer
        return answer is None or answer.figures is not None

    @property
    def _last_answer(self) -> Node | None:
        """The last answer of the branch in use that tells how long it is: one with figures, or of another branch."""
        return next(
            (
                one
                for one in reversed(self.path())
                if one.figures is not None or one.is_cut or (one.role is Role.ASSISTANT and one.state is State.DONE)
            ),
            None,
        )

    def figures(self) -> list[TurnFigures]:
        """The figures of the branch's answers, oldest first; answers that never reached a server are left out."""
        return [n.figures for n in self.path() if n.role is Role.ASSISTANT and n.figures is not None]

    def totals(self, speed: SpeedFit | None = None) -> Totals:
        """The sums over the branch; `speed`: of the server that answered it."""
        steps = sum(bool(node.message.calls) for node in self.path() if node.figures is not None)
        return totals(self.figures(), speed, steps)
