"""The token ids of prompts, as the server's own template and tokeniser make them.

A server that does not give them, or is slow to give them again and again, is not asked any more. It is never asked for
those of a prompt with images, whose tokens only the server knows.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn
from kvchat.cache import Tokens
from kvchat.cache.tracking import content_of
from kvchat.chat.cache.message_offsets import TurnSeparators
from kvchat.chat.events import EventBus, WarmthChanged
from kvchat.prompt.message import Message, Role
from kvchat.prompt.token_ids import KnownIds
from kvchat.prompt.tools import ToolCall, calls_in
from kvchat.prompt.wire import canonical

MARK = "\N{BALLOT BOX WITH CHECK}kv\N{BALLOT BOX WITH CHECK}"
"""Stands for the next question's text, to find where it begins in a rendered prompt."""
KEPT_PREFIXES, KEPT_TOKENS = 256, 4_000_000
KEPT_FRAMES = 8
MOST_SLOW = 3
_ANSWER, _RESULT = b'{"role":"assistant"', b'{"role":"tool"'
CLEAR = 32
"""Characters from which on an answer's text is long enough to be found in a prompt in its own place only."""

PrefixKey = tuple[tuple[bytes, ...], str, bytes, bool, KnownIds | None, str, bytes]

T = TypeVar("T", "Prefix", "AnsweredPrompt")

log = logging.getLogger(__name__)


class Prefix(Struct, frozen=True):
    """What every prompt begins with that goes on after some messages with a question."""

    tokens: Tokens
    history: int | None = None
    """How many of the tokens are the messages', up to the end of the last answer's text; None: not known."""
    is_retokenised: bool = False
    """Whether the last message, which calls tools, was sampled in other tokens."""


class AnsweredPrompt(Struct, frozen=True):
    """A prompt that was answered."""

    conversation: str
    tokens: Tokens
    """With the reply, as far as that is settled in the tokens that it was sampled in."""
    length: int
    """Of the prompt alone."""


class PromptTokens:
    """The prompts of one server and model. Those that were read are kept."""

    def __init__(self, access: CacheAccess, events: EventBus) -> None:
        self._access = access
        self._events = events
        self._prefixes: OrderedDict[PrefixKey, Prefix] = OrderedDict()
        self._answered: OrderedDict[PrefixKey, AnsweredPrompt] = OrderedDict()
        self._frames: dict[PrefixKey, tuple[str, str]] = {}
        """The text before and behind the next question's, of the prefixes that were read last."""
        self._read_as: dict[PrefixKey, str] = {}
        """The prompts that were answered last, as the server says that it read them."""
        self._between: dict[PrefixKey, tuple[str, str]] = {}
        """By the template's options and tools: what it last put between an answer and a question, and behind that."""
        self._kept = 0
        """Tokens in the prefixes and answered prompts."""
        self._reading: WeakValueDictionary[PrefixKey, asyncio.Lock] = WeakValueDictionary()
        """By prefix that is asked for now: who else wants it waits, and asks for nothing."""
        self._separators = TurnSeparators(access)
        self._works = True
        self._slow = 0

    @property
    def works(self) -> bool:
        """Whether the server lets itself be tracked."""
        return self._works

    def known_prefix(self, turn: ChatTurn) -> Tokens | None:
        """The token ids that every later prompt after `turn`'s messages begins with; None: the server was not asked
        for them yet."""
        found = self._prefixes.get(_key(turn))
        return found.tokens if found is not None else None

    def known_history(self, turn: ChatTurn) -> int | None:
        """Tokens of `turn`'s messages as they stand in every later prompt, if they were counted before."""
        if turn.known is not None and turn.known.messages == len(turn.wires):
            return len(turn.known.tokens)
        found = self._prefixes.get(_key(turn))
        return found.history if found is not None else None if turn.wires else 0

    async def prefix(self, turn: ChatTurn, begun: str = "") -> Tokens | None:
        """The token ids with which every prompt begins that goes on after `turn`'s messages, with a question that
        starts with `begun` or what follows a call; None where the server does not tell."""
        key = _key(turn, begun)
        lock = self._reading.setdefault(key, asyncio.Lock())
        async with lock:
            if (found := self._prefixes.get(key)) is not None:
                self._prefixes.move_to_end(key)
                return found.tokens
            return await self._read(turn, begun, key)

    async def _read(self, turn: ChatTurn, begun: str, key: PrefixKey) -> Tokens | None:
        """As of `prefix`, asked for."""
        if not self._works or turn.has_images:
            return None
        try:
            before, behind = ("", "") if begun else self._going_on(turn)
            if not before:
                following = _following(turn.wires, begun + MARK).wire()
                text = await self._access.prompt_text(replace(turn, wires=(*turn.wires, following)))
                before, found, behind = text.rpartition(MARK)
                if not found:
                    return None
                self._learn(turn, before, behind)
            whole = await self._access.tokens_of(before, turn.known)
            history = None if begun else await self._history(turn, before, whole)
        except BackendError as error:
            self.gave_up(error)
            return None
        tokens = whole.first(max(0, len(whole) - 1))  # the last one may merge with what is typed
        if not begun and turn.known is None:
            self._frames[key] = before, behind
            if len(self._frames) > KEPT_FRAMES:
                del self._frames[next(iter(self._frames))]
        self._keep(self._prefixes, key, Prefix(tokens, history))
        return tokens

    def was_read(self, turn: ChatTurn, text: str) -> None:
        """The server says that it read the prompt of `turn` as this text."""
        self._read_as[_key(turn)] = text
        if len(self._read_as) > KEPT_FRAMES:
            del self._read_as[next(iter(self._read_as))]

    def was_read_otherwise(self, turn: ChatTurn) -> None:
        """The server says that it read the prompt of `turn` as another text than was put together for it."""
        self._between.pop(_template_key(turn), None)
        self._prefixes.pop(_key(turn.extended), None)

    def _learn(self, turn: ChatTurn, before: str, behind: str) -> None:
        """See what the template has put between a plain answer, which `turn` ends with, and the question after it."""
        start = self._answered_as(turn)
        if start and before.startswith(start):
            self._between[_template_key(turn)] = before[len(start) :], behind
        elif start:
            self._between.pop(_template_key(turn), None)

    def _going_on(self, turn: ChatTurn) -> tuple[str, str]:
        """The text before and behind the next question's, as the template went on from the last plain answer; empty:
        it is to be asked. Should it do otherwise now, the server shows that with the next prompt."""
        start, (seam, behind) = self._answered_as(turn), self._between.get(_template_key(turn), ("", ""))
        return (start + seam, behind) if start and seam else ("", "")

    def _answered_as(self, turn: ChatTurn) -> str:
        """The text of a prompt that the server has shown, and of the plain answer to it that `turn` ends with."""
        said = content_of(turn.wires[-1]) if turn.wires else ""
        if not said or said != said.strip() or turn.wires[-1] != Message(Role.ASSISTANT, said).wire():
            return ""
        read = self._read_as.get(_key(turn.extended), "")
        return read and read + said

    async def _history(self, turn: ChatTurn, text: str, whole: Tokens) -> int | None:
        """How many tokens of the prompt that begins with `text`, whose ids are `whole`, the messages of `turn` have up
        to the end of the last answer's. Raises BackendError."""
        if turn.wires and calls_in(turn.wires[-1]):
            seam = (await self._separators.after_an_answer(turn)).tokens
            return max(whole.places_of(seam.first(1)), default=None) if seam else None
        found = await self.history_in(turn, text, whole)
        return found if found is not None else (await self._separators.after_an_answer(turn)).start(text, whole)

    async def history_in(self, turn: ChatTurn, text: str, whole: Tokens) -> int | None:
        """The same, where the last answer is found in the text itself; None: it is not. Raises BackendError."""
        if turn.known is not None or not turn.wires or not turn.wires[-1].startswith(_ANSWER):
            return None if turn.wires else 0
        said = content_of(turn.wires[-1]).strip()
        at = text.rfind(said) if len(said) >= CLEAR else -1
        tokens = await self._access.tokens_of(text[: at + len(said)]) if at >= 0 else Tokens()
        return len(tokens) if tokens and whole.starts_with(tokens) else None

    async def with_calls_as_they_came(self, turn: ChatTurn, prompt: str) -> Tokens | None:
        """The token ids of the prefix after `turn`, whose last message calls tools, had its template printed their
        arguments as they came; None where it does, or prints them as no JSON. `prompt`: what precedes them."""
        printed = text = self._frames.get(_key(turn), ("", ""))[0]
        at = len(prompt)
        for call in calls_in(turn.wires[-1]):
            for form in (call.arguments, *_forms(call)):
                if (found := text.find(form, at)) >= 0:
                    text = text[:found] + call.arguments + text[found + len(form) :]
                    at = found + len(call.arguments)
                    break
        if text == printed:
            return None
        try:
            return await self._access.tokens_of(text)
        except BackendError as error:
            self.gave_up(error)
            return None

    async def retokenised(self, settled: ChatTurn, prompt: str, length: int, said: str) -> Tokens:
        """The call that `settled` ends with was sampled in other tokens than the template prints: which of its tokens
        are the same all the same, most likely. These are those of the text `said` before it, and one more, which opens
        a call. `prompt`: what was answered, of `length` tokens."""
        key = _key(settled)
        if (found := self._prefixes.get(key)) is None:
            return Tokens()
        self._prefixes[key] = replace(found, is_retokenised=True)
        text, same = self._frames.get(key, ("", ""))[0], length
        if said and (at := text.find(said, len(prompt))) >= 0:
            try:
                same = found.tokens.common(await self._access.tokens_of(text[: at + len(said)]))
            except BackendError as error:
                self.gave_up(error)
        return found.tokens.after(length).first(max(0, same - length) + 1)

    def is_retokenised(self, turn: ChatTurn) -> bool:
        """Whether `turn` ends with a call that was sampled in other tokens than the template prints."""
        found = self._prefixes.get(_key(turn))
        return found is not None and found.is_retokenised

    async def came_behind(self, prompt: str, said: str) -> Tokens | None:
        """The token ids of a prompt and the text of the answer to it, as that came; None where the server does not
        tell."""
        try:
            return await self._access.tokens_of(prompt + said)
        except BackendError as error:
            self.gave_up(error)
            return None

    async def said_behind(self, settled: ChatTurn, prompt: str, said: str) -> Tokens:
        """The token ids of a prompt and the answer to it, without asking for more than that answer's: what comes next
        is not known. Raises BackendError."""
        tokens = await self._access.tokens_of(prompt + said)
        self._keep(self._prefixes, _key(settled), Prefix(tokens, len(tokens)))
        return tokens

    def assembled(self, turn: ChatTurn) -> str:
        """The text of the prompt of `turn`, whose last message is a question: that goes where another one stood when
        the messages before it were rendered; empty: they were not. A template may make something else of it."""
        if turn.continues or turn.known is not None:
            return ""
        before, behind = self._frames.get(_key(turn.extended), ("", ""))
        return before + content_of(turn.wires[-1]) + behind if behind else ""

    def _keep(self, kept: OrderedDict[PrefixKey, T], key: PrefixKey, new: T) -> None:
        """Add to what is kept of one kind; what was used longest ago goes where there is too much of it."""
        self._kept += len(new.tokens) - (len(kept.pop(key).tokens) if key in kept else 0)
        kept[key] = new
        while len(kept) > KEPT_PREFIXES or (self._kept > KEPT_TOKENS and kept):
            self._kept -= len(kept.popitem(last=False)[1].tokens)

    def answered(self, turn: ChatTurn, prompt: Tokens, settled: ChatTurn) -> None:
        """The prompt of `turn` was answered; `settled`: its messages with the reply."""
        whole, history = self.known_prefix(settled), self.known_history(settled)
        read = whole.first(history) if whole is not None and history is not None else prompt
        known = read if read.common(prompt) == len(prompt) else prompt
        self._keep(self._answered, _key(turn), AnsweredPrompt(turn.session_id, known, len(prompt)))

    def known_prompt(self, turn: ChatTurn) -> Tokens | None:
        """The token ids of the whole prompt of `turn`, if that was answered before."""
        found = self._answered.get(_key(turn))
        return found.tokens.first(found.length) if found is not None else None

    def shared(self, conversation: str, prompt: Tokens) -> int:
        """How many tokens of `prompt` one of the conversation's prompts or settled replies begins with, too."""
        own = (found.tokens for found in self._answered.values() if found.conversation == conversation)
        return max((tokens.common(prompt) for tokens in own), default=0)

    async def prompt(self, turn: ChatTurn) -> Tokens | None:
        """The token ids of the whole prompt of `turn`; None where the server does not tell, or for images."""
        if not self._works or turn.has_images:
            return None
        try:
            return await self._access.tokens_of(await self._access.prompt_text(turn), turn.known)
        except BackendError as error:
            self.gave_up(error)
            return None

    def gave_up(self, error: BackendError) -> None:
        """The server refused: where it cannot be asked such things at all, it is not asked any more."""
        log.info("the server's cache cannot be followed: %s", error.sentence)
        if error.status in (401, 403, 404, 405, 410, 501):
            self._give_up()

    def was_slow(self) -> None:
        """The server kept an answer waiting for its prompt's tokens."""
        self._slow += 1
        if self._slow >= MOST_SLOW:
            self._give_up()

    def _give_up(self) -> None:
        if self._works:
            self._works = False
            self._events.tell(WarmthChanged())


def _forms(call: ToolCall) -> Iterator[str]:
    """The JSON in which templates print the arguments of a call."""
    for separators in ((", ", ": "), (",", ":")):
        yield json.dumps(call.given(), ensure_ascii=False, separators=separators)


def _following(wires: Sequence[bytes], text: str) -> Message:
    """What comes after some messages: the result of the first call that has none, the answer to results, else a
    question."""
    results = sum(1 for _ in takewhile(lambda wire: wire.startswith(_RESULT), reversed(wires)))
    calls = calls_in(wires[-1 - results]) if results < len(wires) else ()
    if results < len(calls):
        return Message(Role.TOOL, text, calls=(calls[results],))
    return Message(Role.ASSISTANT if results else Role.USER, text)


def _template_key(turn: ChatTurn) -> PrefixKey:
    """What a template makes of messages depends on."""
    return _key(replace(turn, wires=()))


def _key(turn: ChatTurn, begun: str = "") -> PrefixKey:
    """What a prefix depends on. The wires are the nodes' own bytes, whose hashes are kept, so this costs little."""
    options = canonical(dict(turn.template_options)) if turn.template_options else b""
    return turn.wires, turn.model, options, turn.system_in_user, turn.known, begun, turn.tools
