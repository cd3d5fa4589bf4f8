"""vLLM: known by the owner of its models, also behind a proxy or a router that passes those on.

Its usage reports cache hits only when it was started with --enable-prompt-tokens-details; without that they are
derived from its counters if no other client used it meanwhile. Hits are whole blocks of tokens. `cache_salt` is never
sent: another salt is another cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import (
    BackendError,
    ChatTurn,
    Emit,
    Ended,
    ServerInfo,
    TemplateFacts,
    TemplateOption,
)
from kvchat.backends.http.payload import PayloadError, as_object, list_at, parsed
from kvchat.backends.kinds import KINDS, Figures
from kvchat.backends.template import Said, reasoning_kept
from kvchat.prompt.wire import canonical

METRICS_PATH, TOKENIZE_PATH = "/metrics", "/tokenize"
JSON = {"content-type": "application/json"}
METRICS_S = TOKENIZE_S = 2.0
THOUGHT_FIELD = "reasoning"
"""Of a message; it renamed `reasoning_content`."""


class VllmBackend(OneTokenWarmUp):
    kind = KINDS["vllm"]
    _lacks_details = False
    """Whether the last usage came without cache hits."""
    _has_counters = True
    """False once the server's counters could not be read."""

    async def describe(self) -> ServerInfo:
        self._lacks_details, self._has_counters = False, True
        described = await super().describe()
        drops, option = await self._reasoning(described.model)
        return replace(described, reasoning_option=option, template=TemplateFacts(drops_reasoning=drops))

    async def _reasoning(self, model: str) -> tuple[bool | None, TemplateOption | None]:
        """What becomes of earlier reasoning in a prompt, as its tokenizer shows (`TokenizeChatRequest`); its route may
        be missing behind a proxy, and older versions take no options."""

        async def prompt(messages: Sequence[Said], options: Mapping[str, object]) -> Sequence[object]:
            body = canonical({"model": model, "messages": list(messages), "chat_template_kwargs": options})
            head, answer = await self.ask("POST", TOKENIZE_PATH, TOKENIZE_S, headers=JSON, body=body)
            if head.status != 200:
                raise self._error(head, answer.decode("utf-8", "replace"))
            return list_at(as_object(parsed(answer.decode("utf-8", "replace")), "tokens"), "tokens")

        try:
            return await reasoning_kept(prompt, THOUGHT_FIELD)
        except (BackendError, PayloadError):
            return None, None

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """As ever; where the usage lacks the cache hits, they are derived from the server's counters."""
        before = await self._counters() if self._lacks_details else None
        ended = await super().chat(turn, emit)
        last = ended.reported
        if last.prompt_tokens is not None:
            self._lacks_details = last.cached_tokens is None
        if self._lacks_details and before is not None and (after := await self._counters()) is not None:
            cached = after.hits_of(last.prompt_tokens, before)
            if cached is not None:
                self._info = replace(self._info, figures=Figures.DERIVED)
                ended = replace(ended, reported=replace(last, cached_tokens=cached))
                emit(ended.reported)
        return ended

    async def _counters(self) -> Counters | None:
        if not self._has_counters or not self._info.takes_local_extras:
            return None
        try:
            head, body = await self.ask("GET", METRICS_PATH, METRICS_S)
        except BackendError:
            return None
        found = counters_in(body.decode("utf-8", "replace")) if head.status == 200 else None
        self._has_counters = found is not None
        return found


class Counters(Struct, frozen=True):
    """What the server has looked up in its prefix cache since it started, in tokens."""

    queries: int
    hits: int

    def hits_of(self, prompt_tokens: int | None, before: Counters) -> int | None:
        """The hits of the one request since `before`. None where others were counted too: then more tokens were
        looked up than this request's prompt has."""
        if prompt_tokens is None or self.queries - before.queries != prompt_tokens:
            return None
        hits = self.hits - before.hits
        return hits if 0 <= hits <= prompt_tokens else None


def counters_in(metrics: str) -> Counters | None:
    """The counters in Prometheus text, summed over the engines; None where they are missing."""
    sums: dict[str, float] = {}
    for line in metrics.splitlines():
        name, _, value = line.partition("{")
        if name in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"):
            try:
                sums[name] = sums.get(name, 0.0) + float(value.rpartition("}")[2])
            except ValueError:
                return None
    if len(sums) < 2 or not all(0 <= value < 2**53 for value in sums.values()):
        return None
    return Counters(int(sums["vllm:prefix_cache_queries_total"]), int(sums["vllm:prefix_cache_hits_total"]))
