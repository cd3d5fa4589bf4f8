"""Jan: a proxy to its engines, and to services on the internet for the models that it calls remote.

The rule: a remote model is never chosen unasked, and nothing that only a local engine should see is sent for it.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from kvchat.backends.dialect import ELSEWHERE, ChatTurn, ServerInfo, Trouble
from kvchat.backends.dialects.llamacpp import PING_S
from kvchat.backends.dialects.program import ProgramBackend, Remedy
from kvchat.backends.http.payload import Model, Models, Responses, is_object, models_in, said
from kvchat.backends.kinds import Figures, ServerKind

API_PATH, DISK_PATH = "/openapi.json", "/v1/models/available"
REMOTE = "remote"
LLAMACPP_OWNERS = frozenset({"llama.cpp", "llamacpp", "user"})
"""Who owns a model that llama.cpp runs; earlier versions had no other engine, and said `user`."""
START = "Start one in Jan (Settings > Model Providers), then try again."


class JanBackend(ProgramBackend):
    kind = ServerKind("jan", "Jan", (1337,), passes_on=True)
    probes = (API_PATH,)
    health_path = "/"
    room = "raise Context Size in the model's settings in Jan"
    keys = "Jan's key is set under Settings > Local API Server."
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            "invalid host header",
            "does not answer to this host name. Add it under Settings > Local API Server > "
            "Trusted Hosts, or use the address that is shown there.",
        ),
        Remedy("no models are available", f"has no model running. {START}", Trouble.SERVER_ERROR),
        Remedy("no running session found", f"does not run this model. {START}"),
        Remedy("must contain a 'model' field", f"has no model running. {START}"),
        Remedy(
            "proxy request to model failed",
            "gets no answer from its engine. Stop the model there and start it again.",
            Trouble.SERVER_ERROR,
        ),
    )

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """By the description of its interface, which it gives to any host and without a key."""
        info = said(responses, API_PATH).fields.get("info")
        title = info.get("title") if is_object(info) else None
        return isinstance(title, str) and title.startswith("Jan ")

    async def described(self) -> ServerInfo:
        found = await self.listed()
        running = tuple(_model(model) for model in found.all)
        local = Models(tuple(model for model in running if model.loaded))
        chosen = local.chosen
        runs_llamacpp = chosen is not None and chosen.owner in LLAMACPP_OWNERS
        return replace(
            self._info,
            model=chosen.id if chosen else "",
            listing=(*running, *await self._on_disk({model.id for model in running})),
            takes_local_extras=runs_llamacpp,
            figures=Figures.BEFORE if runs_llamacpp else Figures.AFTER,
            unknown=("context size", "slots", "version"),
        )

    async def _on_disk(self, running: set[str]) -> list[Model]:
        """The models that could be started; none where this version does not tell."""
        answers = await self.asked((DISK_PATH,))
        fields = said(answers, DISK_PATH).fields
        entries = models_in(fields).all if isinstance(fields.get("data"), list) else ()
        return [replace(entry, loaded=False) for entry in entries if entry.id not in running]

    def _may_leave(self, turn: ChatTurn) -> bool:
        """Whether Jan may pass `turn` on to a service: it does so with models that it lists nowhere, too."""
        entry = self.info.known(self.model_of(turn))
        return entry is None or entry.owner == REMOTE

    def _is_llamacpp(self, turn: ChatTurn) -> bool:
        """Whether Jan runs the model of `turn` itself, by llama.cpp."""
        entry = self.info.known(self.model_of(turn))
        return entry is not None and bool(entry.loaded) and entry.owner in LLAMACPP_OWNERS

    def extras(self, turn: ChatTurn) -> dict[str, object]:
        if not self._is_llamacpp(turn):
            return {}
        return {"cache_prompt": True, "return_progress": True, "timings_per_token": True, "sse_ping_interval": PING_S}

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields = super().head(turn)
        if self._may_leave(turn):
            fields.pop("chat_template_kwargs", None)
        return fields

    def headers(self, turn: ChatTurn) -> dict[str, str]:
        """Jan passes headers on, so a remote model is sent none that names the conversation."""
        headers = super().headers(turn)
        return {"content-type": headers["content-type"]} if self._may_leave(turn) else headers


def _model(model: Model) -> Model:
    if model.owner == REMOTE:
        return replace(model, about="on the internet: what you write leaves this machine", remote=ELSEWHERE)
    return replace(model, loaded=True)
