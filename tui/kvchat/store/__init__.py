"""The disk: conversations and messages in one SQLite file."""

from kvchat.store.conversations import Change
from kvchat.store.errors import (
    Conflict,
    ConversationDeleted,
    HeadMoved,
    NotQueued,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    UnknownConversation,
    UnknownImport,
)
from kvchat.store.store import Store

__all__ = [
    "Change",
    "Conflict",
    "ConversationDeleted",
    "HeadMoved",
    "NotQueued",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "UnknownConversation",
    "UnknownImport",
]
