"""Lossless JSON: a conversation with everything it is made of, every branch, as kvchat reads it back.

Wire bytes are written and read as they are, never rendered again, and every digest is checked on the way
in. A wire that was changed after the export is reported, never loaded.

In the order in which they are called:

1. `fields_of`: a conversation as JSON values; `pieces`: the text of several, piece by piece.
2. `source_of`: one conversation of a file. `Fields` gives each of its fields the type that is asked for, or raises.
3. `_conversation`, then `_node` for each message, parents first; `_message` and `_figures` read what is in it.
4. `_shown_is_sent`: whether the wire says what the screen will show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import asdict

from kvchat import __version__
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import OFF, RETRIEVAL_MODES, Conversation
from kvchat.prompt.images import count_images, images_in, stored_part, url_sha256
from kvchat.prompt.message import Message, Node, Role, State, chained
from kvchat.prompt.request import Parameters
from kvchat.prompt.tags import TagError, tag_name, tagged
from kvchat.prompt.thoughts import is_frame
from kvchat.prompt.tools import ToolCall
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import finite
from kvchat.transfer.exact_json import dumps, loads
from kvchat.transfer.formats import Format, Source, Sources, TransferError
from kvchat.transfer.importing.thread import EARLIEST, LATEST
from kvchat.values import Statement, as_fields, statement

DOCUMENT = "kvchat-conversations"
VERSION = 1


def parents_first(tree: Tree) -> Iterator[Node]:
    """All nodes, each after its parent."""
    waiting = tree.children(None)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(tree.children(node.id)[::-1])


def _node_fields(node: Node) -> dict[str, object]:
    message = node.message
    return {
        "id": node.id,
        "parent": node.parent,
        "role": message.role.value,
        "text": message.text,
        "reasoning": message.reasoning,
        "reasoning_field": message.reasoning_field,
        "blocks": [asdict(block) for block in message.blocks],
        "pasted": message.pasted,
        "calls": [asdict(call) for call in message.calls],
        "tools": message.tools.decode(),
        # A byte that is not UTF-8 becomes a lone surrogate, which JSON can carry and the reader turns back.
        "wire": node.wire.decode("utf-8", "surrogateescape"),
        "digest": node.digest.hex(),
        "created": node.created,
        "state": node.state.value,
        "model": node.model,
        "figures": None if node.figures is None else as_fields(node.figures),
        "note": as_fields(node.note) if node.note else None,
    }


def _conversation_fields(conversation: Conversation) -> dict[str, object]:
    values = {name: getattr(conversation, name) for name in conversation.__struct_fields__}
    parameters = conversation.parameters
    values["parameters"] = {name: getattr(parameters, name) for name in parameters.__struct_fields__}
    values["parameters"]["extra"] = dict(parameters.extra)
    values["template_options"] = dict(conversation.template_options)
    return values


def fields_of(source: Source) -> dict[str, object]:
    """A conversation as `source_of` reads it. Raises TransferError where it cannot be written."""
    nodes = [_node_fields(node) for node in parents_first(source.tree)]
    if len(nodes) != len(source.tree):
        raise TransferError(
            f"{len(source.tree) - len(nodes)} messages of conversation {source.conversation.id} hang on a message that "
            "is missing, so they cannot be exported as JSON. Export it as Markdown."
        )
    found: dict[str, object] = {"conversation": _conversation_fields(source.conversation), "nodes": nodes}
    if source.images:
        found["images"] = {name: url.decode() for name, url in source.images.items()}
    return {**found, "draft": source.draft} if source.draft else found


def pieces(sources: Sources, all_branches: bool = True) -> Iterator[str]:
    """The conversations as JSON text, every branch of them.

    Raises TransferError if a value cannot be written as JSON.
    """
    document = {
        "format": DOCUMENT,
        "version": VERSION,
        "written_by": f"kvchat {__version__}",
        "conversations": [],
    }
    begin, end = dumps(document, indent=1).split("[]")
    between = "["
    for source in sources:
        # What is written in lines is moved to its depth: a string holds no line end.
        lines = _written(source).replace("\n", "\n  ")
        yield f"{begin}{between}\n  {lines}"
        begin, between = "", ","
    yield f"{begin}[]{end}\n" if begin else f"\n ]{end}\n"


def _written(source: Source) -> str:
    try:
        return dumps(fields_of(source), indent=1)
    except (TypeError, ValueError, RecursionError) as error:
        raise TransferError(f"A conversation holds a value that JSON cannot carry ({error}).") from error


# -- fields of a foreign object ---------------------------------------------------------------------------------------


class Fields:
    """The fields of one JSON object; `where` names its place in words. A field is of the type that is asked for, or
    TransferError is raised; one that is asked for as optional may be missing or null, and is then None."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise TransferError(f"{where} is not a JSON object. Nothing was read.")
        self._values = dict(value)

    def wrong(self, name: str, wanted: str) -> TransferError:
        return TransferError(f"{self.where}: the field {name} is not {wanted}. Nothing was read.")

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def has(self, name: str) -> bool:
        return name in self._values

    def is_text(self, name: str) -> bool:
        return isinstance(self._values.get(name), str)

    def optional_text(self, name: str) -> str | None:
        return None if self._values.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        value = self._values.get(name)
        if not isinstance(value, int) or finite(value) is None:
            raise self.wrong(name, "a whole number of 64 bits")
        return value

    def optional_whole(self, name: str) -> int | None:
        return None if self._values.get(name) is None else self.whole(name)

    def number(self, name: str) -> float:
        if (value := finite(self._values.get(name))) is None:
            raise self.wrong(name, "a number")
        return value

    def optional_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def time(self, name: str) -> float:
        """Seconds since the epoch, which can be shown as a day."""
        if not EARLIEST <= (value := self.number(name)) < LATEST:
            raise self.wrong(name, "a time between 1970 and 2100")
        return value

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def optional_flag(self, name: str) -> bool | None:
        return None if self._values.get(name) is None else self.flag(name)

    def items(self, name: str) -> list[object]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        found = tuple(value for value in self.items(name) if isinstance(value, str))
        if len(found) != len(self.items(name)):
            raise self.wrong(name, "a list of texts")
        return found

    def optional_texts(self, name: str) -> tuple[str, ...] | None:
        return None if self._values.get(name) is None else self.texts(name)

    def mapping(self, name: str) -> dict[str, object]:
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "a JSON object")
        return value

    def inner(self, name: str) -> Fields:
        return Fields(self._values.get(name), f"{self.where}, {name}")

    def optional_mapping(self, name: str) -> dict[str, object] | None:
        return None if self._values.get(name) is None else self.mapping(name)

    def optional_inner(self, name: str) -> Fields | None:
        return None if self._values.get(name) is None else self.inner(name)


# -- reading it back --------------------------------------------------------------------------------------------------


_URL = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/]+={0,2}")
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def source_of(value: object) -> Source:
    """One conversation of an export, equal to the one that was written. Raises TransferError for what is none, is
    damaged or was changed."""
    item, tree = Fields(value, "The conversation"), Tree()
    for number, found in enumerate(item.items("nodes"), 1):
        tree.put(_node(Fields(found, f"Message {number}"), tree))
    conversation = _conversation(item.inner("conversation"))
    if conversation.head is not None and conversation.head not in tree:
        raise TransferError(f"{item.where}: its branch ends at a message that is not in the file. Nothing was read.")
    return Source(conversation, tree, item.optional_text("draft") or "", images=_images(item))


def _images(item: Fields) -> dict[str, bytes]:
    """The images of a conversation, each of which its name fits."""
    found: dict[str, bytes] = {}
    for name, url in (item.optional_mapping("images") or {}).items():
        if not isinstance(url, str) or not _URL.fullmatch(url) or url_sha256(url.encode()) != name:
            raise TransferError(
                f"{item.where}: an image does not fit its name, so the file was changed or damaged "
                "after the export. Nothing was read."
            )
        found[name] = url.encode()
    return found


def _id(item: Fields, name: str) -> str:
    value = item.text(name)
    if not _ID.fullmatch(value):
        raise item.wrong(name, "an id")
    return value


def _optional_id(item: Fields, name: str) -> str | None:
    return None if item.optional_text(name) is None else _id(item, name)


def _conversation(item: Fields) -> Conversation:
    return Conversation(
        id=_id(item, "id"),
        head=_optional_id(item, "head"),
        created=item.time("created"),
        updated=item.time("updated"),
        title=item.text("title"),
        turns=item.whole("turns"),
        model=item.text("model"),
        parameters=_parameters(item.inner("parameters")),
        template_options=item.mapping("template_options"),
        forked_from=_optional_id(item, "forked_from"),
        unread=item.flag("unread"),
        trashed=item.optional_number("trashed"),
        context_used=item.optional_whole("context_used"),
        server=item.optional_text("server") or "",
        system_in_user=item.optional_flag("system_in_user") or False,
        memory=item.optional_flag("memory") is not False,
        collections=_collections(item),
        retrieval=_retrieval(item),
        tags=_tags(item),
    )


def _collections(item: Fields) -> tuple[str, ...]:
    names = item.optional_texts("collections") or ()
    if not all(names) or any("/" in name for name in names):
        raise item.wrong("collections", "a list of names")
    return names


def _tags(item: Fields) -> tuple[str, ...]:
    names = item.optional_texts("tags") or ()
    try:
        return tagged(map(tag_name, names))
    except TagError:
        raise item.wrong("tags", "a list of tags") from None


def _retrieval(item: Fields) -> str:
    mode = item.optional_text("retrieval")
    if mode is not None and mode not in RETRIEVAL_MODES:
        raise item.wrong("retrieval", "off, ask or always")
    return mode or OFF


def _parameters(item: Fields) -> Parameters:
    return Parameters(
        temperature=item.optional_number("temperature"),
        top_p=item.optional_number("top_p"),
        top_k=item.optional_whole("top_k"),
        min_p=item.optional_number("min_p"),
        presence_penalty=item.optional_number("presence_penalty"),
        frequency_penalty=item.optional_number("frequency_penalty"),
        repeat_penalty=item.optional_number("repeat_penalty"),
        seed=item.optional_whole("seed"),
        max_tokens=item.optional_whole("max_tokens"),
        stop=item.texts("stop"),
        response_format=item.optional_mapping("response_format"),
        extra=item.mapping("extra"),
    )


def _figures(item: Fields | None) -> TurnFigures | None:
    if item is None:
        return None
    return TurnFigures(
        prompt_tokens=item.optional_whole("prompt_tokens"),
        cached_tokens=item.optional_whole("cached_tokens"),
        predicted_tokens=item.optional_whole("predicted_tokens"),
        new_tokens=item.optional_whole("new_tokens"),
        ttft_ms=item.optional_number("ttft_ms"),
        prompt_ms=item.optional_number("prompt_ms"),
        predicted_ms=item.optional_number("predicted_ms"),
        context_size=item.optional_whole("context_size"),
        predicted_cached=item.optional_whole("predicted_cached"),
        cause=item.optional_text("cause"),
        evidence=_statement(item, "evidence"),
        remedy=_statement(item, "remedy"),
        estimated=item.optional_flag("estimated"),
        block=item.optional_whole("block"),
        stopped=item.optional_flag("stopped"),
        begun_tokens=item.optional_whole("begun_tokens"),
        alternative=item.optional_whole("alternative"),
        ahead_tokens=item.optional_whole("ahead_tokens"),
        predicted_roughly=item.optional_flag("predicted_roughly"),
    )


def _statement(item: Fields, name: str) -> Statement | None:
    """A kind and its arguments; None also for a sentence, as kvchat before 0.2 wrote it."""
    if item.is_text(name) or (found := item.optional_inner(name)) is None:
        return None
    return statement(found.text("kind"), found.mapping("arguments"))


def _message(item: Fields) -> Message:
    try:
        role = Role(item.text("role"))
    except ValueError:
        raise item.wrong("role", "system, user, assistant or tool") from None
    blocks = [Fields(value, f"{item.where}, context {n}") for n, value in enumerate(item.items("blocks"), 1)]
    return Message(
        role,
        item.text("text"),
        tuple(
            ContextBlock(block.text("kind"), block.text("source"), block.text("text"), block.optional_text("ref") or "")
            for block in blocks
        ),
        item.text("reasoning"),
        item.text("reasoning_field"),
        _pasted(item),
        _calls(item),
        (item.optional_text("tools") or "").encode(),
    )


def _calls(item: Fields) -> tuple[ToolCall, ...]:
    """None where an earlier version wrote the file."""
    found = [Fields(value, f"{item.where}, a call") for value in (item.items("calls") if item.has("calls") else [])]
    return tuple(ToolCall(call.text("id"), call.text("name"), call.text("arguments")) for call in found)


def _pasted(item: Fields) -> tuple[tuple[int, int], ...]:
    """None where an earlier version wrote the file."""
    pairs = item.items("pasted") if item.has("pasted") else []
    found = [at for pair in pairs if isinstance(pair, list) and len(pair) == 2 for at in pair if isinstance(at, int)]
    bounds = [0, *found, len(item.text("text"))]
    if len(found) != 2 * len(pairs) or bounds != sorted(bounds):
        raise item.wrong("pasted", "places in the text")
    return tuple(zip(found[::2], found[1::2], strict=True))


def _node(item: Fields, tree: Tree) -> Node:
    """The node of `item`, whose parent is in `tree` already; its wire and digest are checked."""
    id, parent = _id(item, "id"), _optional_id(item, "parent")
    if id in tree:
        raise TransferError(f"{item.where}: its id stands twice in the conversation. Nothing was read.")
    if parent is not None and parent not in tree:
        raise TransferError(f"{item.where}: the message it follows does not stand before it. Nothing was read.")
    try:
        wire = item.text("wire").encode("utf-8", "surrogateescape")
        digest = bytes.fromhex(item.text("digest"))
    except ValueError:
        raise item.wrong("wire or digest", "what an export writes") from None
    message = _message(item)
    if chained(tree[parent].digest if parent else message.above, wire) != digest:
        raise TransferError(
            f"{item.where}: the digest does not fit the wire text, so the file was changed or damaged "
            "after the export. Nothing was read."
        )
    try:
        state = State(item.text("state"))
    except ValueError:
        raise item.wrong("state", "a state of a message") from None
    if state is not State.STREAMING and not _shown_is_sent(message, wire):
        raise TransferError(f"{item.where}: its text is not the text the model would see. Nothing was read.")
    return Node(
        id,
        parent,
        message,
        wire,
        digest,
        item.time("created"),
        state,
        item.text("model"),
        _figures(item.optional_inner("figures")),
        _statement(item, "note"),
    )


def _shown_is_sent(message: Message, wire: bytes) -> bool:
    """Whether the wire says what the screen would show: same role, text and reasoning, and nothing else.

    Only the frame around context blocks may differ: it is frozen, and another version may have made it.
    """
    try:
        sent = loads(wire.decode("utf-8"))
    except ValueError:
        return False
    if not isinstance(sent, dict) or sent.pop("role", None) != message.role.value:
        return False
    content, text = _text_in(sent.pop("content", None), message, wire), whole_characters(message.text)
    text, reasoning = whole_characters(message.framed) + text, sent.pop(message.reasoning_field, "")
    if message.framed and not is_frame(message.reasoning_field):
        return False
    if not _calls_are_sent(message, sent):
        return False
    hidden = message.framed or not message.reasoning_field
    if content is None or sent or reasoning != ("" if hidden else whole_characters(message.reasoning)):
        return False
    return content.endswith(text) if message.blocks else content == text


def _calls_are_sent(message: Message, sent: dict[str, object]) -> bool:
    """Whether the wire has the message's calls; they are taken out of `sent`."""
    if message.role is Role.TOOL:
        named = sent.pop("name", None), sent.pop("tool_call_id", None)
        return [named] == [(call.name, call.id) for call in message.calls]
    return sent.pop("tool_calls", None) == ([call.wire() for call in message.calls] or None)


def _text_in(content: object, message: Message, wire: bytes) -> str | None:
    """The text of a message on the wire, behind the images that it shows and no others; None: it is another one."""
    images = [stored_part(block) for block in images_in(message.blocks)]
    if count_images([wire]) != len(images):
        return None
    if not images:
        return content if isinstance(content, str) else None
    if not isinstance(content, list) or content[: len(images)] != images:
        return None
    match content[len(images) :]:
        case []:
            return ""
        case [{"type": "text", "text": str(text), **more}] if not more:
            return text
    return None


FORMAT = Format("JSON (lossless)", "Lossless JSON, to import again byte for byte", pieces, every_branch=True)
