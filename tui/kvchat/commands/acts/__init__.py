"""What a user can do, written once: each act works against a `Surface`, whether the app or plain mode is asked for it.

The table of actions names an act by its place here: `acts.conversations.favourite`.
"""

from __future__ import annotations

from kvchat.commands.acts.conversations import ConversationActs
from kvchat.commands.acts.conversations import Deleted as Deleted
from kvchat.commands.acts.conversations import Imported as Imported
from kvchat.commands.acts.surface import Surface as Surface


class Acts:
    """The acts, on one surface."""

    def __init__(self, surface: Surface) -> None:
        self.conversations = ConversationActs(surface)
