"""The user's word on calls: nothing a model asks for is done without it.

A yes is for one call, for this conversation, or from now on: for a folder, a host, or else the tool itself, as it was
then: for the program or address behind it, and what it said it does. In an incognito run each call is asked for, and
nothing is kept.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kvchat.chat.events import ToolAsked
from kvchat.chat.ground import Ground
from kvchat.prompt.message import new_id
from kvchat.prompt.tools import Decision, Permission, ToolCall, ToolQuestion

ALWAYS = "tools allowed"
"""The setting of the store that keeps what is allowed from now on: a JSON list of the digests of permissions. What 0.2
kept are names: they do not say what they were given for, and are asked for once more."""
FORGOTTEN = "tools forgotten"
"""The setting of the store that changes when all is taken back: a yes for a conversation, which each kvchat keeps to
itself, holds while it is the same."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ToolConsent:
    """What the user agreed to, and the calls that wait."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.can_ask = False
        """Whether a user is there to be asked: else only what was allowed before is done."""
        self.waiting: dict[str, ToolQuestion] = {}
        """By conversation."""
        self.refused: list[Permission] = []
        """What was not done in this run because no user could be asked."""
        self._answers: dict[str, asyncio.Future[Decision]] = {}
        self._given: set[str] = set()
        """Permissions for this run."""
        self._of_conversations: dict[str, set[str]] = {}
        """By conversation, what `_name` gives."""

    def give(self, permissions: Iterable[str]) -> None:
        """Allow these for this run: `read_file`, `fetch_url:example.org`."""
        self._given.update(one.strip() for one in permissions)

    @property
    def choices(self) -> tuple[Decision, ...]:
        """What can be answered."""
        every = (Decision.ONCE, Decision.CONVERSATION, Decision.ALWAYS, Decision.NO)
        return (Decision.ONCE, Decision.NO) if self._ground.incognito else every

    def always(self) -> list[str]:
        """The digests of the permissions that are kept."""
        try:
            found = json.loads(self._ground.setting(ALWAYS) or "[]")
        except ValueError:
            return []
        kept = found if isinstance(found, list) else []
        return [one for one in kept if isinstance(one, str) and _DIGEST.fullmatch(one)]

    async def forget(self) -> None:
        """Take back all that is kept, in every window."""
        self._of_conversations.clear()
        await self._ground.keep_setting(ALWAYS, None)
        await self._ground.keep_setting(FORGOTTEN, new_id())

    def _name(self, permission: Permission) -> str:
        """What a yes for a conversation is kept under."""
        return f"{self._ground.setting(FORGOTTEN)} {permission.digest}"

    async def agreed(self, id: str, permission: Permission, call: ToolCall, given: Mapping[str, Any]) -> bool:
        """Whether a call may be carried out with the arguments `given`; the user is asked where that is not settled."""
        names = {permission.group, permission.tool, str(permission)}
        if names & self._given or self._name(permission) in self._of_conversations.get(id, ()):
            return True
        if not self._ground.incognito and permission.digest in self.always():
            return True
        if not self.can_ask:
            self.refused.append(permission)
            return False
        answer = self._answers[id] = asyncio.get_running_loop().create_future()
        self.waiting[id] = ToolQuestion(permission, call, given)
        self._ground.events.tell(ToolAsked(id))
        try:
            decision = await answer
        finally:
            del self.waiting[id], self._answers[id]
            self._ground.events.tell(ToolAsked(id))
        if decision is Decision.CONVERSATION:
            self._of_conversations.setdefault(id, set()).add(self._name(permission))
        if decision is Decision.ALWAYS:
            await self._ground.keep_setting(ALWAYS, json.dumps(sorted({*self.always(), permission.digest})))
        return decision is not Decision.NO

    def decide(self, id: str, decision: Decision, question: ToolQuestion | None = None) -> bool:
        """Take the user's word on the call that waits in a conversation; `question`: the one that they were asked.
        False: that one waits no longer, or the answer was not offered."""
        answer = self._answers.get(id)
        if answer is None or answer.done() or decision not in self.choices:
            return False
        if question is not None and question is not self.waiting[id]:
            return False
        answer.set_result(decision)
        return True
