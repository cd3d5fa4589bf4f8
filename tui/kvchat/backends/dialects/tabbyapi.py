"""TabbyAPI: from its prompt speed and prompt time follows exactly how many tokens came from the cache.

The rule: its rate is the evaluated tokens divided by the time, so their product is a count; "Indeterminate" is none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import MODELS_PATH, Answer
from kvchat.backends.dialect import BackendError, ChatTurn, Emit, ServerInfo, Trouble
from kvchat.backends.dialects.program import ProgramBackend, Remedy
from kvchat.backends.http.payload import (
    Models,
    Responses,
    as_object,
    count_at,
    figure_at,
    figures_at,
    flag_at,
    is_object,
    models_in,
    said,
    text_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.cache.causes.remedies import Change, Flags, Way
from kvchat.prompt.wire import whole_characters

SERVICE_PATH, CARD_PATH = "/.well-known/serviceinfo", "/v1/model"


class TabbyAPIBackend(ProgramBackend):
    kind = ServerKind(
        "tabbyapi",
        "TabbyAPI",
        (5000,),
        Flags(
            window=Change("max_seq_len: {size}", "TabbyAPI's config.yml", Way.SET),
            beside=Change("cache_size", "TabbyAPI's config.yml", Way.RAISE),
        ),
        keeps_many=True,
    )
    probes = (SERVICE_PATH,)
    health_path = "/health"
    takes_template_options = False  # older versions know them only as `template_vars`
    ignores_model = True
    renamed: ClassVar[Mapping[str, str]] = {"repeat_penalty": "repetition_penalty"}
    room = "raise max_seq_len and cache_size in TabbyAPI's config.yml"
    keys = "TabbyAPI keeps its keys in api_tokens.yml."
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            "an admin key isn't provided",
            "loads another model only for its admin key. Choose the loaded model, or "
            "give the admin key (in api_tokens.yml).",
        ),
        Remedy(
            "no models are currently loaded",
            "has no model loaded. Name one in its config.yml (model.model_name), or load it there.",
            Trouble.SERVER_ERROR,
        ),
        Remedy(
            "prompt template is not set",
            "has no chat template for this model. Set model.prompt_template in its config.yml.",
        ),
    )

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        return service_name(responses) == "tabbyapi"

    async def described(self) -> ServerInfo:
        _, listing = await self.get_json(MODELS_PATH)
        card = await self._card()
        parameters = figures_at(card, "parameters")
        current = whole_characters(text_at(card, "id") or "")
        longest, cache = count_at(parameters, "max_seq_len"), count_at(parameters, "cache_size")
        context = min(filter(None, (longest, cache)), default=None)
        models = Models(
            tuple(
                replace(model, loaded=model.id == current, context_size=context if model.id == current else None)
                for model in models_in(listing).all
            )
        )
        chosen = models.chosen
        return replace(
            self._info,
            model=current or (chosen.id if chosen else ""),
            listing=models.all,
            context_size=context,
            slots=count_at(parameters, "max_batch_size") or None,
            figures=Figures.DERIVED,
            sees=flag_at(parameters, "use_vision"),
            unknown=("version",),
        )

    async def _card(self) -> Mapping[str, object]:
        """What is loaded; empty where nothing is. Raises BackendError, PayloadError."""
        try:
            _, card = await self.get_json(CARD_PATH)
        except BackendError as error:
            if error.status == 503:
                return {}
            raise
        return as_object(card, "a model card")

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields = super().head(turn)
        if turn.template_options:
            fields["template_vars"] = dict(turn.template_options)
        return fields

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        return TabbyAnswer(self.url, emit, self.window_of(turn))


class TabbyAnswer(ChatAnswer):
    """An answer whose usage tells speeds and times."""

    def take(self, payload: Payload) -> None:
        if is_object(payload.value) and (timings := timings_of(figures_at(payload.value, "usage"))):
            payload = replace(payload, value={**payload.value, "timings": timings})
        super().take(payload)


def timings_of(usage: Mapping[str, object]) -> dict[str, object]:
    """The timings that follow from TabbyAPI's usage, in llama.cpp's names; those that do not are left out."""
    prompt, seconds, rate = (
        read(usage, key)
        for read, key in ((count_at, "prompt_tokens"), (figure_at, "prompt_time"), (figure_at, "prompt_tokens_per_sec"))
    )
    found: dict[str, object] = {}
    if seconds:
        found["prompt_ms"] = seconds * 1000
    if prompt and seconds and rate is not None and math.isfinite(rate * seconds):
        evaluated = round(rate * seconds)
        if evaluated <= prompt:
            found |= {"prompt_n": evaluated, "cache_n": int(prompt) - evaluated}
    if spent := figure_at(usage, "completion_time"):
        found["predicted_ms"] = spent * 1000
    return found


def service_name(responses: Responses) -> str:
    """What a server calls itself at its well-known address; lower case."""
    name = figures_at(said(responses, SERVICE_PATH).fields, "software").get("name")
    return name.strip().lower() if isinstance(name, str) else ""
