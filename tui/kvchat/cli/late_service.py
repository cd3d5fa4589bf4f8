"""The conversation service for the app, opened when it is first asked for something.

The rule: whoever has it cannot tell it from the service itself. Its modules are half of what is imported, and the first
frame needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvchat.config import Settings

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.chat.unsaved import Rescued


def late(settings: Settings, begin: Callable[[], ChatService], *, incognito: bool) -> ChatService:
    """A service that `begin` opens, once, as soon as more is asked of it than its settings and whether it is incognito.
    Whoever asks gets what `begin` raises."""
    return cast("ChatService", _Late(settings, begin, incognito))


class _Late:
    def __init__(self, settings: Settings, begin: Callable[[], ChatService], incognito: bool) -> None:
        vars(self).update(settings=settings, incognito=incognito, _begin=begin)

    def _opened(self) -> ChatService:
        own = vars(self)
        if "_service" not in own:
            own["_service"] = own["_begin"]()
            del own["settings"]  # the service's own from now on: they can be changed
        return cast("ChatService", own["_service"])

    async def aclose(self, rescue: Sequence[Path] = ()) -> Rescued | None:
        return await self._opened().aclose(rescue) if "_service" in vars(self) else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._opened(), name, value)
