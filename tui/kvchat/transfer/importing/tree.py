"""The one way from another program's messages to a tree of ours, with all their branches.

What a message becomes depends only on the message and those above it. So a second import finds by its id what the first
one made, and continues below it; nothing that is stored is made again.

Questions and replies alternate here, and a system message is only ever the first. Messages of one role that follow each
other become one, empty ones are passed over, and a question without a reply gets an empty one.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.conversation import NEW_TITLE, Conversation, title_of
from kvchat.prompt.images import images_in
from kvchat.prompt.message import Message, Node, Role, State, node, system_message
from kvchat.prompt.tags import tagged
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.transfer.formats import Source
from kvchat.transfer.importing.thread import (
    MOST_TEXT,
    ImportedMessage,
    ImportRefusal,
    Loss,
    NotTaken,
    Picture,
    Thread,
    joined,
    placeholder,
)

_IDS = uuid.UUID("6f0b1f0e-5a3c-5c0a-9d0e-6b7663686174")
"""What the ids of all that was imported are made from."""
STEP_S = 0.001
"""Between two messages of which the second one's time is not known."""
LONGEST_TITLE = 200


class Grown(Struct, frozen=True):
    """A conversation as it is after an import."""

    source: Source
    """All of it: what is stored already, and what is new."""
    new: tuple[Node, ...]
    """Each after its parent."""
    losses: Counter[Loss]


class _Place(Struct, frozen=True):
    """Where a message goes."""

    base: Node | None
    """The message it follows; None: the system message."""
    system: str = ""
    """The text of the system messages above it."""
    above: ImportedMessage | None = None
    """One of its own role above it, which it goes on with."""


def conversation_id(thread: Thread) -> str:
    """The id of what a thread becomes: the same for the same conversation, whichever file it is in."""
    return _space(thread).hex


def _space(thread: Thread) -> uuid.UUID:
    return uuid.uuid5(_IDS, f"{thread.source}\n{whole_characters(thread.id)}")


ImageOf = Callable[[Picture], ContextBlock | None]
"""Gives the block of an image that is taken; None: it cannot be."""


def grown(
    thread: Thread, known: Tree | None, instructions: str, now: float, image_of: ImageOf = lambda picture: None
) -> Grown:
    """What a thread becomes. `known`: the messages that are stored of it already. `instructions`: of the system message
    where the thread has none. `now`: its time where it has none. Raises NotTaken."""
    return _Growth(thread, known, instructions, now, image_of).grown()


class _Growth:
    def __init__(self, thread: Thread, known: Tree | None, instructions: str, now: float, image_of: ImageOf) -> None:
        self._thread = thread
        self._image_of = image_of
        self._known = known if known is not None else Tree()
        self._instructions = instructions
        self._ids = _space(thread)
        self._began = thread.created or min((one.created for one in thread.messages if one.created), default=now)
        self._tree = Tree(self._known)
        self._roots: dict[str, Node] = {}
        self._new: list[Node] = []
        self._losses = Counter(thread.losses)
        self._messages: dict[str, ImportedMessage] = {}
        self._below: dict[str | None, list[ImportedMessage]] = {}
        self._length = self._work = 0
        """Characters of what is made, and of what was put together for it."""
        self._made: dict[str, Node] = {}
        """By the id of the message as the program has it."""
        for one in thread.messages:
            if one.id in self._messages:
                self._losses[Loss.BROKEN] += 1
            else:
                self._messages[one.id] = one
        for one in self._messages.values():
            if one.parent is not None and one.parent not in self._messages:
                self._losses[Loss.LOOSE] += 1
                one = replace(one, parent=None)
            self._below.setdefault(one.parent, []).append(one)
        self._head = self._last_with_words(thread.head)

    def grown(self) -> Grown:
        seen = self._walk()
        self._losses[Loss.LOOSE] += len(self._messages) - seen  # they follow each other in a ring
        questions = sum(one.role is Role.USER for one in self._tree)
        if not self._made or not questions:
            raise NotTaken(ImportRefusal.EMPTY)
        self._answer_all()
        made = {one.id for one in self._made.values()}
        said = [one for one in self._tree if one.role is not Role.SYSTEM]
        head = self._made.get(self._head or "") or max(self._made.values(), key=lambda one: (one.created, one.id))
        record = Conversation(
            id=self._ids.hex,
            head=self._tree.tip(head.id) if head.role is Role.USER else head.id,
            created=min(self._began, *(one.created for one in said)),
            updated=max(one.created for one in said if one.id in made),
            title=self._title(),
            turns=questions,
            tags=tagged(self._thread.tags),
        )
        return Grown(Source(record, self._tree), tuple(self._new), +self._losses)

    def _title(self) -> str:
        title = " ".join(whole_characters(self._thread.title).split())[:LONGEST_TITLE].strip()
        if title:
            return title
        first = min((one for one in self._tree if one.role is Role.USER), key=lambda one: (one.created, one.id))
        return title_of(first.text, first.message.blocks) or NEW_TITLE

    # -- walking down -------------------------------------------------------------------------------------------------

    def _walk(self) -> int:
        """Make a node of each message that becomes one; how many messages were seen."""
        seen = 0
        waiting = [(one, _Place(None)) for one in reversed(self._below.get(None, ()))]
        while waiting:
            one, place = waiting.pop()
            seen += 1
            for below in self._placed(one, place):
                waiting.extend((child, below) for child in reversed(self._below.get(one.id, ())))
        return seen

    def _placed(self, one: ImportedMessage, place: _Place) -> Iterator[_Place]:
        """Make of a message what it becomes; where what follows it goes."""
        if not _has_words(one):
            yield place
        elif one.role is Role.SYSTEM:
            if place.base is None and place.above is None:
                yield replace(place, system=joined(place.system, one.text))
            else:
                self._losses[Loss.LATE_SYSTEM] += 1
                yield place
        else:
            yield self._said(one, place)

    def _said(self, one: ImportedMessage, place: _Place) -> _Place:
        above = place.above
        if above is not None and above.role is one.role:
            one = replace(
                one,
                text=joined(above.text, one.text),
                reasoning=joined(above.reasoning, one.reasoning),
                files=(*above.files, *one.files),
                pictures=(*above.pictures, *one.pictures),
                created=above.created or one.created,
                model=one.model or above.model,
            )
            self._work += _length(one)
            if self._work > 16 * MOST_TEXT:
                raise NotTaken(ImportRefusal.MUCH_TEXT, limit=MOST_TEXT)
        elif above is not None:
            place = _Place(self._made[above.id], place.system)
        next_ones = self._followers(one.id)
        goes_on = bool(next_ones) and one.id != self._head and all(child.role is one.role for child in next_ones)
        if not goes_on:
            self._make(one, place)
        return _Place(place.base, place.system, one)

    def _followers(self, id: str) -> list[ImportedMessage]:
        """The next messages below that hold something to take."""
        found, waiting = [], list(self._below.get(id, ()))
        while waiting:
            one = waiting.pop()
            if _has_words(one) and one.role is not Role.SYSTEM:
                found.append(one)
            else:
                waiting.extend(self._below.get(one.id, ()))
        return found

    def _last_with_words(self, head: str | None) -> str | None:
        steps = 0
        while head is not None and head in self._messages and steps <= len(self._messages):
            one = self._messages[head]
            if _has_words(one) and one.role is not Role.SYSTEM:
                return head
            head, steps = one.parent, steps + 1
        return None

    # -- making nodes -------------------------------------------------------------------------------------------------

    def _make(self, one: ImportedMessage, place: _Place) -> None:
        self._length += _length(one)
        if self._length > MOST_TEXT:
            raise NotTaken(ImportRefusal.MUCH_TEXT, limit=MOST_TEXT)
        parent = place.base or self._root(place.system)
        if one.role is Role.ASSISTANT and parent.role is Role.SYSTEM:
            self._losses[Loss.NO_QUESTION] += 1
            asked = Message(Role.USER, placeholder("the conversation begins with a reply"))
            parent = self._put(parent, f"{one.id}\nquestion", asked, one.created)
        blocks = tuple(
            ContextBlock(FILE, whole_characters(name) or "file", whole_characters(text)) for name, text in one.files
        )
        images, text = self._images(one)
        message = Message(one.role, whole_characters(text), (*images, *blocks), whole_characters(one.reasoning))
        self._made[one.id] = self._put(parent, one.id, message, one.created, whole_characters(one.model))

    def _images(self, one: ImportedMessage) -> tuple[tuple[ContextBlock, ...], str]:
        """The images of a message, and its text with a line for each that cannot be taken. Those that are stored
        already are not looked at again."""
        if not one.pictures:
            return (), one.text
        id = uuid.uuid5(self._ids, whole_characters(one.id)).hex if self._thread.own_ids else ""
        if id in self._known:
            stored = tuple(images_in(self._known[id].message.blocks))
            if len(stored) == len(one.pictures):
                return stored, one.text
        found = [(picture, self._image_of(picture)) for picture in one.pictures]
        missed = [picture.name for picture, block in found if block is None]
        self._losses[Loss.IMAGES] += len(missed)
        text = joined(one.text, *(placeholder("image not imported", name) for name in missed))
        return tuple(block for _, block in found if block is not None), text

    def _put(
        self, parent: Node, id: str, message: Message, created: float | None, model: str = "", state: State = State.DONE
    ) -> Node:
        if not self._thread.own_ids:
            id = f"{parent.digest.hex()}\n{message.role}\n{message.text}\n{message.blocks}"
        id = uuid.uuid5(self._ids, whole_characters(id)).hex
        if id in self._tree:
            stored = self._tree[id]
            if id in self._known and stored.message != message:
                self._losses[Loss.EDITED] += 1
            return stored
        if created is None:
            created = parent.created + STEP_S * (1 + self._tree.width(parent.id))
        if parent.id not in self._tree:  # a system message is made with the first question below it
            self._add(parent)
        made = node(parent, message, created, id=id, state=state, model=model)
        self._add(made)
        return made

    def _add(self, made: Node) -> None:
        self._tree.put(made)
        self._new.append(made)

    def _root(self, system: str) -> Node:
        system = joined(self._thread.system, system)
        if system not in self._roots:
            self._roots[system] = self._stored_root(system) or node(
                None, system_message(system or self._instructions), self._began
            )
        return self._roots[system]

    def _stored_root(self, system: str) -> Node | None:
        """The system message that the conversation has already."""
        roots, wanted = self._known.children(None), system_message(system or self._instructions).wire()
        found = next((root for root in roots if root.wire == wanted), None)
        if found is not None or system:
            return found
        # The instructions that it was given when it was imported first.
        own = {system_message(one.text).wire() for one in self._thread.messages if one.role is Role.SYSTEM}
        return next((root for root in roots if root.wire not in own), None)

    def _answer_all(self) -> None:
        """Put an empty reply to each question that has none."""
        for one in [one for one in self._new if one.role is Role.USER and not self._tree.children(one.id)]:
            self._put(one, f"{one.id}\nno reply", Message(Role.ASSISTANT, ""), None, state=State.EMPTY)


def _length(one: ImportedMessage) -> int:
    """Characters and octets of what a message holds, and a few for each part."""
    parts = sum(len(name) + len(text) + 100 for name, text in one.files)
    return len(one.text) + len(one.reasoning) + parts + sum(len(picture.data) + 100 for picture in one.pictures)


def _has_words(one: ImportedMessage) -> bool:
    return bool(one.text.strip() or one.files or one.pictures or one.reasoning.strip())
