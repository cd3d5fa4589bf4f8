"""Services on the internet with the OpenAI chat interface: OpenAI, OpenRouter, DeepSeek and others.

They get the fields of that interface and nothing else. What names the conversation goes out only where the
service is known to take it, and as nothing but a key to its cache; session headers only if the settings name them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import BackendError, ChatTurn
from kvchat.backends.errors import unknown_field
from kvchat.backends.http.payload import Model, Models, chats_in, count_at, figures_at, is_object, models_in
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import CLOUD, KINDS

CACHE_KEY = "prompt_cache_key"
CACHE_KEY_HOSTS = ("api.openai.com", "openrouter.ai", "api.llmgateway.io")
"""Services, with their regional names in front, that take a key by which a conversation finds its cache again. Others
may refuse a field they do not know."""
OLD_LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"
EFFORT = "reasoning_effort"
SIZES = ("context_length", "max_context_length", "context_window", "max_input_tokens")
"""Where lists of models tell the context size."""
CACHED = ("prompt_cache_hit_tokens", "cached_tokens")
"""Where a usage without details tells what came from the cache."""

_NOT_CHAT = re.compile(
    r"embed|whisper|\btts\b|dall-e|moderation|transcribe|realtime|audio|image|sora|davinci|babbage|"
    r"rerank",
    re.IGNORECASE,
)


class CloudAnswer(ChatAnswer):
    """A chat answer, with the cache figures where the service has them."""

    def take(self, payload: Payload) -> None:
        value = payload.value
        super().take(replace(payload, value=_in_common_shape(value)) if is_object(value) else payload)


class CloudBackend(HttpBackend):
    """Taken for every host on the internet, whatever it answers."""

    kind = KINDS[CLOUD]
    answers = CloudAnswer

    async def listed(self) -> Models:
        """The models, with what the list says of each. A service without a list is used by a model's name."""
        try:
            listing = await self.listing()
        except BackendError as error:
            if error.status not in (404, 405):
                raise
            return Models(())
        entries = listing.get("data") if is_object(listing) else listing
        found = [entry for entry in entries if is_object(entry)] if isinstance(entries, list) else []
        known = {str(entry.get("id")): entry for entry in found}
        return Models(tuple(_with(model, known.get(model.id, {})) for model in models_in(listing).all))

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields = super().head(turn)
        effort = turn.template_options.get(EFFORT)
        return {**fields, EFFORT: effort} if isinstance(effort, str) and effort else fields

    def _session_fields(self) -> tuple[str, ...]:
        if self._options.session_fields is not None:
            return self._options.session_fields
        host = f".{self._endpoint.url.host}"
        return (CACHE_KEY,) if any(host.endswith(f".{known}") for known in CACHE_KEY_HOSTS) else ()

    def headers(self, turn: ChatTurn) -> dict[str, str]:
        names = self._options.session_headers or ()
        return {"content-type": "application/json"} | dict.fromkeys(names, turn.session_id)

    def body(self, turn: ChatTurn) -> bytes:
        limit = turn.parameters.max_tokens
        if limit is not None and OLD_LIMIT in self._refused_fields:
            extra = {NEW_LIMIT: limit, **turn.parameters.extra}
            turn = replace(turn, parameters=replace(turn.parameters, max_tokens=None, extra=extra))
        return super().body(turn)

    def _refused_field(self, body: str, sent: Collection[str]) -> str:
        """A service that has a new name for the largest length refuses the old one, before it begins."""
        if NEW_LIMIT in body and unknown_field(body, sent) == OLD_LIMIT:
            return OLD_LIMIT
        return super()._refused_field(body, sent)


def _in_common_shape(part: Mapping[str, object]) -> Mapping[str, object]:
    """`part` of an answer with its usage where OpenAI has it: others put it into the choice, or the cached tokens
    next to the details instead of into them."""
    choices = part.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and is_object(choices[0]) else {}
    usage = figures_at(part, "usage") or figures_at(choice, "usage")
    details = figures_at(usage, "prompt_tokens_details")
    if not usage or (count_at(details, "cached_tokens") is not None and "usage" in part):
        return part
    cached = next((count for name in CACHED if (count := count_at(usage, name)) is not None), None)
    if cached is not None and count_at(details, "cached_tokens") is None:
        usage = {**usage, "prompt_tokens_details": {**details, "cached_tokens": cached}}
    return {**part, "usage": usage}


def _with(model: Model, entry: Mapping[str, object]) -> Model:
    sizes = (count_at(entry, name) for name in SIZES)
    size = model.context_size or next((size for size in sizes if size), None)
    return replace(model, context_size=size, chats=model.chats and _chats(model.id, entry))


def _chats(name: str, entry: Mapping[str, object]) -> bool:
    """Whether a model answers in words: as the list says, or else as its name does."""
    says = chats_in(entry)
    return not _NOT_CHAT.search(name) if says is None else says
