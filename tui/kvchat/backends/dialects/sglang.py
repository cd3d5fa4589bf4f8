"""SGLang: known by the owner of its models, or by what it says at its root.

It tells cache hits only when started with --enable-cache-report. The session goes out as `session_id` alone: together
with `session_params` it refuses the request. Its health check is never asked, because an idle server generates a token
for it and one that reads a long prompt does not answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from kvchat.backends.base import MODELS_PATH, OneTokenWarmUp
from kvchat.backends.dialect import ChatTurn, ServerInfo
from kvchat.backends.http.payload import Responses, count_at, flag_at, owners, said, text_at
from kvchat.backends.kinds import Continuing, Figures, ServerKind
from kvchat.backends.local_template import template_here
from kvchat.backends.template import facts_of_text, reasoning_option_in
from kvchat.cache.causes.remedies import Change, Flags
from kvchat.prompt.wire import whole_characters
from kvchat.text.servers import CACHED_TOKENS

ROOT_PATH, INFO_PATH, MODEL_INFO_PATH = "/", "/server_info", "/get_model_info"
OWNER = "sglang"
ROOT_TEXT = "SGLang is running"


class SglangBackend(OneTokenWarmUp):
    kind = ServerKind(
        "sglang",
        "SGLang",
        (30000,),
        Flags(
            window=Change("--context-length {size}"),
            no_caching="--disable-radix-cache",
            report="--enable-cache-report",
            cache_room="--mem-fraction-static",
            template="--chat-template FILE",
        ),
        keeps_many=True,
        answers_many=True,
        continuing=Continuing.TEXT,
    )
    found_in_cloud = True
    probes = (MODELS_PATH, ROOT_PATH)
    continue_fields: ClassVar[Mapping[str, object]] = {"continue_final_message": True}

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        root = said(responses, ROOT_PATH)
        return OWNER in owners(responses) or (root.status == 200 and root.text.strip().strip('"') == ROOT_TEXT)

    async def described(self) -> ServerInfo:
        models = await self.listed()
        chosen = models.chosen
        # An older server, a router, or one whose scheduler is busy says nothing.
        said_of_itself = await self.told_at(INFO_PATH)
        model_info = await self.told_at(MODEL_INFO_PATH)
        version = said_of_itself.get("version")
        template = await template_here(self._info, text_at(said_of_itself, "model_path") or "")
        reports = said_of_itself.get("enable_cache_report") is not False
        return replace(
            self._info,
            model=chosen.id if chosen else "",
            listing=models.all,
            context_size=(chosen.context_size if chosen else None)
            or count_at(said_of_itself, "context_length")
            or None,
            build=whole_characters(version) if isinstance(version, str) else "",
            takes_local_extras=True,
            reasoning_option=reasoning_option_in(template),
            template=facts_of_text(template),
            sees=flag_at(model_info, "has_image_understanding"),
            figures=Figures.AFTER if reports else Figures.NONE,
            unknown=("slots", "prompt progress") if reports else (CACHED_TOKENS, "slots", "prompt progress"),
        )

    def head(self, turn: ChatTurn) -> dict[str, object]:
        """With the usage on every part of the answer: a stopped answer has its figures too, and a cold prompt says
        0, which the last usage leaves out."""
        fields = super().head(turn)
        if self.info.takes_local_extras:
            fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        return fields
