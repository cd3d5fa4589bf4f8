"""Any server with the OpenAI chat interface that is not recognised as something better."""

from __future__ import annotations

from msgspec.structs import replace

from kvchat.backends.base import MODELS_PATH, OneTokenWarmUp
from kvchat.backends.dialect import ServerInfo
from kvchat.backends.http.payload import Responses, said


class OpenAIBackend(OneTokenWarmUp):
    probes = (MODELS_PATH,)

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """Whether `/v1/models` gives a list: the least that a server with OpenAI's API has."""
        listing = said(responses, MODELS_PATH)
        return isinstance(listing.value, list) or "data" in listing.fields

    async def described(self) -> ServerInfo:
        models = await self.listed()
        chosen = models.chosen
        return replace(
            self._info,
            listing=models.all,
            model=chosen.id if chosen else "",
            context_size=chosen.context_size if chosen else None,
        )
