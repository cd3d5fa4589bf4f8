"""Reading lossless JSON back. The file is foreign until it has been checked.

The rule: all or nothing. Every digest must follow from its parent's digest and its wire bytes, and the text shown
must be the text in those bytes; otherwise one sentence names the message and nothing is loaded.
"""

from __future__ import annotations

import re

from kvchat.aliases import CAUSES
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.causes.cause import Statement, statement
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import OFF, SEARCHING, Conversation
from kvchat.prompt.message import Message, Node, Role, State, chained
from kvchat.prompt.request import Parameters
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.transfer.exact_json import loads
from kvchat.transfer.fields import Fields
from kvchat.transfer.lossless import FORMAT, VERSION
from kvchat.transfer.source import Source, TransferError

_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def read_lossless(text: str) -> list[Source]:
    """The conversations of a lossless export, equal to those that were written.

    Raises TransferError for text that is not such an export, is damaged, or was changed.
    """
    try:
        value = loads(text)
    except ValueError as error:
        raise TransferError(f"This is not a kvchat export: it is not JSON ({error}).") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise TransferError(f'This is not a kvchat export: its "format" is not {FORMAT}.')
    document = Fields(value, "The export")
    version = document.whole("version")
    if version > VERSION:
        raise TransferError(
            f"This export has version {version} and this kvchat reads up to {VERSION}. Update kvchat to read it."
        )
    if version < 1:
        raise document.wrong("version", "a version of this format")
    known: dict[str, tuple[str | None, bytes]] = {}
    return [
        _source(Fields(item, f"Conversation {number}"), known)
        for number, item in enumerate(document.items("conversations"), 1)
    ]


def _source(item: Fields, known: dict[str, tuple[str | None, bytes]]) -> Source:
    tree = Tree()
    for number, value in enumerate(item.items("nodes"), 1):
        node = _node(Fields(value, f"{item.where}, message {number}"), tree)
        if known.setdefault(node.id, (node.parent, node.digest)) != (node.parent, node.digest):
            raise TransferError(f"{item.where}, message {number}: another conversation in the file has a different "
                                "message of the same id. Nothing was read.")
        tree.put(node)
    conversation = _conversation(item.inner("conversation"))
    if conversation.head is not None and conversation.head not in tree:
        raise TransferError(f"{item.where}: its branch ends at a message that is not in the file. Nothing was read.")
    return Source(conversation, tree, item.optional_text("draft") or "")


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
        created=item.number("created"),
        updated=item.number("updated"),
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
        searching=_searching(item),
    )


def _collections(item: Fields) -> tuple[str, ...]:
    names = item.optional_texts("collections") or ()
    if not all(names) or any("/" in name for name in names):
        raise item.wrong("collections", "a list of names")
    return names


def _searching(item: Fields) -> str:
    mode = item.optional_text("searching")
    if mode is not None and mode not in SEARCHING:
        raise item.wrong("searching", "off, ask or always")
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
        cause=_cause(item),
        evidence=_statement(item, "evidence"),
        remedy=_statement(item, "remedy"),
        estimated=item.optional_flag("estimated"),
        block=item.optional_whole("block"),
        stopped=item.optional_flag("stopped"),
    )


def _cause(item: Fields) -> str | None:
    cause = item.optional_text("cause")
    return CAUSES.get(cause, cause) if cause is not None else None


def _statement(item: Fields, name: str) -> Statement | str | None:
    """A kind and its arguments; a sentence where an earlier version wrote the file."""
    if item.is_text(name):
        return item.text(name)
    if (found := item.optional_inner(name)) is None:
        return None
    return statement(found.text("kind"), found.mapping("arguments"))


def _message(item: Fields) -> Message:
    try:
        role = Role(item.text("role"))
    except ValueError:
        raise item.wrong("role", "system, user or assistant") from None
    blocks = [Fields(value, f"{item.where}, context {n}") for n, value in enumerate(item.items("blocks"), 1)]
    return Message(
        role,
        item.text("text"),
        tuple(ContextBlock(block.text("kind"), block.text("source"), block.text("text"),
                           block.optional_text("ref") or "") for block in blocks),
        item.text("reasoning"),
        item.text("reasoning_field"),
    )


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
    if chained(tree[parent].digest if parent else b"", wire) != digest:
        raise TransferError(f"{item.where}: the digest does not fit the wire text, so the file was changed or damaged "
                            "after the export. Nothing was read.")
    try:
        state = State(item.text("state"))
    except ValueError:
        raise item.wrong("state", "a state of a message") from None
    message = _message(item)
    if state is not State.STREAMING and not _shown_is_sent(message, wire):
        raise TransferError(f"{item.where}: its text is not the text the model would see. Nothing was read.")
    return Node(id, parent, message, wire, digest, item.number("created"), state, item.text("model"),
                _figures(item.optional_inner("figures")), item.text("note"))


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
    content, text = sent.pop("content", None), whole_characters(message.text)
    reasoning = sent.pop(message.reasoning_field, "")
    if not isinstance(content, str) or sent or reasoning != whole_characters(message.reasoning):
        return False
    return content.endswith(text) if message.blocks else content == text
