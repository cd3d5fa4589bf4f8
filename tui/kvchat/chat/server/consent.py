"""Leaving this machine: which conversation may go to which server.

What is on this machine needs no question; a server of the user's network needs their yes once, and a
conversation that was begun nearer goes to the internet only when they agreed to that for this very one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.ground import Ground
from kvchat.chat.server.link import Link, is_on_this_machine, normal
from kvchat.prompt.message import NoteKind, Role
from kvchat.sanitize import one_line
from kvchat.store import Store
from kvchat.values import Statement, said


class Consent:
    """What the user agreed to."""

    def __init__(self, ground: Ground, conversations: Conversations, asked_model: Callable[[str], str]) -> None:
        """`asked_model`: the model that a conversation asks its server for."""
        self._ground = ground
        self._conversations = conversations
        self._asked_model = asked_model
        self._named: str | None = None

    def take_named(self, base_url: str) -> None:
        """For a run that cannot ask: take as agreed the server that was named for it, at this address (empty: none),
        and the one that a conversation was answered on last; any other is agreed to in the app."""
        self._named = normal(base_url)

    def agreed_to(self, server: ServerInfo, id: str = "", model: str = "") -> bool:
        """Whether a conversation may go to this server now. `model`: the one that it is sent to; empty: its own."""
        return self._is_meant(server, id, model) or self.may_send_to(server, id, model)

    def not_agreed(
        self, server: ServerInfo, id: str = "", model: str = "", kind: NoteKind = NoteKind.NOT_AGREED
    ) -> Statement:
        """Why nothing was sent to a server that is not on this machine, or by one to another."""
        goes = self.destination(server, id, model)
        if goes is server:
            return said(kind, url=server.base_url)
        model = one_line(model or self._asked_model(id) or server.model, 80)
        return said(NoteKind.NOT_AGREED_ONWARD, url=server.base_url, host=goes.base_url, model=model)

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

    def _is_meant(self, server: ServerInfo, id: str, model: str) -> bool:
        """Whoever names a server means it, and not the one that it passes a model's text on to."""
        if self._named is None or self.destination(server, id, model) is not server:
            return False
        return normal(server.base_url) == self._named or self._answered_last(id) == normal(server.place)

    def _answered_last(self, id: str) -> str:
        """The address that answered a conversation last, by what was sent there; empty: none."""
        if self._conversations.record(id) is None:
            return ""
        path = reversed(self._conversations.load(id).path())
        answered = (self._ground.store.request_of(node.id) for node in path if node.role is Role.ASSISTANT)
        last = next(answered, None)
        return normal(last.server) if last is not None else ""

    def may_send_to(self, server: ServerInfo, id: str = "", model: str = "") -> bool:
        """Whether the server is on this machine, or the user agreed to send to it. A conversation that was begun on
        another server goes to the internet only when the user agreed to that for this very one."""
        goes = self.destination(server, id, model)
        if goes.host_class == "loopback":
            return True
        if not self._ground.store.setting(_agreement(goes)):
            return False
        return not self.was_begun_nearer(id, server, model) or bool(self._ground.store.setting(_agreement(goes, id)))

    def agreed_to_pass_on(self, host: str) -> bool:
        """Whether the user agreed that a server of theirs passes a model's text on to this host on the internet."""
        return bool(self._ground.store.setting(f"allowed {HostClass.CLOUD} {host}"))

    def destination(self, server: ServerInfo, id: str = "", model: str = "") -> ServerInfo:
        """Where a conversation really goes: a server of the user's may pass a model's text on to the internet. The
        server itself where it does not, or is there already."""
        remote = server.remote_of(model or self._asked_model(id) or server.model)
        if not remote or server.host_class is HostClass.CLOUD:
            return server
        return replace(server, host_class=HostClass.CLOUD, base_url=remote)

    def was_begun_nearer(self, id: str, server: ServerInfo, model: str = "") -> bool:
        """Whether a conversation that would go to this server on the internet was answered by another one before, or
        by a model of it that does not go there."""
        record = self._conversations.record(id)
        goes = self.destination(server, id, model)
        if goes.host_class != "cloud" or record is None or not record.turns:
            return False
        answers = [node for node in self._conversations.load(id).path() if node.role is Role.ASSISTANT]
        remote = goes.base_url if goes is not server else ""
        for answer in answers:
            sent = self._ground.store.request_of(answer.id)
            if sent is None:
                if answer.text or answer.message.calls:  # else nothing was sent for it, or it begins just now
                    return True
            elif sent.server != server.place or (remote and server.remote_of(sent.model or "") != remote):
                return True
        return False

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


def has_agreed(store: Store, base_url: str, among: Iterable[HostClass] = (HostClass.LAN, HostClass.TAILNET)) -> bool:
    """Whether the user agreed to send to a server at this address, while it was in one of these places."""
    return any(store.setting(f"allowed {where} {normal(base_url)}") for where in among)


def _agreement(server: ServerInfo, id: str = "") -> str:
    return " ".join(filter(None, ("allowed", server.host_class, server.base_url, id)))
