"""Why a turn was read again: what is known of it is gathered while it is asked and answered, and told with its figures.

The rule: a turn is told with its figures whatever is known; nothing here can fail an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvchat.backends.dialect import Backend, ChatTurn, Emit, Progressed, StreamEvent, Waiting
from kvchat.cache.accounting import NOISE, TurnFigures
from kvchat.cache.causes.evidence import Change, LastRead, Sent, ServerIdentity
from kvchat.chat.caching import Caching
from kvchat.chat.evidence import identity, stopped_by_model
from kvchat.chat.following import FollowedTurn
from kvchat.chat.live import OpenConversation
from kvchat.prompt.message import Node
from kvchat.prompt.request import wires_of


class Explaining(Caching):
    """Gathering evidence, and the cause that follows from it."""

    async def _explained(self, followed: FollowedTurn | None, figures: TurnFigures | None) -> TurnFigures | None:
        """The figures with the prediction and, where tokens were read again, the cause."""
        if followed is None or figures is None:
            return figures
        id = followed.turn.session_id
        following = self.link(id).following
        if following is not None and not following.plays(followed):
            following = None  # the server was changed meanwhile
        if following is not None:
            figures = await following.ended(followed, figures) or figures
            await self._checked(followed, figures)
        self._journal.reported(followed, figures)
        block = self._journal.block(followed.server)
        if following is None and block > 1:
            figures = replace(figures, block=block)
        evidence = self._journal.evidence(followed, figures, self.title, self._read_earlier)
        avoidable, start = figures.avoidable_tokens or 0, figures.cached_tokens or 0
        speed = self.speed_fit(id) if avoidable > NOISE else None
        evidence = replace(
            evidence, seconds=speed.seconds(start, start + avoidable) if speed else None,
            shape=following.shape(evidence) if following is not None else None,
            can_keep_reasoning=following.server.preserves_reasoning if following is not None else None)
        from kvchat.cache.causes.explain import explain, silent_loss  # after the first paint

        finding = followed.finding = explain(evidence) or silent_loss(evidence)
        if finding is None:
            return figures
        return replace(figures, cause=finding.cause.value, evidence=finding.sentence, remedy=finding.remedy or None)

    def _asked_of(self, backend: Backend, turn: ChatTurn, path: Sequence[Node]) -> FollowedTurn:
        """A request to a server that cannot be followed, for what can be told of it all the same."""
        return FollowedTurn(turn, path, number=self._journal.next(), server=identity(backend.info, turn.model))

    def _watched(self, followed: FollowedTurn | None, emit: Emit) -> Emit:
        """`emit`, that also notes when the server had to load its model first, and says with how far the prompt is read
        how long the history is and why it is read again, as far as that is known."""
        ended = self._journal.ended_since(followed.path, followed.server.base_url) if followed is not None else None

        def noting(event: StreamEvent) -> None:
            if followed is not None and isinstance(event, Waiting) and event.phase == "loading":
                followed.loading_seen = True
            if followed is not None and isinstance(event, Progressed):
                event = Progressed(replace(event.progress, history=followed.history, cause=ended))
            emit(event)

        return noting

    def did(self, conversation: OpenConversation, change: Change, node_id: str | None = None) -> None:
        """The person changed what is sent: note it for the next turn. `node_id`: the message it was done to."""
        places = [n.id for n in conversation.tree.path(node_id)] if node_id in conversation.tree else []
        self._journal.did(conversation.id, change, len(places) - 1 if places else None)

    def _read_earlier(self, answer: Node) -> LastRead | None:
        """What was read for an answer before kvchat was started."""
        found, figures = self.store.request_of(answer.id), answer.figures
        conversation = next((c for c in self.open_conversations.values() if answer.id in c.tree), None)
        info = self.link(conversation.id).info if conversation is not None else None
        if found is None or info is None or figures is None or conversation is None:
            return None
        server = ServerIdentity(found.server, found.kind, found.build, found.model,
                                info.embedded and found.build == info.build)
        wires = wires_of(conversation.tree.path(answer.id)[:-1])
        return LastRead(Sent(server, wires), figures.prompt_tokens, figures.predicted_tokens, None, answer.text,
                        answer.message.reasoning, stopped=stopped_by_model(answer.state))

    async def _checked(self, followed: FollowedTurn, figures: TurnFigures) -> None:
        """Look what came of what was done for this turn."""
