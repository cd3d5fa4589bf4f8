"""What a screen does when something that was asked for fails.

The rule: it is told where the person looks; a disk or a store that fails must not end the app.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TypeVar

from kvchat.chat.errors import ChatError

log = logging.getLogger(__name__)
T = TypeVar("T")


class Trying:
    """A screen with a line for sentences."""

    def tell(self, text: str, *, bad: bool = False) -> None:
        """Show a sentence; `bad`: something is wrong."""
        raise NotImplementedError

    async def tried(self, act: Awaitable[T]) -> T | None:
        """What `act` gives; None when it fails, which is told."""
        try:
            return await act
        except Exception as error:
            if not isinstance(error, ChatError):
                log.info("%s", type(self).__name__, exc_info=True)
            self.tell(str(error) or type(error).__name__, bad=True)
            return None
