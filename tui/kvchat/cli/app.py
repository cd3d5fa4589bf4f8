"""`kvchat`: the app, with a service that is opened when it is first asked for something; or plain mode.

Whoever has that service cannot tell it from the service itself. Its modules are half of what is imported, and
the first frame needs none of them.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvchat.cli.session import CommandError, Session, UsageError, print_notices
from kvchat.config import ConfigError

if TYPE_CHECKING:
    from kvchat.chat.conversations.unsaved import Rescued
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers
    from kvchat.store import Store


def run(session: Session) -> int:
    """Open the app, and return the exit status when it is left. Raises CommandError."""
    args, settings = session.args, session.settings
    if "TEXTUAL_DRIVER" not in os.environ:  # else a page is its terminal
        if args.plain or settings.plain:
            return _plain(session)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("The app needs a terminal. To use kvchat in a script: kvchat ask TEXT")
        if os.environ.get("TERM") == "dumb":
            return _plain(session)
    gc.disable()  # until the first paint, when the app turns it on: imports make much that stays and little garbage
    from kvchat.ui.app import KvchatApp

    app = KvchatApp(
        cast("ChatService", LateService(session)),
        session.places,
        notices=map(str, session.problems),
        continue_=args.continue_,
        conversation=args.conversation,
        layers=lambda: _layers(session),
        persona=args.persona,
        trunk=args.trunk,
    )
    try:
        app.run(mouse=settings.mouse)
    except Exception as error:
        app.ending.crash(error)
    if app.ending.failure:
        raise CommandError(app.ending.failure)
    if app.ending.last_word:
        print_notices([app.ending.last_word])
    return app.return_code or 0


def _plain(session: Session) -> int:
    """Converse line by line, and return the exit status when that is left. Raises CommandError."""
    from kvchat.chat.errors import ChatError
    from kvchat.cli.plain_output import Printer
    from kvchat.plain.run import First, run

    args = session.args
    try:
        failure = run(
            lambda: _begin_service(session, _open_store(session)),
            Printer(sys.stdout),
            session.places,
            lambda: _layers(session),
            First(args.continue_, args.conversation, args.persona, args.trunk),
            [*map(str, session.problems)],
        )
    except ChatError as error:
        raise CommandError(str(error)) from None
    if failure:
        raise CommandError(failure)
    return 0


def _open_store(session: Session) -> Store:
    """Raises ChatError."""
    from kvchat.chat.errors import ChatError
    from kvchat.store import StoreError

    try:
        return session.opened_store()
    except StoreError as error:
        raise ChatError.of(error) from None


def _begin_service(session: Session, store: Store) -> ChatService:
    """The service of somebody who is there."""
    service = session.service_on(store)
    service.warm_up.enabled = service.servers.connects_ahead = service.servers.waits = service.jobs.enabled = True
    return service


def _layers(session: Session) -> Layers:
    """The settings as they are now. Raises ConfigError."""
    try:
        return session.layers()
    except CommandError as error:
        raise ConfigError(str(error)) from None


class LateService:
    """The service of an app: its store is opened when that is first asked for, which is all that the list needs; the
    rest as soon as more is asked for than settings, clock and whether it is incognito. Both raise ChatError."""

    def __init__(self, session: Session) -> None:
        settings, incognito = session.settings, session.args.incognito
        vars(self).update(_session=session, settings=settings, incognito=incognito, clock=datetime.now)

    def _opened(self) -> ChatService:
        own = vars(self)
        if "_service" not in own:
            own["_service"] = _begin_service(own["_session"], self.store)
            del own["settings"], own["clock"]  # the service's own from now on: settings can be changed
        return cast("ChatService", own["_service"])

    async def aclose(self, rescue: Iterable[Path] = ()) -> Rescued | None:
        own = vars(self)
        if "_service" in own:
            return await self._opened().aclose(rescue)
        if "store" in own:
            self.store.close()
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "store":
            return vars(self).setdefault("store", _open_store(vars(self)["_session"]))
        return getattr(self._opened(), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._opened(), name, value)
