"""A conversation: a head in the tree, a title, and the options frozen or set with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.drafts import LABEL
from kvchat.prompt.request import Parameters

NEW_TITLE = "New conversation"
TITLE_LENGTH = 60
OFF, ASK, ALWAYS = "off", "ask", "always"
RETRIEVAL_MODES = (OFF, ASK, ALWAYS)
"""Whether questions are searched for in documents: not by itself, shown but sent only when taken, sent."""


class Conversation(Struct, frozen=True):
    """What the list shows and a request needs; the messages are in its `Tree`."""

    id: str
    """32 hexadecimal digits. It is also the sticky session id that goes to the server."""
    head: str | None
    """The node the branch in use ends at; the system message's node in an empty conversation."""
    created: float
    """Seconds since the epoch."""
    updated: float
    """When a message was last added; the list is ordered by it."""
    title: str = NEW_TITLE
    turns: int = 0
    """Questions in the whole tree; 0 marks an empty conversation."""
    model: str = ""
    """The model chosen for this conversation; empty: the server's."""
    parameters: Parameters = field(default_factory=Parameters)
    template_options: Mapping[str, object] = field(default_factory=dict)
    """`chat_template_kwargs`: part of the prefix, so frozen at the first message."""
    forked_from: str | None = None
    """The conversation it was forked from."""
    unread: bool = False
    """Whether an answer ended while it was not looked at."""
    trashed: float | None = None
    """When it was deleted; it can be restored until the trash is emptied."""
    context_used: int | None = None
    """Tokens in the window after the last answer, as reported."""
    server: str = ""
    """The server chosen for it: a profile's name, a base URL, or a model file's path; empty: the default one."""
    system_in_user: bool = False
    """Whether the system message goes out inside the first question, for a template without a place for it: part of
    the prefix, so frozen once it is known."""
    memory: bool = True
    """Whether memories are extracted from this conversation and recalled in it."""
    collections: tuple[str, ...] = ()
    """The names of the collections that its questions are searched for in; none holds a `/`."""
    retrieval: str = OFF
    """One of RETRIEVAL_MODES."""
    tags: tuple[str, ...] = ()
    """As `kvchat.prompt.tags.tag_name` writes them, in order, each once."""


class SearchHit(Struct, frozen=True):
    """A message that matches a search."""

    conversation: str
    node: str
    title: str
    role: str
    snippet: str
    """One line around the match, raw text; matches are between \\x02 and \\x03."""
    created: float

    @property
    def unmarked(self) -> str:
        return self.snippet.replace("\x02", "").replace("\x03", "")


class SentRequest(Struct, frozen=True):
    """The evidence of what was sent for an answer."""

    body_sha256: str
    server: str
    """The server's base URL."""
    kind: str
    build: str
    model: str


class SavedPrompt(Struct, frozen=True):
    """A system prompt in the library."""

    name: str
    text: str


_MENTION = re.compile(r"(?<!\S)@(\S+)")


def title_of(text: str, blocks: Sequence[ContextBlock] = ()) -> str:
    """The title of a conversation: the first words of its first message that the user wrote; where they wrote none,
    those of what they pasted or attached (`blocks`), or the names that they mentioned. Whole words, where that fits."""
    own = LABEL.sub(" ", text)
    attached = (
        block.source if block.kind == IMAGE else block.text
        for block in blocks
        if block.kind in ("paste", "file", "stdin", IMAGE)
    )
    for said in (_MENTION.sub(" ", own), *attached, own.replace("@", "")):
        for line in said.splitlines():
            line = " ".join(line.split()).lstrip("#>*- ")
            if any(character.isalnum() for character in line):
                return _shortened(line)
    return _shortened(" ".join(own.split())) or NEW_TITLE


def _shortened(line: str) -> str:
    if len(line) <= TITLE_LENGTH:
        return line
    words = line[: TITLE_LENGTH + 1].rpartition(" ")[0]
    return (words if len(words) >= TITLE_LENGTH // 2 else line[:TITLE_LENGTH]).rstrip(" ,;:.–-")
