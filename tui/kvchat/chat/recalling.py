"""What a server that outlives kvchat still holds of our conversations: noted at the end, found again at the next start.

The rule: a note is a claim, and the server's own count of a slot's tokens is the proof: a slot with any other count
belongs to somebody else.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from kvchat.cache.llamacpp.held import Held
from kvchat.cache.tokens import Tokens
from kvchat.chat.following import Following

Prefixes = Callable[[str, Sequence[str]], Awaitable[Tokens | None]]
"""The token ids of a conversation's branch, given its id and the digests of its messages."""


def noted(following: Following, known: Callable[[str, Sequence[str]], Tokens | None]) -> str:
    """What the slots hold of our conversations, as JSON. `known`: as `Prefixes`, of what is known at once."""
    found = []
    for slot, held in enumerate(following.twin.best.slots):
        if held is not None and (path := following.heads.get(held.owner)):
            prefix = known(held.owner, path)
            sure = held.tokens.common(prefix) if prefix is not None else 0  # a reply may be tokenised anew in a prompt
            found.append({"slot": slot, "conversation": held.owner, "path": list(path), "tokens": len(held.tokens),
                          "sure": sure, "at": held.at})
    return json.dumps(found)


async def recall(following: Following, note: str, prefixes: Prefixes) -> None:
    """Tell the twin what the slots hold, as far as the note is confirmed by the server."""
    try:
        claims = [(int(one["slot"]), str(one["conversation"]), tuple(map(str, one["path"])), int(one["tokens"]),
                   int(one["sure"]), float(one["at"])) for one in json.loads(note)]
    except (ValueError, TypeError, KeyError):
        return
    for slot, conversation, path, tokens, sure, at in claims:
        if following.count(slot) != tokens:
            continue
        prefix = await prefixes(conversation, path)
        if prefix is not None and len(prefix) >= sure and following.count(slot) == tokens:
            held = prefix.first(sure) + Tokens.unknown(tokens - sure)
            following.twin.restored(slot, Held(held, conversation, at))
            following.heads[conversation] = path
