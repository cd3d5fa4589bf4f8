"""What a user can do, written once: each act works against a `Surface`, whether the app or plain mode is asked for it.

The table of actions names an act by its place here: `acts.conversations.favourite`.
"""

from __future__ import annotations

from kvchat.commands.acts.conversations import ConversationActs
from kvchat.commands.acts.conversations import Deleted as Deleted
from kvchat.commands.acts.conversations import ExportRequest as ExportRequest
from kvchat.commands.acts.conversations import Imported as Imported
from kvchat.commands.acts.memory import MemoryActs
from kvchat.commands.acts.messages import MessageActs
from kvchat.commands.acts.messages import cut_answer as cut_answer
from kvchat.commands.acts.messages import meant as meant
from kvchat.commands.acts.messages import number_of as number_of
from kvchat.commands.acts.options import OptionActs
from kvchat.commands.acts.options import tools_of as tools_of
from kvchat.commands.acts.surface import REFUSALS as REFUSALS
from kvchat.commands.acts.surface import Surface as Surface


class Acts:
    """The acts, on one surface."""

    def __init__(self, surface: Surface) -> None:
        self.options = OptionActs(surface)
        self.conversations = ConversationActs(surface, self.options)
        self.messages = MessageActs(surface, self.conversations)
        self.memory = MemoryActs(surface)
