"""LocalAI: it imitates Ollama's paths, and tells how long reading took where a header asks for it.

The rule: cached tokens are only ever an estimate here, made once a few turns agree on the speed of reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import MODELS_PATH, Answer, Images, no_images
from kvchat.backends.dialect import PLAIN, BackendError, ChatTurn, Emit, Ended, ServerInfo, ServerOptions
from kvchat.backends.dialects.program import Expected, PrefillTimes, ProgramBackend, Remedy, Seen
from kvchat.backends.http.endpoint import Endpoint
from kvchat.backends.http.payload import (
    Models,
    Responses,
    count_at,
    figure_at,
    figures_at,
    is_object,
    models_in,
    said,
    text_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.backends.http.transport import Clock, Head
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.cache.causes import cause
from kvchat.cache.causes.remedies import Change, Flags, Way
from kvchat.prompt.message import NoteKind
from kvchat.prompt.wire import whole_characters

WELL_KNOWN_PATH, SYSTEM_PATH, ABILITIES_PATH = "/.well-known/localai.json", "/system", "/v1/models/capabilities"
CONFIG_PATH = "/api/models/config-json/"
EXTRA_USAGE = "Extra-Usage"
YAML = "the model's YAML file of LocalAI"


class LocalAIBackend(ProgramBackend):
    kind = ServerKind(
        "localai",
        "LocalAI",
        (8080,),
        Flags(
            window=Change("context_size: {size}", YAML, Way.SET),
            beside=Change("the option parallel:2", YAML, Way.SET),
            caching=Change("prompt_cache_all: true", YAML, Way.SET),
        ),
    )
    probes = (WELL_KNOWN_PATH,)
    health_path = "/readyz"
    takes_template_options = False
    room = "raise context_size in the model's YAML file of LocalAI"
    keys = "LocalAI's keys are what it was started with as LOCALAI_API_KEY."
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            "is disabled and cannot be loaded",
            "has the model disabled. Enable it on its System page, or choose another.",
        ),
    )

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
        self._times: dict[str, PrefillTimes] = {}
        """By model: each has its own speed."""

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        fields = said(responses, WELL_KNOWN_PATH).fields
        return is_object(fields.get("endpoints")) and "version" in fields

    async def described(self) -> ServerInfo:
        about = await self.told_at(WELL_KNOWN_PATH)
        _, listing = await self.get_json(MODELS_PATH)
        loaded, chatty = _ids(await self.told_at(SYSTEM_PATH), "loaded_models"), await self._chatty()
        models = Models(
            tuple(
                replace(
                    model,
                    loaded=None if loaded is None else model.id in loaded,
                    chats=chatty is None or model.id in chatty,
                )
                for model in models_in(listing).all
            )
        )
        chosen = models.chosen
        context = await self._context(chosen.id) if chosen else None
        return replace(
            self._info,
            model=chosen.id if chosen else "",
            listing=tuple(replace(model, context_size=context) if model is chosen else model for model in models.all),
            context_size=context,
            build=whole_characters(text_at(about, "version") or ""),
            figures=Figures.ESTIMATED,
            unknown=tuple(
                name
                for name, is_known in (
                    ("slots", False),
                    ("context size", context),
                    ("loaded models", loaded is not None),
                )
                if not is_known
            ),
        )

    async def _chatty(self) -> frozenset[str] | None:
        """The models that chat; None where it is not told."""
        entries = (await self.told_at(ABILITIES_PATH)).get("data")
        if not isinstance(entries, list) or not entries:
            return None
        return frozenset(
            str(entry.get("id"))
            for entry in entries
            if is_object(entry) and (not isinstance(known := entry.get("capabilities"), list) or "chat" in known)
        )

    async def _context(self, model: str) -> int | None:
        return count_at(await self.told_at(CONFIG_PATH + quote(model, safe="")), "context_size") or None

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields, options = super().head(turn), turn.template_options
        if options.get("enable_thinking") is False:
            fields["reasoning_effort"] = "none"
        elif effort := options.get("reasoning_effort"):
            fields["reasoning_effort"] = effort
        return fields

    def headers(self, turn: ChatTurn) -> dict[str, str]:
        return super().headers(turn) | {EXTRA_USAGE: "1"}

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        return LocalAIAnswer(self.url, emit, self.window_of(turn))

    async def judge(self, turn: ChatTurn, seen: Seen, expected: Expected | None) -> None:
        known = seen.reported
        if known.prompt_tokens is None or known.prompt_ms is None or known.cached_tokens is not None:
            return
        times = self._times.setdefault(self.model_of(turn), PrefillTimes())
        new = None if expected is None else max(0, known.prompt_tokens - expected.least)
        cached = times.cached(known.prompt_tokens, known.prompt_ms, new)
        if cached is not None:
            seen(replace(known, cached_tokens=cached, estimated=True))

    def _error(self, head: Head, body: str) -> BackendError:
        if head.status == 503 and '"model_loading"' in body:
            return errors.StillLoadingError(self.url)
        return super()._error(head, body)


class LocalAIAnswer(ChatAnswer):
    """An answer whose usage tells how long reading and writing took, and what was left out."""

    _left_out = 0

    def take(self, payload: Payload) -> None:
        if is_object(payload.value) and (usage := figures_at(payload.value, "usage")):
            self._left_out = count_at(figures_at(usage, "compression_meta"), "dropped_turns") or self._left_out
            payload = replace(payload, value={**payload.value, "timings": timings_of(usage)})
        super().take(payload)

    def ended(self, error: BackendError | None = None) -> Ended:
        ended = super().ended(error)
        if not self._left_out:
            return ended
        return replace(ended, warnings=(*ended.warnings, cause.said(NoteKind.SUMMARISED, messages=self._left_out)))


def timings_of(usage: Mapping[str, object]) -> dict[str, object]:
    """LocalAI's times out of its usage (`timing_*`, sent with the header `Extra-Usage`), in milliseconds under
    llama.cpp's names `prompt_ms` and `predicted_ms`; without those that its engine does not measure."""
    found = {
        "prompt_ms": figure_at(usage, "timing_prompt_processing"),
        "predicted_ms": figure_at(usage, "timing_token_generation"),
    }
    return {name: value for name, value in found.items() if value}


def _ids(found: Mapping[str, object], key: str) -> frozenset[str] | None:
    entries = found.get(key)
    if not isinstance(entries, list):
        return None
    return frozenset(str(entry.get("id")) for entry in entries if is_object(entry))
