"""LM Studio: its own listing tells what is loaded and how; it reports no cache hits.

Only documented fields go out. It answers unknown paths with 200, so only the shape of a listing counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from kvchat import values
from kvchat.backends import errors
from kvchat.backends.dialect import BackendError, ChatTurn, Ended, ServerInfo
from kvchat.backends.dialects.program import ProgramBackend
from kvchat.backends.http.payload import (
    Model,
    Models,
    count_at,
    figures_at,
    is_object,
    list_at,
    sees_in,
    text_at,
)
from kvchat.backends.kinds import KINDS, Figures
from kvchat.prompt.message import NoteKind
from kvchat.prompt.wire import whole_characters
from kvchat.text.servers import CACHED_TOKENS

USUAL_IDLE_S = 3600

_SPAN = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,6})m(?:in)?)?(?:(\d{1,8})s?)?", re.IGNORECASE)


class LMStudioBackend(ProgramBackend):
    kind = KINDS["lmstudio"]

    async def describe(self) -> ServerInfo:
        listing, slots = await self._listed()
        chosen = Models(listing).chosen
        return replace(
            self._info,
            model=chosen.id if chosen and chosen.chats else "",
            listing=listing,
            context_size=chosen.context_size if chosen else None,
            slots=slots.get(chosen.id) if chosen else None,
            figures=Figures.NONE,
            unloads=self._unloads(),
            unknown=(CACHED_TOKENS, *(() if slots else ("slots",))),
        )

    async def _listed(self) -> tuple[tuple[Model, ...], dict[str, int]]:
        """The models, and how many requests each loaded one takes at once. Raises BackendError, PayloadError."""
        slots: dict[str, int] = {}
        for path in self.kind.probes:
            try:
                _, found = await self.get_json(path)
            except BackendError as error:
                if error.status != 404:
                    raise
                continue
            if is_object(found) and isinstance(found.get("models"), list):
                entries = [entry for entry in list_at(found, "models") if is_object(entry)]
                return tuple(model for entry in entries for model in _models_of(entry, slots)), slots
            if is_object(found) and isinstance(found.get("data"), list):
                return tuple(
                    _old_model(entry) for entry in list_at(found, "data") if is_object(entry) and text_at(entry, "id")
                ), slots
        found = await self.listed()
        return found.all, slots

    def _unloads(self) -> str:
        seconds = seconds_of(self._options.keep_alive)
        if seconds is None:
            return f"after {USUAL_IDLE_S // 60} min without use, if it was loaded on demand (server.keep_alive)"
        span = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
        return f"after {span} without use, if it was loaded on demand (server.keep_alive)"

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields = super().head(turn)
        if seconds := seconds_of(self._options.keep_alive):
            fields["ttl"] = seconds
        if effort := turn.template_options.get("reasoning_effort"):
            fields["reasoning_effort"] = effort
        return fields

    def _explained_end(self, ended: Ended) -> Ended:
        ended = super()._explained_end(ended)
        if ended.remark is None or ended.remark.kind != NoteKind.NO_WORDS:
            return ended
        return replace(ended, remark=values.said(NoteKind.NOT_FITTING, title=self.kind.title, room=self.kind.room))


def seconds_of(span: str) -> int | None:
    """`30m`, `1h30m`, `90s` or a bare number as seconds; None for what LM Studio has no number for (for ever)."""
    found = _SPAN.fullmatch(span.strip())
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds or None


def _models_of(entry: Mapping[str, object], slots: dict[str, int]) -> Iterator[Model]:
    """One model of the listing: each loaded instance, under its own name, or the file on the disk."""
    key = text_at(entry, "key")
    if not key:
        return
    quantization = figures_at(entry, "quantization")
    longest = count_at(entry, "max_context_length")
    words = [
        text_at(entry, "params_string"),
        text_at(quantization, "name"),
        text_at(entry, "format"),
        f"up to {longest:,} tokens" if longest else None,
    ]
    model = Model(
        whole_characters(key),
        whole_characters(text_at(entry, "publisher") or ""),
        loaded=False,
        size=count_at(entry, "size_bytes") or None,
        about=errors.quoted(", ".join(filter(None, words))),
        chats=entry.get("type") != "embedding",
        sees=sees_in(entry),
    )
    instances = [instance for instance in list_at(entry, "loaded_instances") if is_object(instance)]
    if not instances:
        yield model
    for instance in instances:
        config = figures_at(instance, "config")
        name = whole_characters(text_at(instance, "id") or key)
        if parallel := count_at(config, "parallel"):
            slots[name] = parallel
        yield replace(model, id=name, loaded=True, context_size=count_at(config, "context_length") or None)


def _old_model(entry: Mapping[str, object]) -> Model:
    """One model of the listing before 0.4."""
    state = entry.get("state")
    longest = count_at(entry, "max_context_length")
    words = [
        text_at(entry, "quantization"),
        text_at(entry, "compatibility_type"),
        f"up to {longest:,} tokens" if longest else None,
    ]
    return Model(
        whole_characters(text_at(entry, "id") or ""),
        whole_characters(text_at(entry, "publisher") or ""),
        count_at(entry, "loaded_context_length") or None,
        state == "loaded" if isinstance(state, str) else None,
        about=errors.quoted(", ".join(filter(None, words))),
        chats=entry.get("type") != "embeddings",
        sees=entry.get("type") == "vlm" if isinstance(entry.get("type"), str) else None,
    )
