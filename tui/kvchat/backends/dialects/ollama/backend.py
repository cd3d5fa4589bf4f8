"""Ollama by its native interface: it alone takes a window and a time to stay loaded, and reports its counts.

Every request to a model carries the same `num_ctx`, `truncate: false` and `shift: false`. Another window
loads the model again, and truncation makes the server read everything again at every turn, silently.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.base import GET_S, LOCAL_EXTRAS, NEVER_SENT, HttpBackend, Images, no_images
from kvchat.backends.dialect import (
    PLAIN,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    Reported,
    ServerInfo,
    ServerOptions,
    Trouble,
    failure,
)
from kvchat.backends.dialects.ollama.answer import OllamaAnswer, OllamaMemory, OllamaRequest, roomier, unwrapped
from kvchat.backends.dialects.ollama.messages import (
    fields_in,
    keep_alive_of,
    messages,
    options_in,
    think_of,
    unloads,
)
from kvchat.backends.dialects.ollama.models import (
    NO_FACTS,
    USUAL_CONTEXT,
    Facts,
    OllamaModel,
    chosen_among,
    entries_in,
    facts_in,
    full_name,
    running_in,
    window,
)
from kvchat.backends.http.endpoint import Endpoint
from kvchat.backends.http.payload import (
    Models,
    PayloadError,
    as_object,
    parsed,
    parsed_or_none,
    text_at,
)
from kvchat.backends.http.transport import Clock, ResponseHead
from kvchat.backends.kinds import KINDS, Figures
from kvchat.prompt.request import chat_body
from kvchat.prompt.wire import canonical, whole_characters
from kvchat.text.faults import Fault

REPORTS_CACHED_SINCE = (0, 33, 3)
_COUNTED_PART = ((0, 30, 0), (0, 30, 3))
"""From, to: versions whose prompt count leaves out what came from the cache, so that it tells nothing."""

_NO_SUCH_MODEL = re.compile(r"model ['\"](?P<name>[^'\"]{1,200})['\"] not found")
_NO_THINKING = re.compile(r"(?:^|[\"\s])(?P<name>[^\"\s]{1,200})\"? does not support thinking")
_OVERFLOW = re.compile(r"context (?:length|size)")


class OllamaBackend(HttpBackend):
    kind = KINDS["ollama"]
    chat_path = "/api/chat"

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        embedded: bool = False,
        clock: Clock | None = None,
        options: ServerOptions = PLAIN,
        images: Images = no_images,
    ) -> None:
        super().__init__(endpoint, embedded=embedded, clock=clock, options=options, images=images)
        self._memory = OllamaMemory()
        self._entries: dict[str, OllamaModel] = {}
        self._running: Mapping[str, int | None] | None = None
        self._facts: dict[str, Facts] = {}
        self._windows: dict[str, int] = {}
        """The window of each model, by its full name: once chosen, it stays."""
        self._thoughtless: set[str] = set()
        """Models that refused to think."""

    async def describe(self) -> ServerInfo:
        _, found = await self.get_json(self.kind.health_path)
        build = whole_characters(text_at(as_object(found, "a version"), "version") or "")
        _, listing = await self.get_json("/api/tags")
        self._running = await self._loaded()
        entries = entries_in(listing, self._running)
        self._entries = {full_name(entry.model.id): entry for entry in entries}
        for name in self._running or ():
            self._memory.use_of(name).is_loaded = True
        version = _version(build)
        self._memory.counts_whole_prompt = not _COUNTED_PART[0] <= version <= _COUNTED_PART[1]
        chosen = Models(chosen_among(entries)).chosen
        name = chosen.id if chosen else ""
        if name:
            self._facts[full_name(name)] = await self._shown(name)
        return replace(
            self._info,
            model=name,
            build=build,
            listing=tuple(
                replace(entry.model, context_size=self._window(entry.model.id)) if entry.model.chats else entry.model
                for entry in entries
            ),
            context_size=self._window(name) if name else None,
            figures=Figures.AFTER
            if version >= REPORTS_CACHED_SINCE or self._memory.reports_cached
            else Figures.ESTIMATED,
            unloads=unloads(self._options.keep_alive),
            unknown=("slots",) if self._memory.counts_whole_prompt else ("slots", "prompt tokens"),
            sees=self._facts.get(full_name(name), NO_FACTS).sees,
            takes_tools=self._facts.get(full_name(name), NO_FACTS).calls,
            template=self._facts.get(full_name(name), NO_FACTS).template,
        )

    async def _loaded(self) -> Mapping[str, int | None] | None:
        """The loaded models; None where the server does not say."""
        try:
            _, found = await self.get_json("/api/ps")
            return running_in(found)
        except (BackendError, PayloadError):
            return None

    async def _shown(self, model: str) -> Facts:
        """What the server says of a model; nothing where it does not."""
        try:
            head, body = await self.ask(
                "POST",
                "/api/show",
                GET_S,
                headers={"content-type": "application/json"},
                body=canonical({"model": model}),
            )
            return facts_in(parsed(body.decode("utf-8", "replace"))) if head.status == 200 else NO_FACTS
        except (BackendError, PayloadError):
            return NO_FACTS

    def _window(self, model: str) -> int:
        """The `num_ctx` of every request to a model, in tokens."""
        name = full_name(model)
        if name not in self._windows:
            facts, entry = self._facts.get(name, NO_FACTS), self._entries.get(name)
            longest = facts.longest or (entry.longest if entry else None)
            loaded = (self._running or {}).get(name) or (longest if entry and entry.host else None)
            size = self._options.context_size or window(loaded, facts.usual, longest) or USUAL_CONTEXT
            self._windows[name] = min(size, longest or size)
        return self._windows[name]

    def _thinks(self, model: str) -> bool | None:
        name = full_name(model)
        if name in self._thoughtless:
            return False
        shown = self._facts.get(name, NO_FACTS).thinks
        entry = self._entries.get(name)
        return shown if shown is not None or entry is None else entry.thinks

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields: dict[str, object] = {"model": self.model_of(turn)}
        fields |= dict.fromkeys(self._session_fields(), turn.session_id)
        fields |= {"stream": True, "truncate": False, "shift": False}
        if (keep_alive := keep_alive_of(self._options.keep_alive)) is not None:
            fields["keep_alive"] = keep_alive
        think = think_of(turn.template_options, turn.parameters.given().get("reasoning_effort"))
        if think is not None and self._thinks(self.model_of(turn)) is not False:
            fields["think"] = think
        return fields | self.tool_fields(turn)

    def tool_fields(self, turn: ChatTurn) -> dict[str, object]:
        """Ollama knows no `tool_choice`: what is called all the same is not carried out."""
        return {"tools": json.loads(turn.tools)} if turn.tools else {}

    def wires(self, turn: ChatTurn) -> Sequence[bytes]:
        return messages(super().wires(turn))

    def options(self, turn: ChatTurn) -> dict[str, object]:
        """The options of every request to the model of `turn`."""
        return {"num_ctx": self._window(self.model_of(turn)), **options_in(turn.parameters.given())}

    def body(self, turn: ChatTurn) -> bytes:
        return self._body(turn, self.head(turn), self.options(turn))

    def _body(self, turn: ChatTurn, head: Mapping[str, object], options: Mapping[str, object]) -> bytes:
        barred = NEVER_SENT | LOCAL_EXTRAS | self._refused_fields
        head = {name: value for name, value in head.items() if name not in self._refused_fields}
        fields = {
            name: value
            for name, value in fields_in(turn.parameters.given()).items()
            if name not in head and name not in barred
        }
        return chat_body(head, self.wires(turn), {"options": options, **fields})

    def answer(self, turn: ChatTurn, emit: Emit) -> OllamaAnswer:
        asked = OllamaRequest(
            self.model_of(turn),
            turn.session_id,
            turn.wires,
            self.options(turn),
            self._options.keep_alive,
            self._clock.now,
        )
        return OllamaAnswer(self.url, emit, asked, self._memory)

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        ended = await super().chat(turn, emit)
        if self._memory.reports_cached:
            self._info = replace(self._info, figures=Figures.AFTER)
        return ended

    async def prefill_messages(self, turn: ChatTurn) -> Reported:
        """Read `turn`'s messages into the cache by asking for one token. Empty messages would only load the model."""
        head = {**self.head(turn), "stream": False}
        body = self._body(turn, head, {**self.options(turn), "num_predict": 1})
        ended = await self._attempt(turn, body, lambda event: None, self._clock.now())
        if ended.error is not None:
            raise ended.error
        return ended.reported

    def _error(self, head: ResponseHead, body: str) -> BackendError:
        body = unwrapped(body)
        found = errors.error_in(parsed_or_none(body))
        message = found[0] if found else ""
        if head.status == 404 and (missing := _NO_SUCH_MODEL.search(message)):
            return _no_such_model(self.url, missing["name"])
        if head.status == 400 and message.startswith("model is required"):
            return failure(Trouble.REFUSED, Fault.NO_MODEL_YET, status=400, url=self.url)
        if head.status == 400 and (refusing := _NO_THINKING.search(message)):
            name = full_name(refusing["name"])
            self._thoughtless.add(name)
            return errors.UnknownFieldError(self.url, 400, f"think for {errors.quoted(name)}")
        if head.status == 401 and "signin_url" in body:
            return failure(Trouble.UNAUTHORIZED, Fault.NOT_SIGNED_IN, status=401, url=self.url)
        if head.status == 500 and _OVERFLOW.search(message):
            head = ResponseHead(
                400, head.headers
            )  # one engine of Ollama's reports a prompt that is too long as its failure
        return roomier(super()._error(head, body))


def _no_such_model(url: str, name: str) -> BackendError:
    command = errors.quoted(f"ollama pull {shlex.quote(name)}")
    return failure(
        Trouble.REFUSED, Fault.MODEL_MISSING, status=404, url=url, model=errors.quoted(name), command=command
    )


def _version(build: str) -> tuple[int, ...]:
    """A version as numbers: `0.33.3-rc1` is (0, 33, 3)."""
    return tuple(int(number) for number in re.findall(r"\d{1,6}", build.partition("-")[0])[:3])
