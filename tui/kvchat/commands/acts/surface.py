"""What an act needs of the surface on which the user asks for it: the app, or plain mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from kvchat.chat.errors import ChatError
from kvchat.prompt.tags import TagError
from kvchat.transfer.formats import TransferError

if TYPE_CHECKING:
    from kvchat.cache import Act
    from kvchat.chat.conversations.live import OpenConversation
    from kvchat.chat.conversations.personas import Personas
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers

T = TypeVar("T")
REFUSALS = (ChatError, TagError, TransferError)
"""What an act raises that cannot be done: the surface says it."""


class Surface(Protocol):
    """Says, asks and shows."""

    @property
    def service(self) -> ChatService: ...

    @property
    def personas(self) -> Personas: ...

    def layers(self) -> Layers:
        """The settings as they are now, with where each comes from."""
        ...

    @property
    def conversation(self) -> OpenConversation:
        """The open conversation. Only called while one is open."""
        ...

    @property
    def marked(self) -> str | None:
        """The message that the user marked, if any."""
        ...

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False, bare: bool = False) -> None:
        """Say a sentence, with or without a period at its end. `shown`: a screen shows it by itself; `bare`: it ends in
        a path or a command, to which no period belongs."""
        ...

    def cut(self, text: str, room: int) -> str:
        """A text on one line, as it stands inside a sentence: cut to `room` characters where a screen has no more."""
        ...

    def way_to(self, action: str) -> str:
        """How the user does an action here: its key, or its slash command."""
        ...

    async def pick(self, action: str, about: str = "") -> str | None:
        """Have the user choose what could have been written behind the slash command of an action; None: they did not,
        or the choices were listed. `about`: the conversation, or what was written. Raises what an act does."""
        ...

    async def agreed(
        self, title: str, lines: Sequence[str], yes: str, no: str = "Cancel", *, unasked: bool = False
    ) -> bool:
        """Whether the user agrees. `yes`, `no`: the two answers; `unasked`: no key asked for it, and a yes is kept."""
        ...

    async def decided(
        self,
        act: Act,
        node: str | None = None,
        *,
        title: str = "",
        text: str = "",
        instead: str = "",
        options: Mapping[str, object] | None = None,
        unasked: bool = False,
    ) -> Literal["go", "instead"] | None:
        """Whether the user agrees to the price of an act, asked only where it is worth it; or begins a message with
        `instead`, where that is cheaper. `text`, `options`: what the act changes to. `unasked`: the user may have
        written on since the command, and what is written is no answer."""
        ...

    async def waited(self, work: Coroutine[Any, Any, T], *, is_long: bool = False) -> T | None:
        """What comes of work that takes time; None: the user gave it up, and it is ended. `is_long`: it waits for
        another program, and the user writes on meanwhile. Raises what it does."""
        ...

    async def later(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do an act that another program may have to answer first; the user writes on meanwhile. Raises what it does,
        or says that."""
        ...

    async def connected(self, id: str) -> bool:
        """Whether it is known where a message of a conversation would go, as far as that must be known before
        it is sent; else the user gave it up."""
        ...

    async def attempt(self, act: Awaitable[object]) -> None:
        """Do what an answer comes of, which is shown. Raises ChatError."""
        ...

    async def open(self, id: str, node: str | None = None) -> None:
        """Show a conversation, at a message if one is given. Raises ChatError."""
        ...

    def begin_message(self, text: str) -> None:
        """Have the next message begin with a text, whose fields the user fills in."""
        ...

    def act_done(self) -> None:
        """An act was done that undo takes back, before what was typed until now."""
        ...

    def act_undone(self) -> None:
        """That act is taken back."""
        ...
