"""The list of models at `/v1/models`, in the shapes that servers give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.backends.payload import as_object, count_at, figures_at, is_object, list_at, text_at
from kvchat.prompt.wire import whole_characters


@dataclass(frozen=True, slots=True)
class Model:
    """One model of a server."""

    id: str
    owner: str = ""
    context_size: int | None = None
    loaded: bool | None = None
    """Whether the model is in memory; None where the server does not say."""
    size: int | None = None
    """Bytes on the server's disk or in its memory."""
    about: str = ""
    """Quantisation and the like, in the server's words."""
    remote: str = ""
    """Where the server passes the text on to, when it does not answer itself: another machine's name."""
    chats: bool = True
    """False for a model that only makes embeddings and the like."""


@dataclass(frozen=True, slots=True)
class Models:
    """All models of a server, in its order."""

    all: tuple[Model, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.all)

    @property
    def chosen(self) -> Model | None:
        """The model to talk to when the person names none: one that is loaded, else the first that can chat."""
        chatty_ones = [model for model in self.all if model.chats and "embed" not in model.id.lower()]
        loaded = next((model for model in chatty_ones if model.loaded), None)
        chatty = chatty_ones[0] if chatty_ones else None
        return loaded or chatty or (self.all[0] if self.all else None)


def models_in(listing: object) -> Models:
    """The models in the answer of `/v1/models`. Raises PayloadError."""
    entries = listing if isinstance(listing, list) else list_at(as_object(listing, "a list of models"), "data")
    return Models(tuple(_model(entry) for entry in entries if is_object(entry) and text_at(entry, "id")))


def _model(entry: Mapping[str, object]) -> Model:
    context = count_at(figures_at(entry, "meta"), "n_ctx") or count_at(entry, "max_model_len") \
        or count_at(entry, "context_length") or None
    status = entry.get("status")
    loaded = status.get("value") == "loaded" if is_object(status) else None
    owner = entry.get("owned_by")
    return Model(whole_characters(text_at(entry, "id") or ""),
                 whole_characters(owner) if isinstance(owner, str) else "", context, loaded)
