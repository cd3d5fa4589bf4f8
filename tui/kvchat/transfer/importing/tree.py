"""The one way from another program's messages to a tree of ours, with all their branches.

What a message becomes depends only on the message and those above it. So a second import finds by its id what the first
one made, and continues below it; nothing that is stored is made again.

Questions and replies alternate here, and a system message is only ever the first. Messages of one role that follow each
other become one, empty ones are passed over, and a question without a reply gets an empty one.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kvchat.prompt.context import FILE, RESULT, ContextBlock, guarded, quoted
from kvchat.prompt.conversation import NEW_TITLE, Conversation, title_of
from kvchat.prompt.images import images_in
from kvchat.prompt.message import Message, Node, Role, State, node, system_message
from kvchat.prompt.tags import tagged
from kvchat.prompt.tools import INTERRUPTED, NO_CALL, ToolCall, still_open
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
    waiting: tuple[ToolCall, ...] = ()
    """The calls above it that have no result yet."""


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
        self._as_text: dict[str, bool] = {}
        """By id of a step: as of `_is_known_as_text`."""
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
        if not _has_words(one) or self._is_known_as_text(one):
            yield place
        elif one.role is Role.SYSTEM:
            if place.base is None and place.above is None:
                yield replace(place, system=joined(place.system, one.text))
            else:
                self._losses[Loss.LATE_SYSTEM] += 1
                yield place
        elif one.role is Role.TOOL:
            yield self._result(one, place)
        else:
            yield self._message(one, place)

    def _result(self, one: ImportedMessage, place: _Place) -> _Place:
        """A result, which follows its call. What else a tool said of it goes on with it."""
        above = place.above
        if above is not None and above.role is Role.TOOL and above.id not in self._made:
            one = self._merged(above, replace(one, calls=above.calls))
        elif (call := _bound(one.calls, place.waiting)) is None:
            self._losses[Loss.TOOL_RESULTS] += 1
            return place
        else:
            base = self._made[above.id] if above is not None else place.base
            place, one = replace(place, base=base), replace(one, calls=(call,))
        waiting = still_open(place.waiting, one.calls[0]) or ()
        goes_on = not waiting and self._goes_on(one)
        if not goes_on:
            self._make(one, place)
        return replace(place, above=one, waiting=place.waiting if goes_on else waiting)

    def _message(self, one: ImportedMessage, place: _Place) -> _Place:
        above = place.above
        one = replace(one, calls=self._calls(one))
        if above is not None and above.role is one.role and not above.calls:
            one = self._merged(above, one)
        elif above is not None:
            place = replace(place, base=self._made[above.id])
        if not self._goes_on(one):
            self._make(one, replace(place, base=self._closed(one, place)))
            stored = self._made[one.id].message.calls if one.role is Role.ASSISTANT else ()
            return _Place(place.base, place.system, one, stored)
        return _Place(place.base, place.system, one, place.waiting)

    def _closed(self, one: ImportedMessage, place: _Place) -> Node | None:
        """What a message follows: behind calls without results, which get some that say so; a question behind an
        answer."""
        above = place.base
        for call in place.waiting:
            assert above is not None
            lost = Message(Role.TOOL, INTERRUPTED, calls=(call,))
            above = self._put(above, f"{above.id}\n{call.id}", lost, None, state=State.INTERRUPTED)
        if one.role is Role.USER and above is not None and above.role is Role.TOOL:
            above = self._put(above, f"{above.id}\nno reply", Message(Role.ASSISTANT, ""), None, state=State.EMPTY)
        return above

    def _calls(self, one: ImportedMessage) -> tuple[ToolCall, ...]:
        """The calls of a message, each with an id of its own."""
        seen, calls = set[str](), list[ToolCall]()
        for at, call in enumerate(one.calls):
            id = whole_characters(call.id)
            if not id or id in seen:
                id = self._id(f"{one.id}\n{at}")[:9]
            seen.add(id)
            calls.append(ToolCall(id, call.name, whole_characters(call.arguments)))
        return tuple(calls)

    def _is_known_as_text(self, one: ImportedMessage) -> bool:
        """Whether it is a call, or its result, of an answer that an earlier import took with a line in its place."""
        if not self._thread.own_ids or not self._known or not _is_step(one):
            return False
        passed, step = list[str](), one
        while step.id not in self._as_text:
            passed.append(step.id)
            self._as_text[step.id] = False  # so it stays where they follow each other in a ring, or nothing follows
            id = self._id(step.id)
            if not _is_step(step) and id in self._known:
                self._as_text[step.id] = self._known[self._known[id].parent or ""].role is not Role.TOOL
            elif _is_step(step) and id not in self._known and (below := self._followers(step)):
                step = below[0]
        found = self._as_text[step.id]
        self._as_text |= dict.fromkeys(passed, found)
        return found

    def _goes_on(self, one: ImportedMessage) -> bool:
        """Whether all that follows a message is of its role, and becomes one with it."""
        next_ones = self._followers(one)
        is_one = bool(next_ones) and one.id != self._head and all(child.role is one.role for child in next_ones)
        if one.role is Role.TOOL:
            return is_one and all(child.calls[0].id in ("", one.calls[0].id) for child in next_ones)
        return is_one and not one.calls

    def _merged(self, above: ImportedMessage, one: ImportedMessage) -> ImportedMessage:
        """A message with the one above it, which it goes on with."""
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
        return one

    def _followers(self, of: ImportedMessage) -> list[ImportedMessage]:
        """The next messages below that hold something to take; results only of a call."""
        passed = (Role.SYSTEM,) if _is_step(of) else (Role.SYSTEM, Role.TOOL)
        found, waiting = [], list(self._below.get(of.id, ()))
        while waiting:
            one = waiting.pop()
            if _has_words(one) and one.role not in passed:
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
        if one.role is Role.TOOL:
            result = whole_characters(text)
            made = quoted(result, RESULT) or [ContextBlock(RESULT, one.calls[0].name, guarded(result))]
            blocks = tuple(made) if text.strip() else ()
            text = ""
        message = Message(
            one.role, whole_characters(text), (*images, *blocks), whole_characters(one.reasoning), calls=one.calls
        )
        self._made[one.id] = self._put(parent, one.id, message, one.created, whole_characters(one.model))

    def _images(self, one: ImportedMessage) -> tuple[tuple[ContextBlock, ...], str]:
        """The images of a message, and its text with a line for each that cannot be taken. Those that are stored
        already are not looked at again."""
        if not one.pictures:
            return (), one.text
        id = self._id(one.id) if self._thread.own_ids else ""
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
        id = self._id(id)
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

    def _id(self, theirs: str) -> str:
        """The id of a message here."""
        return uuid.uuid5(self._ids, whole_characters(theirs)).hex

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
    parts += sum(len(call.arguments) + 100 for call in one.calls)
    return len(one.text) + len(one.reasoning) + parts + sum(len(picture.data) + 100 for picture in one.pictures)


def _has_words(one: ImportedMessage) -> bool:
    said = bool(one.text.strip() or one.files or one.pictures or one.reasoning.strip())
    return said or _is_step(one)


def _is_step(one: ImportedMessage) -> bool:
    """Whether it is a call or the result of one."""
    return bool(one.calls) or one.role is Role.TOOL


def _bound(of: Sequence[ToolCall], waiting: Sequence[ToolCall]) -> ToolCall | None:
    """Which of the calls that wait for a result this one is of: by its id, else its name, else the first; None: of none
    of them."""
    [known] = of or (NO_CALL,)
    if known.id:
        return next((call for call in waiting if call.id == known.id), None)
    return next((call for call in waiting if known.name and call.name == known.name), next(iter(waiting), None))
