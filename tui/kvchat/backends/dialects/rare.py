"""What no row can say of the rarer kinds of servers: LiteLLM, Jan, LocalAI, llamafile, llama-cpp-python."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import quote

from msgspec.structs import replace

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import HttpBackend, OneTokenWarmUp, one_token
from kvchat.backends.dialect import (
    ELSEWHERE,
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    HostClass,
    ServerInfo,
    Trouble,
    failure,
)
from kvchat.backends.dialects.llamacpp import live_fields
from kvchat.backends.dialects.program import ProgramBackend
from kvchat.backends.http.endpoint import BadAddressError, classify, is_loopback_name, literal, parse_base_url
from kvchat.backends.http.payload import (
    Model,
    Models,
    PayloadError,
    count_at,
    figures_at,
    flag_at,
    is_object,
    list_at,
    models_in,
    name_at,
    response_at,
    text_at,
)
from kvchat.backends.http.stream import Payload
from kvchat.backends.http.transport import Exchange, ResponseHead
from kvchat.backends.kinds import KINDS, MODELS_PATH, Figures
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault

# -- LiteLLM: it passes on what it does not know, so no field goes to it that only one kind of server takes -----------


class LiteLLMBackend(HttpBackend):
    kind = KINDS["litellm"]

    async def listed(self) -> Models:
        """The models, with what is known of each; no more where the key may not ask."""
        models = await super().listed()
        groups = await self._entries("/model_group/info", "model_group")
        unsure = any("openai" in _providers(group) for group in groups.values())
        deployments = await self._entries("/model/info", "model_name") if unsure else {}
        return Models(
            tuple(_in_group(model, groups.get(model.id, {}), deployments.get(model.id, {})) for model in models.all)
        )

    async def _entries(self, path: str, name: str) -> dict[str, Mapping[str, object]]:
        """The entries of a list by this field; none where it cannot be had."""
        try:
            entries = list_at(await self.object_at(path), "data")
        except PayloadError:
            return {}
        return {text_at(entry, name) or "": entry for entry in entries if is_object(entry)}


_LOCAL_PROVIDERS = frozenset(
    (
        "custom_openai",
        "docker_model_runner",
        "hosted_vllm",
        "infinity",
        "lemonade",
        "llamafile",
        "lm_studio",
        "ollama",
        "ollama_chat",
        "oobabooga",
        "openai_like",
        "triton",
        "vllm",
        "xinference",
    )
)
"""Providers of LiteLLM that are programs to run oneself."""


def _providers(group: Mapping[str, object]) -> list[str]:
    found = group.get("providers")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _passed_on_to(group: Mapping[str, object], deployment: Mapping[str, object]) -> str:
    """The service on the internet that a model's text is passed on to; empty: none that LiteLLM names. What it calls
    `openai` is any server of that kind: its address says where that is."""
    base = name_at(figures_at(deployment, "litellm_params"), "api_base")
    far = [one for one in _providers(group) if one not in _LOCAL_PROVIDERS and not (one == "openai" and _is_near(base))]
    return whole_characters(far[0]) if far else ""


def _is_near(url: str) -> bool:
    """Whether an address is plainly of the user's own machines."""
    try:
        host = parse_base_url(url).host
        address = literal(host)
    except (BackendError, BadAddressError):
        return False
    if address is not None:
        return classify(address) is not HostClass.CLOUD
    return is_loopback_name(host) or "." not in host or host.endswith((".local", ".lan", ".internal"))


def _in_group(model: Model, group: Mapping[str, object], deployment: Mapping[str, object]) -> Model:
    return replace(
        model,
        remote=_passed_on_to(group, deployment),
        context_size=model.context_size or count_at(group, "max_input_tokens") or None,
        sees=flag_at(group, "supports_vision"),
        chats=model.chats and group.get("mode") in (None, "chat", "responses", "completion"),
    )


# -- Jan: a proxy to its engines, and to services on the internet for the models that it calls remote. Such a model is
# never chosen unasked, and nothing that only a local engine should see is sent for it --------------------------------


REMOTE = "remote"
LLAMACPP_OWNERS = frozenset({"llama.cpp", "llamacpp", "user"})
"""Who owns a model that llama.cpp runs; earlier versions had no other engine, and said `user`."""
DISK_PATH = "/v1/models/available"


class JanBackend(ProgramBackend):
    kind = KINDS["jan"]

    async def describe(self) -> ServerInfo:
        described = await super().describe()
        running = tuple(_of_jan(model) for model in described.listing)
        chosen = Models(tuple(model for model in running if model.loaded)).chosen
        runs_llamacpp = chosen is not None and chosen.owner in LLAMACPP_OWNERS
        return replace(
            described,
            model=chosen.id if chosen else "",
            listing=(*running, *await self._on_disk(described.models)),
            takes_local_extras=runs_llamacpp,
            figures=Figures.BEFORE if runs_llamacpp else Figures.AFTER,
        )

    async def _on_disk(self, running: tuple[str, ...]) -> list[Model]:
        """The models that could be started; none where this version does not tell."""
        fields = response_at(await self.asked((DISK_PATH,)), DISK_PATH).fields
        entries = models_in(fields).all if isinstance(fields.get("data"), list) else ()
        return [replace(entry, loaded=False) for entry in entries if entry.id not in running]

    def _may_leave(self, turn: ChatTurn) -> bool:
        """Whether Jan may pass `turn` on to a service: it does so with models that it lists nowhere, too."""
        entry = self.info.known(self.model_of(turn))
        return entry is None or entry.owner == REMOTE

    def extras(self, turn: ChatTurn) -> Mapping[str, object]:
        """Those of llama.cpp, where it runs the model of `turn`."""
        entry = self.info.known(self.model_of(turn))
        runs_llamacpp = entry is not None and entry.loaded and entry.owner in LLAMACPP_OWNERS
        return live_fields(replace(turn, slot=None)) if runs_llamacpp else {}

    def head(self, turn: ChatTurn) -> dict[str, object]:
        return super().head(replace(turn, template_options={}) if self._may_leave(turn) else turn)

    def headers(self, turn: ChatTurn) -> dict[str, str]:
        """Jan passes headers on, so a remote model is sent none that names the conversation."""
        headers = super().headers(turn)
        return {"content-type": headers["content-type"]} if self._may_leave(turn) else headers


def _of_jan(model: Model) -> Model:
    if model.owner == REMOTE:
        return replace(model, about="on the internet: what you write leaves this machine", remote=ELSEWHERE)
    return replace(model, loaded=True)


# -- LocalAI: it tells administrators more than others ----------------------------------------------------------------


class LocalAIBackend(ProgramBackend):
    kind = KINDS["localai"]

    async def listed(self) -> Models:
        """The models: whether each is loaded, whether it chats, and the window of the chosen one."""
        models = await super().listed()
        system, abilities = await self.object_at("/system"), await self.object_at("/v1/models/capabilities")
        loaded, able = system.get("loaded_models"), abilities.get("data")
        ids = {entry.get("id") for entry in loaded if is_object(entry)} if isinstance(loaded, list) else None
        silent = {entry.get("id") for entry in able if not _may_chat(entry)} if isinstance(able, list) else set()
        models = Models(
            tuple(
                replace(model, loaded=None if ids is None else model.id in ids, chats=model.id not in silent)
                for model in models.all
            )
        )
        chosen = models.chosen
        if chosen is None:
            return models
        settings = await self.object_at("/api/models/config-json/" + quote(chosen.id, safe=""))
        sized = replace(chosen, context_size=count_at(settings, "context_size") or None)
        return Models(tuple(sized if model is chosen else model for model in models.all))

    def head(self, turn: ChatTurn) -> dict[str, object]:
        options = turn.template_options
        effort = "none" if options.get("enable_thinking") is False else options.get("reasoning_effort")
        return super().head(turn) | ({"reasoning_effort": effort} if effort else {})


def _may_chat(entry: object) -> bool:
    able = entry.get("capabilities") if is_object(entry) else None
    return not isinstance(able, list) or "chat" in able


# -- llamafile up to 0.9: a newer one is a llama-server of its time and is recognised as that. The first form is a
# llama.cpp server of early 2024, which reuses a prompt only when asked to and streams without figures. The second,
# LLaMAfiler, reuses by itself and counts the prompt, but not what came from the cache. Both drop old text silently
# once the window is full ---------------------------------------------------------------------------------------------


LLAMAFILER = "llamafile/"
"""How the `Server` header of the second form begins."""


class LlamafileBackend(OneTokenWarmUp):
    kind = KINDS["llamafile"]
    _server = ""

    async def get_json(self, path: str) -> tuple[ResponseHead, object]:
        head, found = await super().get_json(path)
        self._server = head.headers.get("server", "").strip().lower() if path == MODELS_PATH else self._server
        return head, found

    async def describe(self) -> ServerInfo:
        described = await super().describe()
        if not self._server.startswith(LLAMAFILER):
            return described
        unknown = tuple(name for name in described.unknown if name != "token counts")
        return replace(described, build=whole_characters(self._server.removeprefix(LLAMAFILER)), unknown=unknown)


# -- the server of llama-cpp-python -----------------------------------------------------------------------------------


REASON_S = 10.0


class LlamaCppPythonAnswer(ChatAnswer):
    """An answer of a server that ends a stream early and does not say why: what came before tells."""

    _parts = 0

    def take(self, payload: Payload) -> None:
        self._parts += 1
        super().take(payload)

    def ended(self, error: BackendError | None = None) -> Ended:
        if (error is None or error.fault is Fault.UNFINISHED) and not self.finished:
            error = (
                failure(Trouble.CUT, Fault.INTERRUPTED, url=self._url)
                if self._parts
                else failure(Trouble.SERVER_ERROR, Fault.NOTHING_SAID, url=self._url)
            )
        return super().ended(error)


class LlamaCppPythonBackend(OneTokenWarmUp):
    """It answers one request at a time and, as it is delivered (interrupt_requests), breaks an answer off when another
    request comes for the model; its list of models counts as one. So the list is read only to identify it, and a GET
    of a path that it has only for POST shows whether it lives. It keeps the last sequence alone, streams without any
    figures, and ends a stream without a reason where it would refuse the request."""

    kind = KINDS["llama-cpp-python"]
    answers = LlamaCppPythonAnswer

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """As ever; where the stream ended before it began, the reason is asked for."""
        ended = await super().chat(turn, emit)
        if ended.error is not None and ended.error.fault is Fault.NOTHING_SAID:
            return replace(ended, error=await self._reason(turn) or ended.error)
        return ended

    async def _reason(self, turn: ChatTurn) -> BackendError | None:
        """Why the server begins no answer to `turn`: without streaming, it says so at once. None where it does not."""
        body = self.body(one_token(turn)).replace(b'"stream":true', b'"stream":false', 1)
        exchange = Exchange(self._endpoint, "POST", self.chat_path, headers=self.headers(turn), body=body)
        try:
            async with asyncio.timeout(REASON_S), exchange:
                head = await exchange.head()
                return None if head.status == 200 else self._refusal(head, await exchange.start_of_body())
        except (TimeoutError, BackendError):
            return None
