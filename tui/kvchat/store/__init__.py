"""The disk: conversations and messages in one SQLite file."""

from kvchat.store.errors import StoreDamaged, StoreError, StoreUnavailable, UnknownConversation
from kvchat.store.store import Store

__all__ = ["Store", "StoreDamaged", "StoreError", "StoreUnavailable", "UnknownConversation"]
