"""How llama.cpp's cache is followed: the prompt a template makes, its token ids, what the slots hold, reading ahead.

The rule: these calls go beside the chat, never before it, and a server that does not know one of them is as good as
before: whoever calls is told by a BackendError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from kvchat.backends import errors
from kvchat.backends.answer import progress_of
from kvchat.backends.base import HttpBackend
from kvchat.backends.decoder import Decoder, StreamDone
from kvchat.backends.dialect import MOST_TOKENS, ChatTurn, ReadAhead, Reported, ServerState, SlotCount
from kvchat.backends.payload import (
    PayloadError,
    as_object,
    count_at,
    figures_at,
    is_object,
    list_at,
    parsed,
    text_at,
)
from kvchat.backends.pieces import PieceTokens
from kvchat.backends.sse import MIB, TooLargeError
from kvchat.backends.transport import Exchange
from kvchat.cache.accounting import PromptProgress
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import Message, Role
from kvchat.prompt.request import chat_body
from kvchat.prompt.wire import canonical

CALL_S = 20.0
TEXT_LIMIT = 32 * MIB
MANY = 8192
LARGE = 64 * 1024
"""Bytes of an answer that is read in a thread, so that the screen does not wait."""
JSON = {"content-type": "application/json"}
QUESTIONS = ("Who?", "And now?")
"""Two that differ from the first letter on: where they do, the prompt to read ends."""
T = TypeVar("T")


class CacheCalls(HttpBackend):
    """The calls of `CacheAccess` on a llama.cpp server."""

    _pieces: PieceTokens | None = None
    _specials: Sequence[str] = ()
    """The texts of the model's special tokens that are known."""

    async def prompt_text(self, turn: ChatTurn) -> str:
        head: dict[str, object] = {"model": turn.model} if turn.model else {}
        if turn.template_options:
            head["chat_template_kwargs"] = dict(turn.template_options)
        found = await self.post_json("/apply-template", chat_body(head, self.wires(turn), {}))
        return self._checked(lambda: text_at(found, "prompt") or "")

    def call_fields(self) -> dict[str, object]:
        """Fields that a call which is not a chat needs, so that it reaches the model in use."""
        return {}

    async def tokens_of(self, text: str) -> Tokens:
        if self._pieces is None:
            self._pieces = PieceTokens(self._tokenize, self._specials)
        return await self._pieces.tokens(text)

    async def _tokenize(self, text: str, is_start: bool) -> list[int]:
        values = await self._tokenized({"content": text, "add_special": is_start, "parse_special": True})
        return await self._read_from(values, _ids)

    async def ids_of(self, text: str, *, specials: bool) -> list[int]:
        """As of `SpecialTokens`."""
        values = await self._tokenized({"content": text, "add_special": False, "parse_special": specials})
        return await self._read_from(values, _ids)

    async def pieces_of(self, text: str) -> list[tuple[int, str]]:
        """As of `SpecialTokens`."""
        values = await self._tokenized({"content": text, "add_special": False, "parse_special": True,
                                        "with_pieces": True})
        return await self._read_from(values, _pieces)

    async def _tokenized(self, fields: Mapping[str, object]) -> Sequence[object]:
        found = await self.post_json("/tokenize", canonical(fields))
        return self._checked(lambda: list_at(found, "tokens"))

    async def _read_from(self, values: Sequence[object], of: Callable[[Sequence[object]], T]) -> T:
        """What is made of a server's tokens; of many in a thread. Raises BackendError."""
        try:
            return await asyncio.to_thread(of, values) if len(values) > MANY else of(values)
        except PayloadError as error:
            raise errors.protocol(self.url, str(error)) from None

    async def server_state(self) -> ServerState:
        _, found = await self.get_json("/props")

        def read() -> ServerState:
            props = as_object(found, "properties")
            return ServerState(
                text_at(props, "model_alias") or text_at(props, "model_path") or "", text_at(props, "build_info") or "",
                text_at(props, "media_marker") or "", props.get("is_sleeping") is True)

        return self._checked(read)

    async def slot_counts(self) -> list[SlotCount]:
        _, found = await self.get_json("/slots")
        if not isinstance(found, list):
            raise errors.protocol(self.url, "slots that are not a list")
        counts = [SlotCount(count_at(slot, "n_prompt_tokens") or 0, count_at(slot, "id_task"),
                            slot.get("is_processing") is True) for slot in found if is_object(slot)]
        if any(count.tokens > MOST_TOKENS for count in counts):
            raise errors.protocol(self.url, "a slot with more tokens than any window has")
        return counts

    async def read_ahead(self, prompt: Tokens, progressed: Callable[[PromptProgress], None],
                         slot: int | None = None, session: str = "") -> ReadAhead:
        """As of `CacheAccess`. `session`: whose prompt it is, for a router."""
        headers = JSON | (self.session_headers(session) if session else {})
        fields: dict[str, object] = {"prompt": list(prompt), "n_predict": 0, "cache_prompt": True, "stream": True,
                                     "return_progress": True, "temperature": 0, **self.call_fields()}
        if slot is not None:
            fields["id_slot"] = slot
        last: PromptProgress | None = None
        final: Mapping[str, object] = {}
        async with Exchange(self._endpoint, "POST", "/completion", headers=headers,
                            body=canonical(fields)) as exchange:
            head = await exchange.head()
            if head.status != 200:
                raise self._refusal(head, await exchange.start_of_body())
            decoder = Decoder(head.content_type)
            try:
                while (chunk := await exchange.chunk()) is not None:
                    for item in decoder.feed(chunk):
                        if isinstance(item, StreamDone):
                            continue
                        part = as_object(item.value, "a part of an answer")
                        if (error := errors.error_in(part)) is not None:
                            raise errors.of_stream(self.url, *error)
                        if (progress := progress_of(figures_at(part, "prompt_progress"))) is not None:
                            last = progress
                            progressed(progress)
                        if part.get("stop") is True:
                            final = part
            except (PayloadError, TooLargeError) as error:
                raise errors.protocol(self.url, str(error)) from None
        cached = count_at(figures_at(final, "timings"), "cache_n")
        if cached is None and last is not None:
            cached = last.cached
        if cached is not None and cached > len(prompt):
            cached = None
        return ReadAhead(len(prompt), cached, count_at(final, "id_slot"))

    async def read_messages(self, turn: ChatTurn) -> Reported:
        """As of `WarmUp`, for a server that cannot be followed: what every prompt begins with that goes on with a
        question is read, and nothing is answered."""
        asked = [await self.prompt_text(replace(turn, wires=(*turn.wires, Message(Role.USER, question).wire())))
                 for question in QUESTIONS]
        one, other = [await self.tokens_of(text) for text in asked]
        prefix = one.first(max(0, one.common(other) - 1))  # the last one may merge with what is typed
        found = await self.read_ahead(prefix, lambda _: None, session=turn.session_id)
        return Reported(found.prompt_tokens, found.cached_tokens)

    async def post_json(self, path: str, body: bytes) -> Mapping[str, object]:
        """The JSON object that a quick POST answers with. Raises BackendError."""
        head, answer = await self.ask("POST", path, CALL_S, headers=JSON, body=body, limit=TEXT_LIMIT)
        if head.status != 200:
            raise self._refusal(head, answer)
        read = partial(_object_in, answer)
        try:
            return await asyncio.to_thread(read) if len(answer) > LARGE else read()
        except PayloadError as error:
            raise errors.protocol(self.url, str(error)) from None

    def _checked(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except PayloadError as error:
            raise errors.protocol(self.url, str(error)) from None


def _object_in(answer: bytes) -> Mapping[str, object]:
    return as_object(parsed(answer.decode("utf-8", "replace")), "an answer")


def specials_of(props: Mapping[str, object]) -> tuple[str, ...]:
    """The texts of the special tokens that `/props` names."""
    try:
        found = (text_at(props, "bos_token"), text_at(props, "eos_token"))
    except PayloadError:
        return ()
    return tuple(dict.fromkeys(text for text in found if text))


def _ids(values: Sequence[object]) -> list[int]:
    ids = [value for value in values if isinstance(value, int) and 0 <= value < 2**31 and value is not True]
    if len(ids) != len(values):
        raise PayloadError("tokens that are not numbers")
    return ids


def _pieces(values: Sequence[object]) -> list[tuple[int, str]]:
    """Tokens with their texts; the text of one that is only a part of a character is left empty."""
    found = [as_object(value, "a token") for value in values]
    texts = (token.get("piece") for token in found)
    return list(zip(_ids([token.get("id") for token in found]),
                    (text if isinstance(text, str) else "" for text in texts), strict=True))
