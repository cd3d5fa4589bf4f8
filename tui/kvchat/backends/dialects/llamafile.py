"""llamafile up to 0.9, in both its forms; a newer one is a llama-server of its time and is recognised as that.

The first form is a llama.cpp server of early 2024 (one of that age from elsewhere behaves alike): it reuses a prompt
only when asked to, and streams without figures. The second, LLaMAfiler, reuses by itself and counts the prompt, but
not what came from the cache. Both drop old text without a word once the window is full.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kvchat.backends.base import MODELS_PATH, OneTokenWarmUp
from kvchat.backends.dialect import ChatTurn, ServerInfo
from kvchat.backends.http.payload import Responses, count_at, figures_at, models_in, owners, said
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.cache.causes.remedies import Change, Flags, Way
from kvchat.prompt.wire import whole_characters
from kvchat.text.servers import CACHED_TOKENS

PROPS_PATH = "/props"
OWNER = "llamafile"
SERVER_PREFIX = "llamafile/"
OLD_KEYS = frozenset({"user_name", "assistant_name"})
"""What the properties of the first form have, and those of a llama-server that tells its build have not."""


class LlamafileBackend(OneTokenWarmUp):
    kind = ServerKind(
        "llamafile",
        "llamafile",
        (8080,),
        Flags(
            window=Change("--ctx-size {whole}"),
            beside=Change("--parallel 2"),
            caching=Change("older versions cache only when asked with cache_prompt", way=Way.UPDATE),
        ),
        shows_template=True,
    )
    probes = (PROPS_PATH, MODELS_PATH)
    takes_template_options = False

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        props = said(responses, PROPS_PATH)
        is_old = props.fields.keys() >= OLD_KEYS and "build_info" not in props.fields
        return (is_old and _server(props.headers).startswith("llama.cpp")) or OWNER in owners(responses)

    async def described(self) -> ServerInfo:
        head, listing = await self.get_json(MODELS_PATH)
        models = models_in(listing)
        chosen = models.chosen
        props = said(await self.asked((PROPS_PATH,)), PROPS_PATH).fields
        server = _server(head.headers)
        counts = server.startswith(SERVER_PREFIX)
        return replace(
            self._info,
            model=chosen.id if chosen else "",
            listing=models.all,
            context_size=count_at(figures_at(props, "default_generation_settings"), "n_ctx") or None,
            slots=count_at(props, "total_slots") or None,
            build=whole_characters(server.removeprefix(SERVER_PREFIX)) if counts else "",
            takes_local_extras=True,
            figures=Figures.NONE,
            unknown=(
                (CACHED_TOKENS, "slots", "context size", "prompt progress")
                if counts
                else ("token counts", CACHED_TOKENS, "prompt progress")
            ),
        )

    def extras(self, turn: ChatTurn) -> dict[str, object]:
        return {"cache_prompt": True}


def _server(headers: Mapping[str, str]) -> str:
    return headers.get("server", "").strip().lower()
