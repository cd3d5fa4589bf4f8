"""llama.cpp's llama-server: identified by its `Server` header; the one that reports progress and cache figures."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal

from kvchat.backends.base import MODELS_PATH
from kvchat.backends.cache_calls import CacheCalls, specials_of
from kvchat.backends.dialect import BackendError, ChatTurn, ServerInfo
from kvchat.backends.kinds import LLAMACPP, Figures
from kvchat.backends.models import models_in
from kvchat.backends.payload import as_object, count_at, object_at, text_at
from kvchat.backends.recognise import Responses, owners, said
from kvchat.backends.slot_files import NO_ANSWER, SlotFile, slot_file_of
from kvchat.backends.transport import Exchange
from kvchat.prompt.wire import canonical, whole_characters

PROPS_PATH = "/props"
PING_S = 10
OWNER = "llamacpp"
MOST_SLOTS = 256


class LlamaCppBackend(CacheCalls):
    kind = LLAMACPP.name
    found_in_cloud = True
    health_path = "/health"

    probes = (PROPS_PATH, MODELS_PATH)

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """By its `Server` header; behind a proxy that replaces it, by its properties and the owner of its models."""
        props = said(responses, PROPS_PATH)
        if props.headers.get("server", "").strip().lower().startswith("llama.cpp"):
            return True
        return "default_generation_settings" in props.fields and OWNER in owners(responses)

    async def described(self) -> ServerInfo:
        self._pieces = None  # another model has other ids
        _, found = await self.get_json(PROPS_PATH)
        _, listing = await self.get_json(MODELS_PATH)
        props = as_object(found, "properties")
        self._specials = specials_of(props)
        models = models_in(listing)
        chosen = models.chosen
        settings = object_at(props, "default_generation_settings")
        name = chosen.id if chosen else text_at(props, "model_alias") or text_at(props, "model_path") or ""
        return replace(
            self._info,
            model=whole_characters(name),
            listing=models.all,
            context_size=count_at(settings, "n_ctx") or (chosen.context_size if chosen else None),
            slots=min(count_at(props, "total_slots") or 0, MOST_SLOTS) or None,
            build=whole_characters(text_at(props, "build_info") or ""),
            takes_local_extras=True,
            preserves_reasoning=object_at(props, "chat_template_caps").get("supports_preserve_reasoning") is True,
            figures=Figures.BEFORE,
        )

    async def slot_file(self, action: Literal["save", "restore"], slot: int, file: str, seconds: float) -> SlotFile:
        """Save the KV cache of a slot to a file in the server's own folder, or restore it; true if that worked.

        A restore that fails leaves the slot empty, and a truncated file ends the server: check a file before.
        A busy slot is waited for. `seconds`: how long to wait.
        """
        try:
            async with asyncio.timeout(seconds), Exchange(
                self._endpoint, "POST", f"/slots/{slot}?action={action}", headers={"content-type": "application/json"},
                body=canonical({"filename": file}),
            ) as exchange:
                head = await exchange.head()
                return slot_file_of(head.status, await exchange.start_of_body())
        except (TimeoutError, BackendError):
            return NO_ANSWER

    def extras(self, turn: ChatTurn) -> dict[str, object]:
        fields: dict[str, object] = {"cache_prompt": True, "return_progress": True, "timings_per_token": True,
                                     "sse_ping_interval": PING_S}
        if turn.slot is not None:
            fields["id_slot"] = turn.slot
        return fields
