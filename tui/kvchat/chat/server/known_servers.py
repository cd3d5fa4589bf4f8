"""What servers were found out to be, over restarts: their kinds, and the fields that they refuse by name."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from kvchat.backends.kinds import OPENAI
from kvchat.chat.ground import Ground

if TYPE_CHECKING:
    from kvchat.backends.dialect import ServerInfo

KEY = "known server "
"""Of the store's settings, before the base URL."""


class KnownServer(Struct, frozen=True, omit_defaults=True):
    """A server as it was when it was last used."""

    kind: str = ""
    """The name of its kind; empty: by no sign of its own."""
    refused: tuple[str, ...] = ()
    """Optional fields of a request that it refused by name."""


class KnownServers:
    """The servers that were used on this store."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def at(self, base_url: str) -> KnownServer:
        """What is known of the server at this address."""
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(self._ground.setting(KEY + base_url) or "{}", type=KnownServer)
        return KnownServer()

    def recognised(self, info: ServerInfo) -> KnownServer:
        """A server was recognised: what is known of it. Another kind at its address refuses nothing yet."""
        kind = "" if info.kind == OPENAI else info.kind
        known = self.at(info.base_url)
        if known.kind != kind:
            known = KnownServer(kind)
            self._keep(info.base_url, known)
        return known

    def refuses(self, info: ServerInfo, field: str) -> None:
        """A server refused a field by name."""
        known = self.recognised(info)
        self._keep(info.base_url, KnownServer(known.kind, tuple(sorted({*known.refused, field}))))

    def _keep(self, base_url: str, known: KnownServer) -> None:
        value = msgspec.json.encode(known).decode()
        self._ground.in_background(self._ground.keep_setting(KEY + base_url, value))
