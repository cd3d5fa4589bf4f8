"""How a server is spoken to: its settings, its key, and what is kept of it over restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat import logs
from kvchat.backends.dialect import Backend, Trouble, failure
from kvchat.config import ConfigError, ServerSettings, api_key
from kvchat.text.faults import Fault

if TYPE_CHECKING:  # HTTP is imported when it is used: after the first paint
    from kvchat.backends.dialect import ServerOptions
    from kvchat.chat.server.known_servers import KnownServers


class ServerAccess:
    """Connects to servers at addresses."""

    def __init__(
        self,
        *,
        profile: str = "",
        images: Callable[[str], bytes | None] = lambda _: None,
        names_model: Callable[[], bool] = lambda: False,
        wait_seconds: Callable[[], float | None] = lambda: None,
        is_brief: Callable[[], bool] = lambda: False,
        known: KnownServers | None = None,
    ) -> None:
        """`profile`: the one whose settings are used; empty: those of no profile. `images`: gives the images that
        messages name. `names_model`: whether the settings, or a conversation, name a model. `wait_seconds`: how long
        a server that loads its model is waited for. `is_brief`: as of `ServerOptions`. `known`: what is kept of servers
        over restarts."""
        self.profile = profile
        self._images = images
        self._names_model = names_model
        self._wait_seconds = wait_seconds
        self._is_brief = is_brief
        self._known = known

    async def connect(
        self, base_url: str, server: ServerSettings, on_loading: Callable[[float], None] | None = None
    ) -> Backend:
        """The server at an address, identified, with these settings. Raises BackendError."""
        from kvchat.backends.base import HttpBackend
        from kvchat.backends.http.endpoint import parse_base_url
        from kvchat.backends.identify import connect

        options = replace(
            server_options(server),
            names_model=self._names_model(),
            wait_seconds=self._wait_seconds(),
            is_brief=self._is_brief(),
        )
        if (known := self._known) is not None:
            options = replace(options, usual_kind=known.at(str(parse_base_url(base_url))).kind)
        backend = await connect(
            base_url,
            api_key=await asyncio.to_thread(self._api_key, server),
            ca_file=server.ca_file or None,
            proxy=server.proxy or None,
            allow_plain_http_key=server.allow_plain_http_key,
            options=options,
            on_loading=on_loading,
            images=self._images,
        )
        if known is not None and isinstance(backend, HttpBackend):
            info = backend.info
            backend.leave_out(known.recognised(info).refused, lambda field: known.refuses(info, field))
        return backend

    def _api_key(self, server: ServerSettings) -> str | None:
        """The key of this server's settings; no other one is shown it."""
        try:
            key = api_key(server, name=f"profiles.{self.profile}" if self.profile else "server")
        except ConfigError as error:
            raise failure(Trouble.UNAUTHORIZED, Fault.TOLD, sentence=str(error)) from None
        for secret in (key, *server.headers.values()):
            logs.hide(secret)
        return key


def server_options(server: ServerSettings) -> ServerOptions:
    """How a server is spoken to, from its settings."""
    from kvchat.backends.dialect import ServerOptions

    return ServerOptions(
        kind=server.kind,
        headers=server.headers,
        connect_seconds=server.timeout or None,
        locality=server.locality,
        session_headers=server.session_headers,
        session_fields=server.session_fields,
        context_size=server.context_size or None,
        keep_alive=server.keep_alive,
    )
