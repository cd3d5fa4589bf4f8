"""A conversation as another program had it, and what could not be taken of it. Values only."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import StrEnum, auto
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.prompt.message import Role
from kvchat.prompt.tags import ARCHIVE, FAVOURITE, TagError, tag_name
from kvchat.prompt.tags import LONGEST as LONGEST_TAG
from kvchat.prompt.tools import NO_CALL, ToolCall
from kvchat.sanitize import finite
from kvchat.values import Argument, Statement, said

if TYPE_CHECKING:
    import sqlite3

    from kvchat.transfer.formats import Source

LONGEST = 32 * 2**20
"""Characters that one conversation has at most in its file."""
MOST_MESSAGES = 50_000
"""Messages that one has at most."""
MOST_TEXT = 2 * LONGEST
"""Characters that one becomes at most: a text that is once in a file may be above many branches."""
DEEPEST = 200
"""Levels of nesting that one has at most."""


_NO_TAG = re.compile(r'[\s/,"#]+')


class ImportRefusal(StrEnum):
    """Why a file or a conversation was not taken. The comment names the arguments."""

    # a file
    MISSING = auto()
    UNREADABLE = auto()  # why
    FOREIGN = auto()
    NO_FILES = auto()
    ENCRYPTED = auto()
    BROKEN_ZIP = auto()
    BOMB = auto()  # times: how many times as large it is unpacked
    BROKEN_DATABASE = auto()
    OWN_DATABASE = auto()
    CUT_OFF = auto()
    NEWER = auto()  # version, known
    TOO_SLOW = auto()  # seconds
    MUCH_MEMORY = auto()
    NO_YAML = auto()
    # a conversation
    NOT_JSON = auto()
    TOO_LARGE = auto()  # limit: characters
    TOO_DEEP = auto()  # limit: levels
    MANY_MESSAGES = auto()  # limit
    MUCH_TEXT = auto()  # limit: characters
    FAULTY = auto()
    NOT_ONE = auto()
    EMPTY = auto()
    INVALID = auto()  # why: a sentence
    DIFFERS = auto()
    IN_TRASH = auto()


class Loss(StrEnum):
    """What was left out of conversations that were taken, or came otherwise than it was."""

    IMAGES = auto()
    FILES = auto()
    TOOL_CALLS = auto()
    TOOL_RESULTS = auto()
    OTHER = auto()
    """Parts of a message of a kind that kvchat does not know."""
    BROKEN = auto()
    """Messages that could not be read."""
    LOOSE = auto()
    """Messages that hang on one that is missing: they begin a branch."""
    NO_QUESTION = auto()
    """Replies without a question before them."""
    LATE_SYSTEM = auto()
    """System messages behind a question."""
    FOLDERS = auto()
    """Conversations in a folder or project of which the file has no name."""
    EDITED = auto()
    """Messages that are stored already and read otherwise in the file now."""


class NotTaken(Exception):  # noqa: N818 - it is named after the fact
    """A file or a conversation that is skipped."""

    def __init__(self, reason: ImportRefusal, **arguments: Argument) -> None:
        super().__init__(reason.value)
        self.why: Statement = said(reason, **arguments)


class Picture(Struct, frozen=True):
    """An image in a message, as the file has it: its octets, or where they are."""

    name: str = ""
    data: bytes = b""
    asset: str = ""
    """The beginning of the name of the image's own file, next to the file of the conversations."""


class ImportedMessage(Struct, frozen=True):
    """One message as the other program had it."""

    id: str
    parent: str | None
    role: Role
    text: str
    """Empty: it holds nothing to take, and what follows it follows the one before it."""
    created: float | None = None
    """Seconds since the epoch."""
    model: str = ""
    reasoning: str = ""
    files: tuple[tuple[str, str], ...] = ()
    """The names and texts of what was attached."""
    pictures: tuple[Picture, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    """The calls that a reply makes; of a result the one that it is of. An empty id, or name: the file has none."""


class StepKind(StrEnum):
    TEXT = auto()
    THOUGHT = auto()
    CALL = auto()
    RESULT = auto()


class Steps:
    """A reply in which calls and what they gave stand between its texts, in the order of the file."""

    def __init__(self) -> None:
        self._parts: list[tuple[StepKind, str, ToolCall]] = []

    def says(self, text: str) -> None:
        self._add(StepKind.TEXT, text)

    def thinks(self, text: str) -> None:
        self._add(StepKind.THOUGHT, text)

    def calls(self, call: ToolCall) -> None:
        self._add(StepKind.CALL, "", call)

    def gives(self, call: ToolCall, text: str) -> None:
        """`call`: the one whose result it is, as far as the file says."""
        self._add(StepKind.RESULT, text, call)

    def _add(self, kind: StepKind, text: str, call: ToolCall = NO_CALL) -> None:
        if text.strip() or call is not NO_CALL:
            self._parts.append((kind, text, call))

    def messages(self, whole: ImportedMessage) -> Iterator[ImportedMessage]:
        """The messages that take the place of `whole`: its id is that of the last one."""
        steps: list[ImportedMessage] = []
        for at, (kind, text, call) in enumerate(self._parts):
            last = steps[-1] if steps else None
            if kind is StepKind.RESULT:
                steps.append(replace(whole, role=Role.TOOL, text=text, calls=(call,)))
                continue
            goes_on = last is not None and last.role is whole.role
            if last is not None and last.calls and kind is not StepKind.CALL:
                goes_on = goes_on and self._is_result_next(at)
            if last is None or not goes_on:
                steps.append(last := replace(whole, text="", reasoning=""))
            steps[-1] = replace(
                last,
                text=joined(last.text, text) if kind is StepKind.TEXT else last.text,
                reasoning=joined(last.reasoning, text) if kind is StepKind.THOUGHT else last.reasoning,
                calls=(*last.calls, call) if kind is StepKind.CALL else last.calls,
            )
        parent, steps = whole.parent, steps or [whole]
        for at, one in enumerate(steps):
            is_last = at == len(steps) - 1
            own = {} if is_last else {"id": f"{whole.id}\n{at}", "files": (), "pictures": ()}
            yield replace(one, parent=parent, created=None if at else one.created, **own)
            parent = f"{whole.id}\n{at}"

    def _is_result_next(self, at: int) -> bool:
        """Whether a result comes before the next call."""
        kinds = (kind for kind, _, _ in self._parts[at:] if kind in (StepKind.CALL, StepKind.RESULT))
        return next(kinds, None) is StepKind.RESULT


class Thread(Struct):
    """One conversation: its messages, in any order, and where it stood."""

    source: str
    """The format's name: an id is one of it."""
    id: str
    title: str = ""
    messages: list[ImportedMessage] = field(default_factory=list)
    head: str | None = None
    """The message that the branch in use ends at; None: the one that was made last."""
    created: float | None = None
    system: str = ""
    """Its system prompt, where that is no message."""
    own_ids: bool = True
    """Whether the messages' ids are the program's own, the same in every file; else they count in this one only."""
    tags: set[str] = field(default_factory=set)
    """As kvchat writes them, FAVOURITE and ARCHIVE among them."""
    losses: Counter[Loss] = field(default_factory=Counter)

    def lost(self, kind: Loss, number: int = 1) -> None:
        self.losses[kind] += number

    def tag(self, name: object) -> None:
        """Put a tag of the program's on it: `Machine learning` is `machine-learning` here."""
        try:
            self.tags.add(tag_name(_NO_TAG.sub("-", text_of(name)).strip("-")[:LONGEST_TAG]))
        except TagError:
            self.lost(Loss.OTHER)

    def mark(self, *, favourite: object = False, archived: object = False) -> None:
        """What the program says of its place in the list, where it says it plainly."""
        self.tags |= {tag for tag, is_set in ((FAVOURITE, favourite), (ARCHIVE, archived)) if is_set is True}


class JsonFormat(Struct, frozen=True):
    """A format of JSON values, one for each conversation."""

    title: str
    """The program's name."""
    fits: Callable[[dict[str, object]], bool]
    read: Callable[[dict[str, object]], Thread | Source]
    """Raises NotTaken."""
    check: Callable[[dict[str, object]], None] = lambda header: None
    """Checks the fields before the conversations in the file. Raises NotTaken."""


class DatabaseFormat(Struct, frozen=True):
    """A program's SQLite database."""

    title: str
    tables: frozenset[str]
    """Tables that it has."""
    read: Callable[[sqlite3.Connection], Iterator[Thread]]
    count: str
    """SQL for how many conversations there are."""


class TextFormat(Struct, frozen=True):
    """A text file that holds one conversation."""

    title: str
    fits: Callable[[str], bool]
    """Whether a file that begins so is one."""
    read: Callable[[str, str], Thread]
    """Of the text and the file's name without its suffix. Raises NotTaken."""


ImportFormat: TypeAlias = JsonFormat | DatabaseFormat | TextFormat


# -- fields of a foreign object, where anything may stand -------------------------------------------------------------


_NAME = re.compile(r"[^\w-]")
LONGEST_NAME = 64
"""Characters of the name of a tool, as servers take it."""


def call_of(id: object, name: object, arguments: object) -> ToolCall:
    """A call as a file has it: its arguments as an object or as text, JSON or not. What comes can be sent back."""
    text = text_of(arguments)
    if isinstance(arguments, dict):
        text = json.dumps(arguments, ensure_ascii=False)
    elif not ToolCall("", "call", text).fault:
        pass
    elif text.strip():
        text = json.dumps({"input": text}, ensure_ascii=False)
    else:
        text = "{}"
    return ToolCall(id_of(id), _tool_name(name) or "tool", text)


def result_of(id: object, name: object = "") -> ToolCall:
    """The call that a result is of, as far as a file says."""
    return ToolCall(id_of(id), _tool_name(name), "")


def _tool_name(name: object) -> str:
    return _NAME.sub("_", text_of(name))[:LONGEST_NAME]


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def id_of(value: object) -> str:
    """An id as text; empty: there is none."""
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


EARLIEST, LATEST = 0.0, 4_102_444_800.0
"""Between 1970 and 2100: what is not is no time."""


def seconds_of(value: object, scale: float = 1.0) -> float | None:
    """A number, or an ISO 8601 text, as seconds since the epoch; None where there is no usable time."""
    found: float | None = None
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            # A time without a zone is one of the world's, as all of these programs write it.
            found = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
        elif (number := finite(value)) is not None:
            found = number * scale
    except (ValueError, OverflowError, OSError):
        return None
    return found if found is not None and EARLIEST < found < LATEST else None


_BLANKS = re.compile(r"\s*")
_DATA_URL = re.compile(r"data:image/[a-z0-9.+-]{1,40};base64,([A-Za-z0-9+/=\s]+)")


def octets_of(base64_text: str) -> bytes:
    """The octets of a text in base64; empty: it is none."""
    try:
        return base64.b64decode(base64_text, validate=False)
    except ValueError:
        return b""


def picture_of(url: object, name: str = "") -> Picture | None:
    """The image in a `data:` URL; None: it is another one. Nothing is ever fetched."""
    found = _DATA_URL.fullmatch(text_of(url))
    data = octets_of(found[1]) if found else b""
    return Picture(name, data) if data else None


def unfolded(text: str, begins: re.Pattern[str], ends: str, become: Callable[[re.Match[str], str], str]) -> str:
    """A text in which each part that is marked, from a match of `begins` to the next `ends` and the blanks behind it,
    becomes what is made of the match and of what it holds. One that does not end stays, and what follows it."""
    parts, at = list[str](), 0
    while (begin := begins.search(text, at)) and (end := text.find(ends, begin.end())) >= 0:
        parts += text[at : begin.start()], become(begin, text[begin.end() : end])
        at = _BLANKS.match(text, end + len(ends)).end()  # type: ignore[union-attr]
    return "".join([*parts, text[at:]])


def placeholder(what: str, name: str = "") -> str:
    """The line in place of what is left out: `[image not imported: lamp.png]`."""
    name = " ".join(name.replace("[", "(").replace("]", ")").split())[:120]
    return f"[{what}: {name}]" if name else f"[{what}]"


def fenced(text: str, language: str = "") -> str:
    """A text as a code block, in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    name = language if re.fullmatch(r"[\w+#.-]{1,40}", language) else ""
    return f"{fence}{name}\n{text.strip(chr(10))}\n{fence}"


def link(title: str, url: str) -> str:
    """`([Lamp news](https://lamp.example/a))`, as ChatGPT shows a source."""
    title = " ".join(re.sub(r"[\[\]]", "", title).split())
    return f"([{title or url}]({url.replace(' ', '%20')}))" if url else f"({title})" if title else ""


def joined(*texts: str) -> str:
    """Texts one under the other, a blank line between; without those that are blank."""
    return "\n\n".join(text for text in texts if text.strip())
