"""`search_documents`: passages of the user's collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvchat.chat.background.document_service import DocumentService
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.tools.tool import ToolError, must_be_shown
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.offered_tools import SEARCH_DOCUMENTS
from kvchat.prompt.tools import Permission

PASSAGES = 5
"""Passages of one search."""


class SearchDocuments:
    def __init__(self, documents: DocumentService) -> None:
        self._documents = documents

    def permission(self, given: Mapping[str, Any]) -> Permission:
        must_be_shown(given["query"])
        return Permission(SEARCH_DOCUMENTS.name)

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        """Those of the collections that the conversation searches; of all, where it searches none."""
        chosen = conversation.record.collections
        try:
            there = [one for one in await self._documents.collections() if not chosen or one.name in chosen]
            scopes = [one.scope for one in there]
            found = await self._documents.with_library(lambda library: library.search(given["query"], PASSAGES, scopes))
        except ChatError as error:
            raise ToolError(str(error)) from None
        if not there:
            raise ToolError("The user has no documents here.")
        if not found:
            raise ToolError("Nothing was found. Try other words.")
        return [passage.block for passage in found]
