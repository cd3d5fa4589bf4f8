"""What can go wrong in the service, told to the person in one sentence."""

from __future__ import annotations


class ChatError(Exception):
    """An act that cannot be done now; the sentence says why and what to do."""


class GivenUp(ChatError):  # noqa: N818
    """The person no longer waits for the reply of another window: the act was not done."""
