"""One answer: from the committed question to the settled reply.

What has been received is never lost. Text is checkpointed while it streams, and whatever ends the
stream (the server, the user, a fault) the answer is settled with what came and a state that says how.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from kvchat.backends.dialect import (
    BackendError,
    CallWritten,
    Emit,
    Ended,
    Progressed,
    Prompted,
    ReasoningDelta,
    Reported,
    Sampled,
    StreamEvent,
    TextDelta,
    Trouble,
    Waiting,
    WasThought,
    failure,
)
from kvchat.cache import Tokens
from kvchat.chat.conversations.live import LiveAnswer
from kvchat.figures.accounting import PromptProgress, TurnFigures, new_tokens
from kvchat.prompt.message import Node, NoteKind, Role, State, settled, tools_of
from kvchat.prompt.token_ids import AnswerIds, answered, known_ids
from kvchat.prompt.tools import MOST_CALLS, ToolCall, readable, with_ids
from kvchat.text.faults import Fault
from kvchat.values import said

CHECKPOINT_SECONDS = 0.2
SCREEN_SECONDS = 0.03

UNSENT = frozenset({"lane", "connecting", "cancelled", "gone"})
"""Phases of `Waiting` in which nothing has been sent yet."""
CUT_OFF = frozenset({State.CANCELLED, State.ERROR, State.INTERRUPTED})


def previous_figures(path: Sequence[Node]) -> TurnFigures | None:
    """The figures of the last turn on `path` that reached a server; None on a branch's first turn.

    A turn of unknown figures gives empty ones: the tokens after it cannot be separated from its own.
    """
    for node in reversed(path):
        if node.role is Role.ASSISTANT and (node.figures is not None or not node.is_wordless):
            return node.figures or TurnFigures()
    return None


class AnswerRun:
    """The work of one answer: `run` is one task from start to end; `stop` ends it early, as often as one likes.

    `answer` holds what it begins with: nothing, or what came of a cut answer. `chat` sends the request and reports to
    the emit function it is given. `checkpoint` stores text and reasoning that came since the last call; None: nothing
    is stored. `changed` tells the screen, at most every 30 ms. `may_call`: calls of tools are a part of the answer.
    """

    def __init__(
        self,
        answer: Node,
        path: Sequence[Node],
        live: LiveAnswer,
        *,
        chat: Callable[[Emit], Awaitable[Ended]],
        checkpoint: Callable[[str, str], Awaitable[None]] | None = None,
        changed: Callable[[], None] = lambda: None,
        may_call: bool = False,
    ) -> None:
        self.answer = answer
        self._path = path
        """The branch as it is sent: up to and with the question, or the cut answer that this one goes on with."""
        self.live = live
        self._chat = chat
        self._checkpoint = checkpoint
        self._changed = changed
        self._may_call = may_call
        self.error: BackendError | None = None
        """Why it failed, once it has ended."""
        self._request: asyncio.Task[Ended] | None = None
        self._arrived = asyncio.Event()
        self._saved = len(answer.text), len(answer.message.reasoning)
        """How much of text and reasoning is stored."""
        self._shown_at = 0.0
        self._show_later: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """End the answer now and keep what came."""
        self.live.stopping = True
        if self._request is not None:
            self._request.cancel()

    def warmed(self, progress: PromptProgress) -> None:
        """The warm-up of this very question, which it waits for, is so far."""
        self.live.ahead, self.live.waiting = progress, None
        self._show()

    async def run(self) -> Node:
        """Carry the request out and give back the settled answer."""
        saving = asyncio.create_task(self._save_as_it_comes())
        ended = await self._carried_out()
        self.live.ended_at = time.monotonic()
        self.error = ended.error
        saving.cancel()
        await asyncio.wait({saving})
        if self._show_later is not None:
            self._show_later.cancel()
        answer = self._settled(ended)
        self.live.ended = answer.state
        return answer

    async def _carried_out(self) -> Ended:
        if self.live.stopping:
            return Ended(State.CANCELLED)
        self._request = asyncio.ensure_future(self._chat(self._on_event))
        await asyncio.wait({self._request})
        if self._request.cancelled():
            return Ended(State.CANCELLED)
        error = self._request.exception()
        if isinstance(error, BackendError):
            return Ended(State.ERROR, error=error)
        if error is not None:
            return Ended(
                State.ERROR, error=failure(Trouble.PROTOCOL, Fault.UNFORESEEN, error=f"{type(error).__name__}: {error}")
            )
        return self._request.result()

    def _on_event(self, event: StreamEvent) -> None:
        live = self.live
        match event:
            case TextDelta(text):
                self._first_token()
                live.text += text
                self._arrived.set()
            case ReasoningDelta(text, field):
                self._first_token()
                live.reasoning += text
                live.reasoning_field = field
                self._arrived.set()
            case WasThought(text, field):
                live.text, live.reasoning, live.reasoning_field = "", text, field
                self._saved = 0, 0
                self._arrived.set()
            case CallWritten(call):
                self._first_token()
                live.call = call
            case Prompted():
                live.prompted, live.sampled = event, []
            case Sampled(ids):
                live.sampled += ids
            case Progressed(progress):
                live.progress, live.progress_at = progress, time.monotonic()
                live.waiting = None
            case Reported():
                live.reported = event
            case Waiting():
                live.waiting = event
        self._show()

    def _first_token(self) -> None:
        self.live.waiting = None
        if self.live.first_token_at is None:
            self.live.first_token_at = time.monotonic()

    def _show(self) -> None:
        """Call `changed` now, or a little later if it was called just now."""
        if self._show_later is not None:
            return
        wait = self._shown_at + SCREEN_SECONDS - time.monotonic()
        if wait <= 0:
            self._show_now()
        else:
            self._show_later = asyncio.get_running_loop().call_later(wait, self._show_now)

    def _show_now(self) -> None:
        self._show_later = None
        self._shown_at = time.monotonic()
        self._changed()

    async def _save_as_it_comes(self) -> None:
        while self._checkpoint is not None:
            await self._arrived.wait()
            self._arrived.clear()
            text, reasoning = self._saved
            self._saved = len(self.live.text), len(self.live.reasoning)
            await self._checkpoint(self.live.text[text:], self.live.reasoning[reasoning:])
            await asyncio.sleep(CHECKPOINT_SECONDS)

    def _settled(self, ended: Ended) -> Node:
        live, begun = self.live, self.answer.message
        state, note = ended.state, ended.note
        if state is State.CANCELLED:
            unsent = live.waiting is not None and live.waiting.phase in UNSENT
            early = NoteKind.NOTHING_SENT if unsent else NoteKind.STOPPED_EARLY
            note = None if (live.text, live.reasoning) != (begun.text, begun.reasoning) else said(early)
        text, calls = live.text, ended.calls if self._may_call else ()
        if state is State.DONE and note is None and self._may_call and not live.continued and {"{", "<"} & {*text}:
            from kvchat.chat.tools.written import names_written_call, written_calls

            tools = tools_of(self._path)
            if calls := written_calls(text, tools):
                text = ""
            elif names_written_call(text, tools):
                note = said(NoteKind.CALL_AS_TEXT)
        if calls and (broken := _broken(calls[:MOST_CALLS], state)):
            text = "\n\n".join(filter(None, (text.rstrip(), readable(calls))))
            state = State.DONE if state is State.EMPTY else state
            note, calls = said(NoteKind.BROKEN_CALL, call=broken[0], why=broken[1]), ()
        elif calls:
            is_whole = len(calls) <= MOST_CALLS
            state = State.DONE
            note = None if is_whole else said(NoteKind.CALLS_LEFT_OUT, made=len(calls), most=MOST_CALLS)
            calls = with_ids(calls[:MOST_CALLS], (call.id for one in self._path for call in one.message.calls))
        question = self._path[-2] if live.continued else self._path[-1]
        return settled(
            self.answer,
            question,
            text,
            live.reasoning,
            state,
            reasoning_field=live.reasoning_field,
            calls=calls,
            model=ended.model,
            figures=self._figures(state),
            note=note,
            ids=self._ids(),
        )

    def _ids(self) -> AnswerIds | None:
        """The answer's token ids; None where its prompt did not go as such, or nothing was answered."""
        prompted = self.live.prompted
        if prompted is None or self.live.first_token_at is None:
            return None
        known = prompted.known
        if self.live.continued:  # it takes the place of the cut answer, whose ids are in the prompt
            known = known_ids([node.ids for node in self._path[:-1]], known.scope)
        return answered(known, prompted.tokens, Tokens(self.live.sampled))

    def _figures(self, state: State) -> TurnFigures | None:
        """The turn's figures; None when the server never reported any and no token came."""
        reported, progress = self.live.reported, self.live.progress
        prompt, cached = reported.prompt_tokens, reported.cached_tokens
        if prompt is None and progress is not None and not progress.only_new:
            prompt, cached = progress.total, progress.cached
        if prompt is None and self.live.first_token_at is None:
            return None
        previous = previous_figures(self._path)
        begun = None
        if self.live.continued and prompt is not None and previous is not None and previous.asked_tokens is not None:
            begun = max(0, prompt - previous.asked_tokens)
        return TurnFigures(
            prompt_tokens=prompt,
            cached_tokens=cached,
            predicted_tokens=reported.predicted_tokens,
            new_tokens=new_tokens(prompt, self.live.read.tokens),
            ttft_ms=self.live.ttft_ms,
            prompt_ms=reported.prompt_ms,
            predicted_ms=reported.predicted_ms,
            context_size=self.live.context_size,
            estimated=reported.estimated or None,
            stopped=state in CUT_OFF or None,
            begun_tokens=begun,
        )


def _broken(calls: Sequence[ToolCall], state: State) -> tuple[str, str] | None:
    """Which of these calls cannot be carried out, nor sent back, for a server fails over it each time: its name, and
    why. None: all can."""
    if state not in (State.DONE, State.EMPTY):
        return calls[-1].name, "it was cut off"
    return next(((call.name, call.fault) for call in calls if call.fault), None)


async def run_to_end(answer_run: AnswerRun) -> Node:
    """The answer. Whoever is cancelled while waiting for it has it closed first."""
    work = asyncio.create_task(answer_run.run())
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        answer_run.stop()
        await asyncio.wait({work})
        raise
    return work.result()
