"""llama.cpp's llama-server: identified by its `Server` header; the one that reports progress and cache figures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from kvchat.backends import errors
from kvchat.backends.base import MODELS_PATH
from kvchat.backends.cache_calls import CacheCalls, specials_of
from kvchat.backends.dialect import BackendError, ChatTurn, ServerInfo
from kvchat.backends.models import models_in
from kvchat.backends.payload import PayloadError, as_object, count_at, object_at, text_at
from kvchat.backends.slot_files import NO_ANSWER, SlotFile, slot_file_of
from kvchat.backends.transport import Exchange, Head
from kvchat.prompt.wire import canonical, whole_characters

PROPS_PATH = "/props"
PING_S = 10
OWNER = "llamacpp"
MOST_SLOTS = 256


def is_llamacpp(head: Head) -> bool:
    return head.headers.get("server", "").strip().lower().startswith("llama.cpp")


class LlamaCppBackend(CacheCalls):
    kind = "llama.cpp"
    health_path = "/health"

    async def identify(self) -> ServerInfo:
        self._endpoint = await self._endpoint.located()
        self._pieces = None  # another model has other ids
        _, props = await self.get_json(PROPS_PATH)
        _, listing = await self.get_json(MODELS_PATH)
        try:
            self._specials = specials_of(as_object(props, "properties"))
            self._info = self._described(as_object(props, "properties"), listing)
        except PayloadError as error:
            raise errors.protocol(self.url, str(error)) from None
        return self._info

    def _described(self, props: Mapping[str, object], listing: object) -> ServerInfo:
        models = models_in(listing)
        chosen = models.chosen
        host_class = self._endpoint.place.host_class
        settings = object_at(props, "default_generation_settings")
        name = chosen.id if chosen else text_at(props, "model_alias") or text_at(props, "model_path") or ""
        return replace(
            self._info,
            host_class=host_class,
            model=whole_characters(name),
            models=models.ids,
            context_size=count_at(settings, "n_ctx") or (chosen.context_size if chosen else None),
            slots=min(count_at(props, "total_slots") or 0, MOST_SLOTS) or None,
            build=whole_characters(text_at(props, "build_info") or ""),
            takes_local_extras=not self._endpoint.is_cloud,
            preserves_reasoning=object_at(props, "chat_template_caps").get("supports_preserve_reasoning") is True,
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

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields: dict[str, object] = {}
        model = turn.model or self.info.model
        if model:
            fields["model"] = model
        local = self.info.takes_local_extras and not self._endpoint.is_cloud
        if local:
            fields["session_id"] = turn.session_id
        fields["stream"] = True
        if local:
            fields |= {"cache_prompt": True, "return_progress": True, "timings_per_token": True,
                       "sse_ping_interval": PING_S}
            if turn.slot is not None:
                fields["id_slot"] = turn.slot
        fields["stream_options"] = {"include_usage": True}
        if turn.template_options:
            fields["chat_template_kwargs"] = dict(turn.template_options)
        return fields
