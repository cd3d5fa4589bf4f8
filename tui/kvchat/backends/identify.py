"""Connecting: from a base URL to a backend that speaks the server's dialect."""

from __future__ import annotations

from collections.abc import Callable

from kvchat.backends import errors
from kvchat.backends.base import MODELS_PATH, HttpBackend, loading_delays
from kvchat.backends.dialect import Backend, BackendError, Trouble
from kvchat.backends.endpoint import Endpoint, open_endpoint
from kvchat.backends.hosts import Resolver, lookup
from kvchat.backends.llamacpp import OWNER, PROPS_PATH, LlamaCppBackend, is_llamacpp
from kvchat.backends.models import models_in
from kvchat.backends.openai import OpenAIBackend
from kvchat.backends.payload import PayloadError, is_object, parsed
from kvchat.backends.tasks import Clock


async def connect(
    base_url: str, *, api_key: str | None = None, ca_file: str | None = None, proxy: str | None = None,
    allow_plain_http_key: bool = False, embedded: bool = False, on_loading: Callable[[float], None] | None = None,
    clock: Clock | None = None, resolver: Resolver = lookup,
) -> Backend:
    """The backend at `base_url`, identified. Raises BackendError with a sentence.

    A server that still loads its model is waited for, without limit, if `on_loading` is given: it is called with
    the seconds waited, before each wait. Otherwise that is an error too (`Trouble.LOADING`).
    """
    clock = clock or Clock()
    endpoint = await open_endpoint(base_url, api_key=api_key, ca_file=ca_file, proxy=proxy,
                                   allow_plain_http_key=allow_plain_http_key, resolver=resolver)
    started = clock.now()
    for delay in loading_delays():
        try:
            dialect = await _recognised(endpoint)
            backend = dialect(endpoint, embedded=embedded, clock=clock)
            await backend.identify()
            return backend
        except errors.StillLoadingError:
            if on_loading is None:
                raise
            on_loading(clock.now() - started)
            await clock.sleep(delay)
    raise AssertionError("unreachable")


async def _recognised(endpoint: Endpoint) -> type[HttpBackend]:
    """The dialect of the server. Raises BackendError when nothing answers or it is still loading."""
    probe = HttpBackend(endpoint)
    try:
        head, body = await probe.get(PROPS_PATH)
    except BackendError as error:
        if error.trouble is not Trouble.REFUSED:  # a redirect of this one path says nothing about the others
            raise
    else:
        text = body.decode("utf-8", "replace")
        if errors.is_loading(head.status, text):
            raise errors.StillLoadingError(probe.url)
        if is_llamacpp(head):
            return LlamaCppBackend
        if head.status == 200 and _has_settings(text) and await _owned_by_llamacpp(probe):
            return LlamaCppBackend
    return OpenAIBackend


def _has_settings(text: str) -> bool:
    try:
        value = parsed(text)
    except PayloadError:
        return False
    return is_object(value) and "default_generation_settings" in value


async def _owned_by_llamacpp(probe: HttpBackend) -> bool:
    """Whether this is llama.cpp behind a proxy that replaces the `Server` header."""
    _, listing = await probe.get_json(MODELS_PATH)
    try:
        return any(model.owner == OWNER for model in models_in(listing).all)
    except PayloadError:
        return False
