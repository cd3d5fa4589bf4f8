"""A stand-in model whose answers are given: to the chat, and to the passes over conversations by their kind."""

from __future__ import annotations

import asyncio
import json

from toyserver import tokens


def kind_of(visit):
    """`chat`, `facts`, `skills`, `episodes`, or empty where it asks for no answer."""
    if not visit.is_chat:
        return ""
    asked = visit.json.get("response_format") or {}
    return asked.get("json_schema", {}).get("name", "chat")


def of(server, kind):
    return [visit for visit in server.visits if kind_of(visit) == kind]


class Model:
    """Answers; those of passes come from `given`, by their kind, and wait for `go` where it is held."""

    def __init__(self, *, held="", advice="Yes.", **given):
        """`given`: by kind what is answered, or what makes it of the request. `held`: the kind that waits for `go`."""
        self.given = {"facts": {"facts": []}, "skills": {"skills": []}, **given}
        self.advice = advice
        self.held, self.go = held, asyncio.Event()
        self.closed, self.beside, self._running = 0, [], set()
        """How many held ones the client closed, and what ran beside what."""

    async def __call__(self, visit):
        kind = kind_of(visit)
        self.beside += [(kind, other) for other in self._running]
        self._running.add(kind)
        try:
            if kind == self.held and not self.go.is_set():
                gone, go = asyncio.create_task(visit.gone.wait()), asyncio.create_task(self.go.wait())
                await asyncio.wait({gone, go}, return_when=asyncio.FIRST_COMPLETED)
                self.closed += visit.gone.is_set()
                gone.cancel()
                go.cancel()
                if visit.gone.is_set():
                    return
            given = self.given.get(kind)
            given = given(visit) if callable(given) else given
            await tokens(self.advice if kind == "chat" else json.dumps(given))(visit)
        finally:
            self._running.discard(kind)
