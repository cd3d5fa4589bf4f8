"""SGLang: known by the owner of its models, or by what it says at its root.

It tells cache hits only when started with --enable-cache-report. The session goes out as `session_id` alone: together
with `session_params` it refuses the request. Its health check is never asked, because an idle server generates a token
for it and one that reads a long prompt does not answer it.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import ServerInfo
from kvchat.backends.http.payload import text_at
from kvchat.backends.kinds import KINDS, Figures
from kvchat.backends.local_template import template_here
from kvchat.backends.template import facts_of_text, reasoning_option_in
from kvchat.text.servers import CACHED_TOKENS


class SglangBackend(OneTokenWarmUp):
    kind = KINDS["sglang"]

    async def describe(self) -> ServerInfo:
        described = await super().describe()
        about = self.pages.get("/server_info", {})  # empty of an older server, a router, or one that is busy
        template = await template_here(self._info, text_at(about, "model_path") or "")
        described = replace(described, reasoning_option=reasoning_option_in(template), template=facts_of_text(template))
        if about.get("enable_cache_report") is not False:
            return described
        return replace(described, figures=Figures.NONE, unknown=(CACHED_TOKENS, *described.unknown))
