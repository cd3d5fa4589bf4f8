"""The states that a server which is not the embedded engine has saved for kvchat, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from kvchat.backends import kinds
from kvchat.backends.dialect import Backend, HostClass, ServerInfo
from kvchat.chat.cache.states.snapshots import Snapshots


class ServerSaves:
    """The saved states of one server at a time: of the one that was asked for last."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: of what is known of the states of such servers; None: nothing is."""
        self._folder = folder
        self._info: ServerInfo | None = None
        """The server; None: none that saves states, as far as it was asked."""
        self.snapshots = Snapshots(None)

    async def of(self, backend: Backend, folder: str | None, *, known_only: bool) -> Snapshots:
        """The saved states of a server, with what is to be asked of it and read from the disk. `folder`: where it
        saves them, as far as that is known (empty: it is not); None: it shall save none. `known_only`: not of one that
        was not found to save slots before."""
        info = backend.info
        if self._info is info:
            return self.snapshots
        if self._folder is None or folder is None or not saves_states(info):
            self._info, self.snapshots = info, Snapshots(None)
            return self.snapshots
        from kvchat.backends.engine.server_snapshots import shelf_of

        shelf = shelf_of(self._folder, info.place, folder)
        if known_only and not shelf.folder.exists():
            self._info, self.snapshots = None, Snapshots(None)
            return self.snapshots
        self._info, self.snapshots = info, Snapshots(None, shelf=shelf)
        await self.snapshots.use_server(backend)
        return self.snapshots


def saves_states(info: ServerInfo) -> bool:
    """Whether a server may be asked to save states of conversations in a folder of its own."""
    return kinds.kind_of(info.kind).is_tracked and info.host_class is not HostClass.CLOUD and not info.replicas
