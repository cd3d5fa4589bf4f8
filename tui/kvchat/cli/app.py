"""`kvchat`: the app."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from kvchat.cli.session import CommandError, Session, UsageError, print_notices

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


def run(session: Session) -> int:
    """Open the app, and return the exit status when it is left. Raises CommandError."""
    args, settings = session.args, session.settings
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):  # it is drawn on the last one
        raise UsageError("The app needs a terminal. To use kvchat in a script: kvchat ask TEXT")
    gc.disable()  # until the first paint, when the app turns it on: imports make much that stays and little garbage
    from kvchat.cli.late_service import late
    from kvchat.ui.app import KvchatApp

    def begin() -> ChatService:
        from kvchat.chat.errors import ChatError
        from kvchat.store import StoreError

        try:
            service, _ = session.opened()
        except StoreError as error:
            raise ChatError(str(error)) from None
        service.warm_up.enabled = service.servers.connects_ahead = service.servers.waits = service.jobs.enabled = True
        return service

    app = KvchatApp(late(settings, begin, incognito=args.incognito), session.places,
                    notices=map(str, session.problems), continue_=args.continue_, conversation=args.conversation)
    try:
        app.run(mouse=settings.mouse)
    except Exception as error:
        app.ending.crash(error)
    if app.ending.failure:
        raise CommandError(app.ending.failure)
    if app.ending.last_word:
        print_notices([app.ending.last_word])
    return app.return_code or 0
