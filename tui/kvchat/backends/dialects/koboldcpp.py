"""KoboldCpp: one KV cache for all, no cache figures; how fast it read is told afterwards, which gives an estimate.

The rule: never `timings_per_token`: it makes KoboldCpp take the last message for an unfinished one. A prompt that is
too long loses its beginning without a word, so the counts are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from kvchat.backends.base import MODELS_PATH
from kvchat.backends.dialect import ChatTurn, Reported, ServerInfo, Trouble
from kvchat.backends.dialects.program import Expected, ProgramBackend, Remedy, Seen
from kvchat.backends.dialects.tabbyapi import SERVICE_PATH, service_name
from kvchat.backends.http.payload import (
    Models,
    Responses,
    count_at,
    figure_at,
    flag_at,
    models_in,
    owners,
    text_at,
)
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.cache.causes.remedies import Change, Flags
from kvchat.prompt.wire import whole_characters

VERSION_PATH, CONTEXT_PATH, PERF_PATH = ("/api/extra/version", "/api/extra/true_max_context_length", "/api/extra/perf")
PERF_S = 2.0
NO_MODEL = "inactive"
OVERHEAD_S = 0.5
"""The first token never comes sooner, whatever was cached."""
TELLING = 10
"""A cold read has to take this many times the overhead before the wait says something."""


class KoboldCppBackend(ProgramBackend):
    kind = ServerKind(
        "koboldcpp",
        "KoboldCpp",
        (5001,),
        Flags(window=Change("--contextsize {size}"), beside=Change("--smartcache")),
        shows_template=True,
    )
    probes = (SERVICE_PATH,)
    health_path = VERSION_PATH
    ignores_model = True
    room = "start KoboldCpp with a larger --contextsize"
    keys = "KoboldCpp's key is what it was started with as --password."
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            "server is busy",
            "is busy with another request and takes one at a time. Try again when that is done, "
            "or start it with --multiuser.",
            Trouble.RATE_LIMITED,
        ),
        Remedy(
            "requests too quickly",
            "takes no more requests now. Try again later, or start it without --ratelimit.",
            Trouble.RATE_LIMITED,
        ),
        Remedy(
            "payload is too big",
            "finds the request too large. Start a new conversation, or start it with a larger --maxrequestsize.",
        ),
    )

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """By its name at the well-known address, else by the owner of its models."""
        return service_name(responses) == "koboldcpp" or "koboldcpp" in owners(responses)

    async def described(self) -> ServerInfo:
        _, listing = await self.get_json(MODELS_PATH)
        entries = models_in(listing).all
        # all are said to be loaded, but only the first one is
        models = Models(
            tuple(
                replace(model, loaded=place == 0 and model.id != NO_MODEL, chats=model.id != NO_MODEL)
                for place, model in enumerate(entries)
            )
        )
        chosen = models.chosen
        version, window = await self.told_at(VERSION_PATH), await self.told_at(CONTEXT_PATH)
        context = count_at(window, "value") or None
        return replace(
            self._info,
            model=chosen.id if chosen and chosen.chats else "",
            listing=tuple(replace(model, context_size=context) if model.loaded else model for model in models.all),
            context_size=context,
            build=whole_characters(text_at(version, "version") or ""),
            figures=Figures.ESTIMATED,
            sees=flag_at(version, "vision"),
            unknown=("slots",),
        )

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields = super().head(turn)
        if effort := turn.template_options.get("reasoning_effort"):
            fields["reasoning_effort"] = effort
        return fields

    async def judge(self, turn: ChatTurn, seen: Seen, expected: Expected | None) -> None:
        try:
            async with asyncio.timeout(PERF_S):
                found = estimated(seen.reported, seen.waited, await self.told_at(PERF_PATH))
        except TimeoutError:
            return
        if found is not None:
            seen(found)


def estimated(known: Reported, waited: float | None, perf: Mapping[str, object]) -> Reported | None:
    """`known` with the cached tokens that follow from the wait for the first token, in seconds, and the speed of
    reading; None where that says nothing, or the figures are those of another request."""
    prompt, cold = known.prompt_tokens, figure_at(perf, "last_process_time")
    is_ours = (
        count_at(perf, "last_input_count") == prompt
        and perf.get("idle") == 1
        and count_at(perf, "last_token_count") == known.predicted_tokens
    )
    if not prompt or not cold or waited is None or not is_ours:
        return None  # `cold`: how long the whole prompt would take at the speed at which a part of it was read
    if cold < OVERHEAD_S * TELLING and waited < 2 * OVERHEAD_S:
        return None
    cached = round(prompt * (1 - min(1.0, waited / cold)))
    return replace(known, cached_tokens=min(cached, prompt - 1), estimated=True)
