"""Going on with an answer that was cut, in words."""

from __future__ import annotations

GO_ON = "Continue."
"""What a server is asked that cannot go on with an answer itself."""


def asked_to_go_on(title: str, message: str) -> str:
    """That a server of the kind `title` was sent a message instead."""
    return f"This kind of server ({title}) cannot continue an answer: “{message}” was sent as a message."
