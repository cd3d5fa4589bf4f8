"""llama.cpp's llama-server: identified by its `Server` header; the one that reports progress and cache figures.

It also runs as a router: one process that loads several models and hands each request to the model it names. The rule
there: nothing but a chat request loads a model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal
from urllib.parse import quote
from uuid import uuid4

from kvchat.backends.base import MODELS_PATH, PROBE_S, HttpBackend
from kvchat.backends.cache_calls import CacheCalls, specials_of
from kvchat.backends.dialect import BackendError, ChatTurn, Emit, Ended, ServerInfo
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.backends.models import Model, Models, models_in
from kvchat.backends.payload import PayloadError, as_object, count_at, object_at, parsed, text_at
from kvchat.backends.recognise import Responses, owners, said
from kvchat.backends.slot_files import NO_ANSWER, SlotFile, slot_file_of
from kvchat.backends.transport import Exchange, Head
from kvchat.cache.causes.remedies import Change, Flags
from kvchat.prompt.wire import canonical, whole_characters

PROPS_PATH, SLOTS_PATH = "/props", "/slots"
PING_S = 10
OWNER = "llamacpp"
ROUTER = "router"
MOST_SLOTS = 256
PROCESS = "media_marker"
"""The property that is drawn by lot when a server starts."""
PROCESS_LOOKS = 10
"""Of two servers behind a router both are met with a chance of 511 in 512."""
LOOK_S = 2.0
"""After the first answer of a model: how long it may take to ask what that model has."""


class LlamaCppBackend(CacheCalls):
    kind = ServerKind(
        "llama.cpp", "llama.cpp", (8080,), Flags(
            "llama-server", Change("--ctx-size {whole}"), asked_to_cache=True, idle="--sleep-idle-seconds",
            host_cache="--cache-ram 8192", slots="--parallel {slots}", cache_room="--cache-ram {mib}",
            no_shift="--no-context-shift", whole_window="--swa-full", checkpoints="--ctx-checkpoints {count}",
            pinning="--no-kv-unified, or with --no-cache-idle-slots", template="--chat-template-file FILE",
            fix_date="--chat-template-kwargs '{\"date_string\":\"01 Jan 2026\"}'",
            keep_reasoning="--reasoning-preserve"),
        shows_template=True, takes_any_model=True, is_followed=True)
    found_in_cloud = True
    health_path = "/health"

    probes = (PROPS_PATH, MODELS_PATH)
    _routed: Model | None = None
    """The model in use on a router; None on a server with one model."""

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """By its `Server` header; behind a proxy that replaces it, by its properties and the owner of its models."""
        props = said(responses, PROPS_PATH)
        if props.headers.get("server", "").strip().lower().startswith("llama.cpp"):
            return True
        return "default_generation_settings" in props.fields and OWNER in owners(responses)

    async def described(self) -> ServerInfo:
        self._pieces = None  # another model has other ids
        self._routed = None
        _, found = await self.get_json(PROPS_PATH)
        _, listing = await self.get_json(MODELS_PATH)
        props = as_object(found, "properties")
        models = models_in(listing)
        if props.get("role") == ROUTER:
            return await self._of_router(props, models)
        self._specials = specials_of(props)
        return described_by(self._info, props, models)

    async def identify(self) -> ServerInfo:
        self._info = replace(self._info, replicas=False, unknown=())
        info = await super().identify()
        if await self._has_replicas():
            info = self._info = replace(info, replicas=True, slots=None, unknown=(*info.unknown, "slots"))
        return info

    async def _has_replicas(self) -> bool:
        """Whether several servers answer at this address: a router would not send as many sessions as are asked for
        here all to the same one."""
        if self._info.embedded or self._endpoint.is_cloud or self._routed is not None:
            return False
        looks = await asyncio.gather(*(self._process_of(uuid4().hex) for _ in range(PROCESS_LOOKS)))
        return len({process for process in looks if process}) > 1

    async def _process_of(self, session: str) -> str | None:
        """What tells the process that answers to this session from all others; None where it does not say."""
        try:
            _, body = await self.ask("GET", PROPS_PATH, PROBE_S, headers=self.session_headers(session))
            return text_at(as_object(parsed(body.decode("utf-8", "replace")), "properties"), PROCESS)
        except (BackendError, PayloadError):
            return None

    async def _of_router(self, props: Mapping[str, object], models: Models) -> ServerInfo:
        """What a router says, and what the server of the model in use says if that is loaded."""
        chosen = next((model for model in models.all if model.id == self._info.model), None) or models.chosen
        own: Mapping[str, object] = {"build_info": props.get("build_info")}
        self._routed = chosen
        if chosen is not None and chosen.loaded:
            _, found = await self.get_json(self._of_model(PROPS_PATH))
            own = as_object(found, "properties")
            self._specials = specials_of(own)
        info = described_by(replace(self._info, model=""), own, Models((chosen,) if chosen else ()))
        most = count_at(props, "max_instances")
        unknown = (("context size", info.context_size), ("slots", info.slots))
        return replace(info, listing=models.all, unknown=tuple(name for name, value in unknown if value is None),
                       unloads=f"when another model is asked for and {most} are loaded" if most else "")

    async def get_json(self, path: str) -> tuple[Head, object]:
        return await super().get_json(self._of_model(path) if path in (PROPS_PATH, SLOTS_PATH) else path)

    async def post_json(self, path: str, body: bytes) -> Mapping[str, object]:
        if self._routed is not None and not body.startswith(b'{"model":'):
            body = b'{"model":' + canonical(self._routed.id) + b"," + body[1:]
        return await super().post_json(path + self._only_if_loaded("?"), body)

    def _of_model(self, path: str) -> str:
        """Where the model's own server answers, if it is loaded."""
        if self._routed is None:
            return path
        return f"{path}?model={quote(self._routed.id, safe='')}{self._only_if_loaded('&')}"

    def call_fields(self) -> dict[str, object]:
        return {"model": self._routed.id} if self._routed is not None else {}

    def _only_if_loaded(self, mark: str) -> str:
        return f"{mark}autoload=false" if self._routed is not None else ""

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """As of `Backend`; on a router the first answer of a model also loads it, so that it can then be asked."""
        ended = await super().chat(turn, emit)
        routed = self._routed
        if routed is not None and not routed.loaded and ended.error is None and turn.model in ("", routed.id):
            await look_again(self)
        return ended

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
        return live_fields(turn)


def described_by(info: ServerInfo, props: Mapping[str, object], models: Models) -> ServerInfo:
    """`info` with what a llama-server says of itself and of its model. Raises PayloadError."""
    chosen = models.chosen
    settings = object_at(props, "default_generation_settings")
    name = chosen.id if chosen else text_at(props, "model_alias") or text_at(props, "model_path") or ""
    return replace(
        info,
        model=whole_characters(name),
        listing=models.all,
        context_size=count_at(settings, "n_ctx") or (chosen.context_size if chosen else None),
        slots=min(count_at(props, "total_slots") or 0, MOST_SLOTS) or None,
        build=whole_characters(text_at(props, "build_info") or ""),
        takes_local_extras=True,
        preserves_reasoning=object_at(props, "chat_template_caps").get("supports_preserve_reasoning") is True,
        figures=Figures.BEFORE,
    )


def live_fields(turn: ChatTurn) -> dict[str, object]:
    """The fields that make a llama-server report progress and cache figures while it works."""
    fields: dict[str, object] = {"cache_prompt": True, "return_progress": True, "timings_per_token": True,
                                 "sse_ping_interval": PING_S}
    if turn.slot is not None:
        fields["id_slot"] = turn.slot
    return fields


async def look_again(backend: HttpBackend) -> None:
    """Identify a server anew, where that is quick: an answer that has come does not wait for it."""
    try:
        async with asyncio.timeout(LOOK_S):
            await backend.identify()
    except (BackendError, TimeoutError):
        pass
