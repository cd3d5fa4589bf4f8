"""llama-swap: one address for many models, of which it keeps a few loaded, each by a server of its own.

Nothing but a chat request loads a model, because loading one unloads another. What a model's own server
says is asked only while `/running` lists the model as ready.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from kvchat import values
from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import Answer, HttpBackend
from kvchat.backends.dialect import (
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    PrefillResult,
    Progressed,
    ServerInfo,
    StreamEvent,
    Trouble,
    Waiting,
    failure,
)
from kvchat.backends.dialects.llamacpp import (
    LlamaCppBackend,
    described_by,
    live_fields,
    look_again,
)
from kvchat.backends.http.payload import (
    Model,
    Models,
    PayloadError,
    as_object,
    count_at,
    is_object,
    list_at,
    models_in,
    response_at,
    text_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import KINDS, LLAMACPP, MODELS_PATH, PROPS_PATH, Figures
from kvchat.backends.recognition import is_of
from kvchat.cache import ServerState, SlotCount, Tokens
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.message import NoteKind
from kvchat.prompt.token_ids import KnownIds
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault

RUNNING_PATH = "/running"
READY, STARTING = "ready", "starting"
TOLD_S = 1.0
"""Between two reports that a model is being loaded."""


class Running(Struct, frozen=True):
    """A model that is loaded, or being loaded or unloaded."""

    state: str
    ttl: int
    """Seconds without a request after which it is unloaded; 0: it stays."""


class LlamaSwapBackend(HttpBackend):
    kind = KINDS["llama-swap"]
    _upstream: LlamaCppBackend | None = None
    """The server of the model in use, to follow its cache; made when it is first asked."""
    _known: bool | None = None
    """Whether the server of the model in use is a llama-server; None until it was loaded."""
    _looked = False
    """Whether the model in use was looked at since it was loaded."""

    async def describe(self) -> ServerInfo:
        running = await self._running()
        _, listing = await self.get_json(MODELS_PATH)
        listed = Models(tuple(_with_state(model, running) for model in models_in(listing).all))
        chosen = next((model for model in listed.all if model.id == self._info.model), None) or listed.chosen
        info = replace(
            self._info,
            model="",
            listing=listed.all,
            context_size=None,
            slots=None,
            build="",
            reasoning_option=None,
            takes_local_extras=True,
            figures=Figures.AFTER,
        )
        self._upstream = None
        if chosen is None:
            return info
        if chosen.id != self._info.model:
            self._known, self._looked = None, False
        info = replace(
            info,
            model=whole_characters(chosen.id),
            context_size=chosen.context_size,
            unloads=_unloads(running.get(chosen.id)),
        )
        props = await self._props_of(chosen.id) if _is_ready(running, chosen.id) else None
        if props is not None:
            own = described_by(info, props, Models((chosen,)))
            sized = replace(chosen, context_size=own.context_size)
            info = replace(own, listing=tuple(sized if model.id == chosen.id else model for model in listed.all))
        elif self._known is False:
            info = replace(info, takes_local_extras=False)
        unknown = (("context size", info.context_size), ("slots", info.slots))
        return replace(info, unknown=tuple(name for name, value in unknown if value is None))

    async def _running(self) -> dict[str, Running]:
        """The models that are not stopped, by name. Raises BackendError, PayloadError."""
        _, found = await self.get_json(RUNNING_PATH)
        entries = [entry for entry in list_at(as_object(found, "running models"), "running") if is_object(entry)]
        return {
            text_at(entry, "model") or "": Running(text_at(entry, "state") or "", count_at(entry, "ttl") or 0)
            for entry in entries
        }

    async def _props_of(self, model: str) -> Mapping[str, object] | None:
        """The properties of a loaded model's llama-server; None where it is of another kind."""
        kind = KINDS[LLAMACPP]
        paths = [_at(model, path) for path in kind.probes]
        found = await self.asked(paths)
        own = {path: found[asked] for path, asked in zip(kind.probes, paths, strict=True) if asked in found}
        self._known, self._looked = is_of(kind, own), True
        return response_at(own, PROPS_PATH).fields if self._known else None

    def extras(self, turn: ChatTurn) -> dict[str, object]:
        """As to a llama-server, which most models run on; another kind that refuses a field goes without it."""
        return live_fields(turn)

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        model = self.model_of(turn)
        size = (
            self._info.context_size
            if model == self._info.model
            else next((entry.context_size for entry in self._info.listing if entry.id == model), None)
        )

        def heard(event: StreamEvent) -> None:
            if isinstance(event, Progressed) and model == self._info.model:
                self._known = True
            emit(event)

        return LlamaSwapAnswer(self.url, heard, size, model, self._clock.now)

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """As of `Backend`. The first answer of a model also loads it, so that its server can then be asked."""
        ended = await super().chat(turn, emit)
        if ended.error is None and turn.model in ("", self._info.model):
            if not self._looked:
                await look_again(self)
                self._looked = True
            if self._known and self._info.figures is not Figures.BEFORE:
                self._info = replace(self._info, figures=Figures.BEFORE)
        return ended

    async def _followed(self) -> LlamaCppBackend:
        """The server of the model in use. Raises BackendError where that is not loaded, or not a llama-server."""
        model = self._info.model
        try:
            is_ready = _is_ready(await self._running(), model)
        except PayloadError as error:
            raise errors.protocol(self.url, error) from None
        if not is_ready:
            raise failure(Trouble.REFUSED, Fault.NOT_LOADED, url=self.url, model=errors.quoted(model))
        if self._known is False:
            raise failure(Trouble.REFUSED, Fault.NOT_FOLLOWED, status=501, url=self.url, model=errors.quoted(model))
        if self._upstream is None:
            url = self._endpoint.url
            own = replace(self._endpoint, url=replace(url, path=url.path + _at(model)))
            upstream = LlamaCppBackend(own, clock=self._clock, options=self._options)
            await upstream.identify()
            self._upstream = upstream
        return self._upstream

    async def prompt_text(self, turn: ChatTurn) -> str:
        return await (await self._followed()).prompt_text(turn)

    async def tokens_of(self, text: str, known: KnownIds | None = None, then: str = "") -> Tokens:
        return await (await self._followed()).tokens_of(text, known)

    async def server_state(self) -> ServerState:
        return await (await self._followed()).server_state()

    async def slot_counts(self) -> list[SlotCount]:
        return await (await self._followed()).slot_counts()

    async def prefill(
        self, prompt: Tokens, progressed: Callable[[PromptProgress], None], slot: int | None = None
    ) -> PrefillResult:
        return await (await self._followed()).prefill(prompt, progressed, slot)

    async def template_text(self) -> str:
        """The chat template of the model in use; empty where its server does not tell."""
        _, found = await (await self._followed()).get_json(PROPS_PATH)
        return text_at(as_object(found, "properties"), "chat_template") or ""


class LlamaSwapAnswer(ChatAnswer):
    """A chat answer, without the remarks about loading that llama-swap can put in front as if they were reasoning."""

    def __init__(self, url: str, emit: Emit, context_size: int | None, model: str, now: Callable[[], float]) -> None:
        super().__init__(url, emit, context_size)
        self._asked = model
        self._now = now
        self._began = self._told = now()
        self._was_loaded = False
        self._has_answered = False

    def take(self, payload: Payload) -> None:
        if not self._has_answered and _is_remark(payload.value):
            self._remarked()
            return
        self._has_answered = True
        super().take(payload)

    def _remarked(self) -> None:
        self.moves += 1
        if not self._was_loaded or self._now() - self._told >= TOLD_S:
            self._told = self._now()
            self._emit(Waiting("loading", self._told - self._began, True))
        self._was_loaded = True

    def ended(self, error: BackendError | None = None) -> Ended:
        ended = super().ended(error)
        if not self._was_loaded or error is not None:
            return ended
        return replace(
            ended, warnings=(*ended.warnings, values.said(NoteKind.MODEL_LOADED, model=errors.quoted(self._asked)))
        )


def _is_remark(value: object) -> bool:
    """Whether a part of a stream is llama-swap's own: nothing but a delta of reasoning. A model server's part always
    names itself, its time or its model too."""
    if not is_object(value) or value.keys() != {"choices"}:
        return False
    choices = value["choices"]
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    delta = choice.get("delta") if is_object(choice) and choice.keys() == {"delta"} else None
    return is_object(delta) and delta.keys() == {"reasoning_content"}


def _at(model: str, path: str = "") -> str:
    """Where llama-swap passes requests on to a model's own server, loading it where needed."""
    return f"/upstream/{quote(model, safe='/')}{path}"


def _is_ready(running: Mapping[str, Running], model: str) -> bool:
    return model in running and running[model].state == READY


def _with_state(model: Model, running: Mapping[str, Running]) -> Model:
    """An alias is not listed as running; the list of models knows of it."""
    if model.id not in running:
        return replace(model, loaded=model.loaded is True)
    state = "loading" if running[model.id].state == STARTING else ""
    return replace(model, loaded=_is_ready(running, model.id), state=state)


def _unloads(running: Running | None) -> str:
    when = "when another model is asked for, unless both are in one group"
    return f"after {running.ttl} s without a request, and {when}" if running and running.ttl else when
