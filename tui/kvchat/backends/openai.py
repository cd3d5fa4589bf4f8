"""Any server with the OpenAI chat interface that is not recognised as something better."""

from __future__ import annotations

from dataclasses import replace

from kvchat.backends import errors
from kvchat.backends.base import MODELS_PATH, HttpBackend
from kvchat.backends.dialect import ChatTurn, ServerInfo
from kvchat.backends.models import models_in
from kvchat.backends.payload import PayloadError


class OpenAIBackend(HttpBackend):
    kind = "openai"
    health_path = MODELS_PATH

    async def identify(self) -> ServerInfo:
        self._endpoint = await self._endpoint.located()
        _, listing = await self.get_json(MODELS_PATH)
        try:
            models = models_in(listing)
        except PayloadError as error:
            raise errors.protocol(self.url, str(error)) from None
        chosen = models.chosen
        self._info = replace(
            self._info, host_class=self._endpoint.place.host_class, models=models.ids,
            model=chosen.id if chosen else "", context_size=chosen.context_size if chosen else None,
            owner=chosen.owner if chosen else "",
        )
        return self._info

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields: dict[str, object] = {}
        model = turn.model or self.info.model
        if model:
            fields["model"] = model
        if not self._endpoint.is_cloud:
            fields["session_id"] = turn.session_id
        fields["stream"] = True
        fields["stream_options"] = {"include_usage": True}
        if turn.template_options:
            fields["chat_template_kwargs"] = dict(turn.template_options)
        return fields
