"""Leaving this machine: which conversation may go to which server.

What is on this machine needs no question; a server of the user's network needs their yes once, and a
conversation that was begun nearer goes to the internet only when they agreed to that for this very one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.cache.causes.cause import Statement, said
from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.ground import Ground
from kvchat.chat.server.link import Link, is_on_this_machine, normal
from kvchat.prompt.message import NoteKind, Role
from kvchat.store import Store


class Consent:
    """What the user agreed to."""

    def __init__(self, ground: Ground, conversations: Conversations, asked_model: Callable[[str], str]) -> None:
        """`asked_model`: the model that a conversation asks its server for."""
        self._ground = ground
        self._conversations = conversations
        self._asked_model = asked_model
        self._named: str | None = None

    def take_named(self, base_url: str) -> None:
        """Where nobody is asked: the user means the server that they named for this run, at this address (empty: none),
        and the one that a conversation was answered on last; any other is agreed to in the app."""
        self._named = normal(base_url)

    def agreed_to(self, server: ServerInfo, id: str = "") -> bool:
        """Whether a conversation may go to this server now."""
        return self._is_meant(server, id) or self.may_send_to(server, id)

    def may_meet(self, link: Link, id: str = "") -> bool:
        """Whether a server may be connected to before the user sends something there: it is on this machine, in the
        settings, has answered in this conversation last, or was agreed to."""
        settings, server = self._ground.settings, link.connector.server
        if not server.base_url or server in (settings.server, *settings.profiles.values()):
            return True
        url = normal(server.base_url)
        return (
            is_on_this_machine(url) or self._answered_last(id) == url or has_agreed(self._ground.store, url, HostClass)
        )

    def _is_meant(self, server: ServerInfo, id: str) -> bool:
        if self._named is None:
            return False
        if normal(server.base_url) == self._named:
            return True
        return not server.remote_of(self._asked_model(id)) and self._answered_last(id) == normal(server.place)

    def _answered_last(self, id: str) -> str:
        """The address that answered a conversation last, by what was sent there; empty: none."""
        if self._conversations.record(id) is None:
            return ""
        path = reversed(self._conversations.load(id).path())
        answered = (self._ground.store.request_of(node.id) for node in path if node.role is Role.ASSISTANT)
        last = next(answered, None)
        return normal(last.server) if last is not None else ""

    def may_send_to(self, server: ServerInfo, id: str = "") -> bool:
        """Whether the server is on this machine, or the user agreed to send to it. A conversation that was begun on
        another server goes to the internet only when the user agreed to that for this very one."""
        server = self.destination(server, id)
        if server.host_class == "loopback":
            return True
        if not self._ground.store.setting(_agreement(server)):
            return False
        return not self.was_begun_nearer(id, server) or bool(self._ground.store.setting(_agreement(server, id)))

    def destination(self, server: ServerInfo, id: str = "") -> ServerInfo:
        """Where a conversation really goes: a server on this machine may pass a model's text on to the internet."""
        remote = server.remote_of(self._asked_model(id) or server.model)
        if not remote:
            return server
        return replace(server, host_class=HostClass.CLOUD, base_url=remote)

    def was_begun_nearer(self, id: str, server: ServerInfo) -> bool:
        """Whether a conversation that would go to this server on the internet was answered by another one before."""
        record = self._conversations.record(id)
        server = self.destination(server, id)
        if server.host_class != "cloud" or record is None or not record.turns:
            return False
        path = self._conversations.load(id).path()
        found = (self._ground.store.request_of(node.id) for node in path if node.role is Role.ASSISTANT)
        return any(sent is None or sent.server != server.place for sent in found)

    async def allow_sending_to(self, server: ServerInfo, id: str = "") -> None:
        """The user agrees that conversations go to this server, and conversation `id` with what it holds. Kept over
        restarts."""
        server = self.destination(server, id)
        for key in {_agreement(server), _agreement(server, id)}:
            await self._ground.keep_setting(key, "yes")

    def trusts(self, link: Link) -> bool:
        """Whether what is said may go to a server without another question: it is on this machine, or elsewhere but on
        the internet and the user agreed to it."""
        info, store = link.info, self._ground.store
        if info is None:
            url = normal(link.connector.base_url)
            return is_on_this_machine(url) or has_agreed(store, url)
        if info.host_class is HostClass.CLOUD or info.remote_of(link.connector.server.model or info.model):
            return False
        return info.host_class is HostClass.LOOPBACK or bool(store.setting(_agreement(info)))


def not_agreed(server: ServerInfo) -> Statement:
    """Why nothing was sent to a server that is not on this machine."""
    return said(NoteKind.NOT_AGREED, url=server.base_url)


def has_agreed(store: Store, base_url: str, among: Iterable[HostClass] = (HostClass.LAN, HostClass.TAILNET)) -> bool:
    """Whether the user agreed to send to a server at this address, while it was in one of these places."""
    return any(store.setting(f"allowed {where} {normal(base_url)}") for where in among)


def _agreement(server: ServerInfo, id: str = "") -> str:
    return " ".join(filter(None, ("allowed", server.host_class, server.base_url, id)))
