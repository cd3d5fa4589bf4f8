"""Connecting: from a base URL to a backend that speaks the server's dialect."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.base import HttpBackend, Images, loading_delays, no_images
from kvchat.backends.dialect import PLAIN, Backend, BackendError, HostClass, ServerOptions, Trouble
from kvchat.backends.http.endpoint import Endpoint, Resolver, lookup, open_endpoint
from kvchat.backends.http.payload import Response
from kvchat.backends.http.transport import Clock
from kvchat.backends.kinds import CLOUD, KINDS, OPENAI, ServerKind
from kvchat.backends.recognition import ORDER, has, is_of, lists_nothing
from kvchat.text.faults import BUILT_IN


@cache
def backend_of(kind: ServerKind) -> type[HttpBackend]:
    """The class that speaks to a kind of server, imported when it is first asked for: start-up is a feature."""
    module, _, name = kind.code.rpartition(".")
    found: type[HttpBackend] = getattr(import_module(f"kvchat.backends.{module}"), name)
    return type(name, (found,), {"kind": kind}) if found.kind is not kind else found


async def connect(
    base_url: str,
    *,
    api_key: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
    allow_plain_http_key: bool = False,
    options: ServerOptions = PLAIN,
    embedded: bool = False,
    on_loading: Callable[[float], None] | None = None,
    clock: Clock | None = None,
    resolver: Resolver = lookup,
    images: Images = no_images,
) -> Backend:
    """The backend at `base_url`, identified. Raises BackendError with a sentence.

    A server that still loads its model is waited for, as long as `options` say, if `on_loading` is given: it is called
    with the seconds waited, before each wait. Otherwise that is an error too (`Trouble.LOADING`). `images`: gives those
    that messages name.
    """
    clock = clock or Clock()
    endpoint = await open_endpoint(
        base_url,
        api_key=api_key,
        ca_file=ca_file,
        proxy=proxy,
        allow_plain_http_key=allow_plain_http_key,
        resolver=resolver,
        options=options,
    )
    if embedded:
        endpoint = replace(endpoint, name=BUILT_IN)
    started = clock.now()
    limit = math.inf if options.wait_seconds is None else options.wait_seconds
    for delay in loading_delays():
        try:
            found: dict[str, Response] = {}
            kind = KINDS.get(options.kind) or await _recognised(endpoint, found, options)
            backend = backend_of(kind)(endpoint, embedded=embedded, clock=clock, options=options, images=images)
            backend.heard = found
            await backend.identify()
            return backend
        except errors.StillLoadingError:
            if on_loading is None or clock.now() - started >= limit:
                raise
            on_loading(clock.now() - started)
            await clock.sleep(delay)
    raise AssertionError("unreachable")


async def _recognised(endpoint: Endpoint, found: dict[str, Response], options: ServerOptions) -> ServerKind:
    """The kind of the server: each is asked for in turn, so that a common one costs few questions. What it answered is
    put into `found`. What it was before it still is where it is known by its models and has none now. Raises
    BackendError when nothing answers or it is still loading."""
    probe, usual = HttpBackend(endpoint), KINDS.get(options.usual_kind)
    is_cloud = endpoint.place.host_class is HostClass.CLOUD
    for kind in ORDER if options.is_brief and not is_cloud else ():
        if kind.sole is not None:
            found[kind.sole.path] = await _asked(probe, kind.sole.path)
            if has(kind.sole, found):
                return kind
    for kind in ORDER:
        if is_cloud and not kind.found_in_cloud:
            continue
        for path in kind.probes:
            if path not in found and not (kind.not_where and has(kind.not_where, found)):
                found[path] = await _asked(probe, path)
        if is_of(kind, found):
            return usual if usual and usual.owner and kind.name == OPENAI and lists_nothing(found) else kind
    return KINDS[CLOUD if is_cloud else OPENAI]


async def _asked(probe: HttpBackend, path: str) -> Response:
    """The answer to a GET; an empty one where this one path breaks off or points elsewhere."""
    try:
        head, body = await probe.get(path)
    except BackendError as error:
        if error.trouble is not Trouble.REFUSED:  # a redirect of this one path says nothing about the others
            raise
        return Response(0, {}, b"")
    if errors.is_loading(head.status, body.decode("utf-8", "replace")):
        raise errors.StillLoadingError(probe.url)
    return Response(head.status, head.headers, body)
