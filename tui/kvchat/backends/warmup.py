"""Reading a prompt ahead on a server that has no call for it: the chat request itself, with an answer of one token.

The rule: the prompt is the one that `chat` will send, made by the same code from the same turn; only how much may be
answered differs. Not for a server on the internet, where each reading is paid for.
"""

from __future__ import annotations

from dataclasses import replace

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import BackendError, ChatTurn, Reported, StreamEvent, Trouble

_LENGTHS = frozenset({"max_tokens", "max_completion_tokens", "min_tokens", "n_predict"})
"""Fields that say how long an answer is; servers differ in which one they obey."""


class OneTokenWarmUp(HttpBackend):
    """A backend that reads messages ahead by asking for one token: vLLM and mlx-lm refuse to be asked for none, and
    llama-cpp-python then answers at full length."""

    async def read_messages(self, turn: ChatTurn) -> Reported:
        """Read `turn`'s messages into the server's cache; the figures are the server's. Raises BackendError.

        It streams as a chat does, because a server notices that a stream has lost its reader. Cancelled: the
        connection is closed before the CancelledError goes on.
        """
        if self._endpoint.is_cloud:
            raise BackendError(Trouble.REFUSED, f"{self.url} is on the internet: nothing is read ahead there, because "
                                                "each reading would be paid for.")
        reported = Reported()

        def hear(event: StreamEvent) -> None:
            nonlocal reported
            if isinstance(event, Reported):
                reported = event

        ended = await self.chat(one_token(turn), hear)
        if ended.error is not None:
            raise ended.error
        return reported


def one_token(turn: ChatTurn) -> ChatTurn:
    """`turn`, to be answered with one token."""
    extra = {name: value for name, value in turn.parameters.extra.items() if name not in _LENGTHS}
    return replace(turn, parameters=replace(turn.parameters, max_tokens=1, extra=extra))
