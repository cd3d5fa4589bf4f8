"""What a person is told once in an installation, and never again."""

from __future__ import annotations

from kvchat.chat.keeper import Keeper
from kvchat.store import Store, StoreError


class Once:
    """Notes in the store what was told. A disk that refuses makes it once per run."""

    def __init__(self, store: Store, keeper: Keeper) -> None:
        self._store = store
        self._keeper = keeper
        self._told: set[str] = set()

    async def first(self, what: str) -> bool:
        """Whether `what` was not told before; from now on it was."""
        if what in self._told:
            return False
        self._told.add(what)
        key = f"told {what}"
        try:
            if self._store.setting(key):
                return False
        except StoreError:
            pass
        await self._keeper.write(lambda: self._store.set_setting(key, "yes"))
        return True
