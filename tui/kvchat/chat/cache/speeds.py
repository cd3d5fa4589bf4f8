"""How fast servers prefill, as measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.ground import Ground
from kvchat.chat.server.link import Link
from kvchat.chat.server.servers import Servers
from kvchat.figures.accounting import measured_speed
from kvchat.figures.speed import SpeedFit
from kvchat.prompt.message import Node, Role
from kvchat.store import StoreError


class PrefillSpeeds:
    """The prefill speeds of servers and models, from their last answers."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._fits: dict[tuple[str, str], SpeedFit | None] = {}
        """By place and model: until there are new measurements."""

    def fit(self, id: str = "") -> SpeedFit | None:
        """Of a conversation's server; without an id: of the one that is looked at."""
        return self.of(self._servers.link(id))

    def of(self, link: Link) -> SpeedFit | None:
        return self.at(link.info.place, link.info.model) if link.info is not None else None

    def at(self, place: str, model: str) -> SpeedFit | None:
        """Of a model on a server. For any thread: an export asks from its own while new measurements come."""
        known = self._fits  # that `measured` replaces
        if (place, model) not in known:
            try:
                known[place, model] = self._ground.store.speed_fit(place, model)
            except StoreError:
                return None
        return known[place, model]

    def on(self, path: Sequence[Node]) -> SpeedFit | None:
        """Of the server that answered last on a branch, whether it is there or not; None until it was measured. The
        time saved is computed with it, everywhere."""
        try:
            answers = (node for node in reversed(path) if node.role is Role.ASSISTANT and node.figures is not None)
            asked = map(self._ground.store.request_of, (node.id for node in islice(answers, 2)))
            sent = next(filter(None, asked), None)
        except StoreError:
            return None
        return self.at(sent.server, sent.model) if sent is not None else None

    def tokens_per_second(self, id: str) -> float | None:
        """As measured in this conversation, else on its server lately."""
        conversation = self._conversations.get(id)
        info = self._servers.link(id).info
        return (measured_speed(conversation.figures()) if conversation else None) or (
            measured_speed(self._ground.store.speed_samples(info.place, info.model)) if info else None
        )

    def measured(self) -> None:
        """There are new measurements."""
        self._fits = {}
