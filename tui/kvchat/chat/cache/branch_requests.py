"""The chat request that a branch of a conversation makes, as far as the server's cache depends on it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kvchat.backends.dialect import ChatTurn, ServerInfo
from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.ground import Ground
from kvchat.chat.server.servers import Servers
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, tools_of
from kvchat.prompt.request import wires_of
from kvchat.prompt.token_ids import known_ids
from kvchat.prompt.wire import canonical


class BranchRequests:
    """Makes them for every conversation."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers

    def after_tip(self, conversation: OpenConversation, tip: str) -> ChatTurn | None:
        """The request that goes on after the message with this digest; None where the conversation has none."""
        end = next((node for node in conversation.tree if node.digest.hex() == tip), None)
        return self.after(conversation.record, conversation.tree.path(end.id)) if end is not None else None

    def known_ids(self, id: str, path: Sequence[Node]) -> int | None:
        """How many token ids are known of a conversation's branch; None where its prompts go as messages."""
        known = self.after(self._conversations.find(id), path).known
        return len(known.tokens) if known is not None else None

    def after(self, record: Conversation, path: Sequence[Node]) -> ChatTurn:
        """The request of a conversation that goes on after `path`."""
        info = self._servers.link(record.id).info
        model = self._servers.asked_model(record.id)
        options = dict(record.template_options)
        if info is not None and info.reasoning_option and record.turns == 0:
            options.setdefault(*info.reasoning_option)
        turn = ChatTurn(
            wires_of(path),
            record.id,
            model,
            template_options=options,
            system_in_user=record.system_in_user,
            tools=tools_of(path),
        )
        return self.by_ids(turn, path, info) if info is not None else turn

    def by_ids(self, turn: ChatTurn, path: Sequence[Node], server: ServerInfo) -> ChatTurn:
        """`turn`, whose messages are those of `path`, with what is known of its token ids where its prompt goes as
        ids: where the user has set that, the server takes them, there is no image, whose tokens are unknown, and the
        calls of tools are in a shape that can be read here."""
        if not self._ground.settings.cache.token_ids or turn.answers > 1 or turn.has_images:
            return turn
        if turn.tools and not server.reads_calls(turn.model):
            return turn
        if not (vocabulary := server.vocabulary(turn.model)):
            return turn
        scope = canonical([vocabulary, dict(turn.template_options), turn.system_in_user]).decode()
        from kvchat.backends.calls import CallShape

        # A cut answer may end within a call, or in front of a channel, of which its text has nothing.
        by_template = turn.continues and (turn.tools or server.call_shape is CallShape.CHANNELS)
        known = path[:-1] if by_template else path
        return replace(turn, known=known_ids([node.ids for node in known], scope))
