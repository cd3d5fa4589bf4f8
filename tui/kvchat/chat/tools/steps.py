"""The steps of a turn that calls tools: each call is asked for, carried out and stored, and the model goes on.

A result is cut once, when it is stored, fenced as any foreign text is, and never changed again. A call is a message
that streams while it is carried out, so that no other kvchat goes on from there, and what a crash leaves is settled
as interrupted: no call is carried out twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from kvchat.backends.dialect import Waiting
from kvchat.chat.background.document_service import DocumentService
from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
from kvchat.chat.core import Core
from kvchat.chat.events import AnswerProgressed, ConversationChanged
from kvchat.chat.question.builder import SpecialTokens
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.chat.question.retrieval import UNKNOWN_WINDOW
from kvchat.chat.tools.consent import ToolConsent
from kvchat.chat.tools.fitting import fitted, known_name
from kvchat.chat.tools.tool import CallOutcome, Tool, ToolError
from kvchat.chat.turns.running_turn import RunningTurn
from kvchat.prompt.citations import numbered
from kvchat.prompt.context import RESULT, ContextBlock, guarded, rendered
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Node, NoteKind, Role, State, node, tools_of
from kvchat.prompt.tools import CALLS_LEFT_OUT, INTERRUPTED, NOT_CARRIED_OUT, ToolCall, tool_names
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line
from kvchat.store import StoreError
from kvchat.values import said

RESULT_SHARE = 4
"""The results of a turn take at most this part of the window."""
LEAST_TOKENS = 100
"""A result of which there is less room than for this is left out."""
LEFT_OUT = "[{:,} characters are left out here]"
NO_ROOM = "[{:,} characters are left out here: no room left]"
LEFT_OUT_TOKENS = 16
"""What these have, about."""
CHANGED = "What the user was asked about has changed meanwhile. Call it again."
REFUSED = "The user did not allow this call."
STANDS = "All of this stands in this conversation already; see above."

NOT_STORED = "The call was not carried out: nothing is, that cannot be noted down first."

log = logging.getLogger(__name__)


class ToolSteps:
    """Carries out calls, for every conversation."""

    def __init__(
        self,
        core: Core,
        documents: DocumentService,
        special_tokens: SpecialTokens,
        sizes: PromptSizes,
        consent: ToolConsent,
        folder: Callable[[], Path],
    ) -> None:
        """`folder`: gives the one whose files are read."""
        self._core = core
        self._documents = documents
        self._special_tokens = special_tokens
        self._sizes = sizes
        self._consent = consent
        self._folder = folder
        self._tools: dict[str, Tool] = {}

    async def carry_out(self, turn: RunningTurn, answer: Node) -> Node:
        """Carry out the calls of an answer, one after the other, until the turn is stopped. The last result; the
        answer itself where there is none. Raises ChatError and StoreError."""
        last = answer
        calls = answer.message.calls
        for at, call in enumerate(calls):
            if turn.is_stopped:
                break
            to_come = len(calls) - at
            behind = CALLS_LEFT_OUT if answer.note is not None and to_come == 1 else ""
            last = await self._run_call(turn, last, call, to_come, behind)
        return last

    async def _run_call(self, turn: RunningTurn, parent: Node, call: ToolCall, to_come: int, behind: str) -> Node:
        """`to_come`: how many calls of the answer have no result yet. `behind`: what follows the result."""
        conversation = turn.conversation
        begun = node(
            parent,
            Message(Role.TOOL, "", calls=(call,)),
            self._core.timestamp(),
            state=State.STREAMING,
            note=said(NoteKind.CALL_WAITS),
        )

        def goes_on(row: Conversation) -> Conversation:
            return replace(row, head=begun.id) if row.head == parent.id else row

        await self._core.conversations.shared.add(conversation, [begun], goes_on, whole=False)
        conversation.live = LiveAnswer(begun.id, time.monotonic(), waiting=Waiting("tool", 0.0))
        self._core.events.tell(ConversationChanged(conversation.id))
        path = conversation.tree.path(parent.id)
        outcome = await turn.call(self._outcome(conversation, path, begun, call))
        outcome = outcome or CallOutcome(NOT_CARRIED_OUT, state=State.CANCELLED)
        fitting, no_room = self._fitting(turn, outcome.blocks, to_come)
        blocks = numbered(await self._special_tokens.plain(conversation, fitting), path)
        # A sentence of kvchat's own may quote: a path that the model invented, a header of a page.
        quoting = [ContextBlock(RESULT, call.name, guarded(outcome.text or no_room))]
        [told] = await self._special_tokens.plain(conversation, quoting)
        text = "\n".join(filter(None, [told.text or ("" if blocks else STANDS), behind]))
        turn.result_tokens += self._sizes.estimate(conversation).of([rendered(blocks, text).encode()])
        result = node(
            parent,
            Message(Role.TOOL, whole_characters(text), tuple(blocks), calls=(call,)),
            begun.created,
            id=begun.id,
            state=outcome.state,
        )
        await self._core.conversations.shared.settle(conversation, result, lambda row: row)
        self._core.events.tell(ConversationChanged(conversation.id))
        return result

    async def _begin(self, conversation: OpenConversation, call: Node) -> None:
        """Store that a call is carried out from now on, before it is. Raises ToolError where the disk takes no note."""
        try:
            await self._core.writer.now(lambda: self._core.store.begin_call(call.id))
        except StoreError as error:
            raise ToolError(f"{NOT_STORED} {error}") from None
        conversation.tree.put(replace(call, note=None))

    async def _outcome(
        self, conversation: OpenConversation, path: Sequence[Node], streaming: Node, call: ToolCall
    ) -> CallOutcome:
        from kvchat.prompt.offered_tools import DEFINITIONS

        tools = tools_of(path)
        offered = tool_names(tools)
        call = replace(call, name=known_name(call.name, offered))
        name = one_line(call.name, 40)
        if call.name not in offered:
            return CallOutcome(f"There is no tool {name}. The tools are: {', '.join(offered)}.")
        tool, own = self._tool(call.name), DEFINITIONS.get(call.name)
        if tool is None:
            return CallOutcome(f"The tool {name} is not available now.")
        begun, seconds = False, self._core.settings.tool_seconds
        try:
            given = fitted(call.name, tools, call.given() or {}, strict=own is not None)
            permission = tool.permission(given)
            self._waits(conversation, "consent")
            if not await self._consent.agreed(conversation.id, permission, call, given):
                return CallOutcome(REFUSED)
            if tool.permission(given) != permission:
                return CallOutcome(CHANGED)
            await self._begin(conversation, streaming)
            begun = True
            self._waits(conversation, "tool")
            async with asyncio.timeout(seconds if own is not None else None):  # servers have a limit of their own
                return CallOutcome(blocks=tuple(await tool.run(conversation, given)))
        except ToolError as error:
            return CallOutcome(str(error))
        except TimeoutError:
            return CallOutcome(f"{name} took longer than {seconds} seconds and was ended.")
        except asyncio.CancelledError:
            return CallOutcome(INTERRUPTED if begun else NOT_CARRIED_OUT, state=State.CANCELLED)
        except Exception as error:
            log.exception("a tool failed")
            return CallOutcome(f"{name} failed: {one_line(str(error), 200) or type(error).__name__}.")

    def _waits(self, conversation: OpenConversation, phase: str) -> None:
        """What the call that is carried out waits for."""
        if (live := conversation.live) is not None:
            live.sent_at, live.waiting = time.monotonic(), Waiting(phase, 0.0)
            self._core.events.tell(AnswerProgressed(conversation.id, live.node))

    def _tool(self, name: str) -> Tool | None:
        """What carries out the calls of a tool, kvchat's own built when it is first called; None: it is gone."""
        if name not in self._tools:
            if name == "read_file":
                from kvchat.chat.tools.files import ReadFile

                self._tools[name] = ReadFile(self._folder())
            elif name == "search_documents":
                from kvchat.chat.tools.documents import SearchDocuments

                self._tools[name] = SearchDocuments(self._documents)
            elif name == "run_python":
                from kvchat.chat.tools.python import RunPython

                self._tools[name] = RunPython()
            elif name == "fetch_url":
                from kvchat.chat.tools.web import FetchUrl

                self._tools[name] = FetchUrl()
            elif name == "web_search":
                from kvchat.chat.tools.web import WebSearch

                self._tools[name] = WebSearch(lambda: self._core.settings.web)
            else:
                return self._core.mcp.tool(name)  # the file may have changed
        return self._tools[name]

    def _fitting(
        self, turn: RunningTurn, blocks: Sequence[ContextBlock], to_come: int
    ) -> tuple[list[ContextBlock], str]:
        """What a call gave, cut to its part of what the turn's results may still take of the window, and what is said
        of blocks that are left out. The calls `to_come`, this one among them, have equal parts of that."""
        estimate = self._sizes.estimate(turn.conversation)
        window = self._core.servers.window(turn.conversation.id) or UNKNOWN_WINDOW
        left = window // RESULT_SHARE - turn.result_tokens
        room = max(LEAST_TOKENS, left // to_come)
        if left - LEFT_OUT_TOKENS * (to_come - 1) < LEAST_TOKENS:
            room = 0

        def tokens(*some: ContextBlock) -> int:
            return estimate.of([rendered(some, "").encode()])

        found = [replace(block, text=guarded(block.text)) for block in blocks]
        if tokens(*found) <= room or estimate.of([block.text.encode() for block in found]) <= LEFT_OUT_TOKENS:
            return found, ""
        kept, beyond = found[: room // LEAST_TOKENS], found[room // LEAST_TOKENS :]
        for at, block in enumerate(kept):
            part, whole = room // (len(kept) - at), tokens(block)
            if whole > part:
                frame = tokens(replace(block, text=""))
                most = len(block.text) * max(0, part - frame - LEFT_OUT_TOKENS) // max(1, whole - frame)
                kept[at] = replace(block, text=cut(block.text, most))
            room -= tokens(kept[at])
        return kept, NO_ROOM.format(sum(len(block.text) for block in beyond)) if beyond else ""


def cut(text: str, most: int) -> str:
    """The beginning and the end of a text of more than `most` characters, with what is left out said in between."""
    if len(text) <= most:
        return text
    head, tail = most * 3 // 4, most - most * 3 // 4
    left = len(text) - head - tail
    return f"{text[:head]}\n{LEFT_OUT.format(left)}\n{text[-tail:] if tail else ''}"
