"""End the app: by the user's wish, by a signal, with its terminal, or by an unhandled error.

Whatever the reason, drafts and unsaved conversations are kept, the terminal is as it was, and what went wrong is one
sentence on stderr and status 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from kvchat.paths import PathError, Paths, folder, last_resorts
from kvchat.sanitize import one_line
from kvchat.text.problems import rescued_sentence

if TYPE_CHECKING:
    from textual.app import App

    from kvchat.chat.service import ChatService

HUNG_UP_S = 5.0
"""How long what is said and written may take to be kept when the terminal is gone."""


class Ending:
    """The end of one app."""

    def __init__(self, app: App[int], service: ChatService, paths: Paths) -> None:
        self.failure = ""
        """The sentence to print after an end that the user did not ask for; the status is 1 then."""
        self.last_word = ""
        """The sentence to print after one that was."""
        self._app = app
        self._service = service
        self._paths = paths
        self._lets_go = False
        self._is_hung_up = False

    def listen(self) -> None:
        """End properly when the system asks for it or the window is closed; also under nohup, where reading from a
        terminal that is gone would never end."""
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError, ValueError):  # in a thread
            loop.add_signal_handler(signal.SIGTERM, self._end_soon)
            loop.add_signal_handler(signal.SIGINT, self._end_soon)
            loop.add_signal_handler(signal.SIGHUP, self.hang_up)

    def leave(self, last_word: str = "", *, lets_go: bool = False) -> None:
        """End at the user's wish. `lets_go`: what is not saved is in a file already, or may be lost."""
        self.last_word = last_word
        self._lets_go = lets_go
        self._app.exit(0)

    def fail(self, sentence: str) -> None:
        """End because kvchat cannot go on."""
        self.failure = sentence
        self._app.exit(1)

    def crash(self, error: Exception) -> None:
        """Keep the details of an unhandled error before the screen closes."""
        from kvchat.logs import keep_details

        cause = getattr(error, "error", error)  # a worker's error comes wrapped
        if not self._service.incognito:
            with suppress(PathError):
                folder(self._paths.data)  # it may not exist before the service is opened
        log = keep_details(cause, None if self._service.incognito else self._paths.log)
        details = f"the details are in {log}" if log else "--log FILE keeps the details"
        self.failure = f"An internal error ({type(cause).__name__}) ended kvchat; {details}."

    def hang_up(self) -> None:
        """End because the terminal is gone, or somebody says so."""
        if self._is_hung_up:
            return
        self._is_hung_up = True
        if sys.__stdin__ is not None and os.isatty(sys.__stdin__.fileno()):
            self._end_soon()  # it is there, and is to be given back as it was
        else:
            self._app.run_worker(self._hung_up(), group="end")

    async def close_service(self) -> None:
        """End the service. What it could not save goes to a file, unless the user has given it up."""
        rescued = await self._service.aclose(() if self._lets_go else last_resorts())
        if rescued is not None:
            words = rescued_sentence(rescued.conversations, rescued.path, rescued.reason)
            self.failure = f"{self.failure} {words}".strip()

    def _end_soon(self) -> None:
        self.leave()

    async def _hung_up(self) -> None:
        """Keep what there is and end at once: there is no screen to take down."""
        with suppress(Exception):
            async with asyncio.timeout(HUNG_UP_S):
                await self.close_service()
        if self.failure:
            with suppress(OSError):
                os.write(2, f"kvchat: {one_line(self.failure)}\n".encode())
        os._exit(1 if self.failure else 0)
