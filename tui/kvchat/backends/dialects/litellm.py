"""LiteLLM: a proxy that hands a conversation to one of many servers and services.

The rule: it passes on what it does not know, so no field goes to it that only one kind of server takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kvchat.backends.base import MODELS_PATH, HttpBackend
from kvchat.backends.dialect import ServerInfo
from kvchat.backends.http.payload import (
    Model,
    Models,
    PayloadError,
    Responses,
    count_at,
    flag_at,
    is_object,
    list_at,
    models_in,
    said,
    text_at,
)
from kvchat.backends.kinds import ServerKind
from kvchat.cache.causes.remedies import Flags

ALIVE_PATH = "/health/liveliness"
GROUPS_PATH = "/model_group/info"
ALIVE = "I'm alive!"
HEADER = "x-litellm-"


class LiteLLMBackend(HttpBackend):
    kind = ServerKind(
        "litellm",
        "LiteLLM",
        (4000,),
        Flags(
            affinity='router_settings: optional_pre_call_checks: ["session_affinity"]',
            affinity_header="X-LiteLLM-Session-Id",
            is_proxy=True,
        ),
        keeps_many=True,
    )
    health_path = ALIVE_PATH
    probes = (ALIVE_PATH, MODELS_PATH)
    session_fields = ("litellm_session_id",)

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """By its sign of life, or a header that some of its answers carry."""
        headers = (name for response in responses.values() for name in response.headers)
        alive = said(responses, ALIVE_PATH)
        return (alive.status == 200 and alive.text.strip(' "\r\n') == ALIVE) or any(
            name.startswith(HEADER) for name in headers
        )

    async def described(self) -> ServerInfo:
        _, listing = await self.get_json(MODELS_PATH)
        groups = await self._groups()
        listed = Models(tuple(_with(model, groups.get(model.id, {})) for model in models_in(listing).all))
        chosen = next((model for model in listed.all if model.id == self._info.model), None) or listed.chosen
        size = chosen.context_size if chosen else None
        return replace(
            self._info,
            listing=listed.all,
            model=chosen.id if chosen else "",
            context_size=size,
            unknown=("slots", "which server answers") if size else ("context size", "slots", "which server answers"),
        )

    async def _groups(self) -> dict[str, Mapping[str, object]]:
        """What is known of each model; empty where the key may not ask, or it is not told."""
        try:
            entries = list_at(await self.told_at(GROUPS_PATH), "data")
            return {text_at(entry, "model_group") or "": entry for entry in entries if is_object(entry)}
        except PayloadError:
            return {}


def _with(model: Model, group: Mapping[str, object]) -> Model:
    mode = group.get("mode")
    return replace(
        model,
        context_size=model.context_size or count_at(group, "max_input_tokens") or None,
        sees=flag_at(group, "supports_vision"),
        chats=model.chats and mode in (None, "chat", "responses", "completion"),
    )
