"""Rows of the database to values and back.

Wire bytes and digests pass through untouched; nothing here renders a message.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import OFF, RETRIEVAL_MODES, Conversation
from kvchat.prompt.message import Message, Node, Role, State
from kvchat.prompt.request import Parameters
from kvchat.prompt.tags import tagged
from kvchat.prompt.tools import ToolCall
from kvchat.prompt.wire import whole_characters
from kvchat.values import Statement, statement_of, stored

if TYPE_CHECKING:
    from kvchat.prompt.token_ids import AnswerIds

Row = Sequence[Any]

NODE_FIELDS = (
    "id",
    "parent",
    "role",
    "text",
    "blocks",
    "reasoning",
    "reasoning_field",
    "wire",
    "digest",
    "created",
    "state",
    "model",
    "figures",
    "note",
    "ids",
    "pasted",
    "calls",
    "tools",
)
CONVERSATION_FIELDS = (
    "id",
    "head",
    "created",
    "updated",
    "title",
    "turns",
    "model",
    "parameters",
    "template_options",
    "forked_from",
    "unread",
    "trashed",
    "context_used",
    "server",
    "system_in_user",
    "memory",
    "collections",
    "retrieval",
)
ENTRY_FIELDS = (
    "id",
    "kind",
    "text",
    "page",
    "created",
    "status",
    "confidence",
    "conversation",
    "nodes",
    "author",
    "superseded_by",
    "edited",
)
"""The columns of a memory's row, and the values of its JSON array in the history of changes, in this order."""


@contextmanager
def many_values() -> Iterator[None]:
    """Keep the garbage collector from looking at thousands of new values that all stay: a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def columns(names: Sequence[str], table: str = "") -> str:
    """The names as a column list, each qualified by `table` if given."""
    return ", ".join(f"{table}.{name}" if table else name for name in names)


# The order in which figures are stored: new ones go to the end.
FIGURE_FIELDS = (
    "prompt_tokens",
    "cached_tokens",
    "predicted_tokens",
    "new_tokens",
    "ttft_ms",
    "prompt_ms",
    "predicted_ms",
    "context_size",
    "predicted_cached",
    "cause",
    "evidence",
    "remedy",
    "estimated",
    "block",
    "stopped",
    "begun_tokens",
    "alternative",
    "ahead_tokens",
    "predicted_roughly",
)

_ROLES = {role.value: role for role in Role}
_STATES = {state.value: state for state in State}
_PARAMETERS = Parameters.__struct_fields__
_NO_FIGURES = (None,) * len(FIGURE_FIELDS)
_CONTAINERS = {"stop": list, "extra": dict, "response_format": dict}
_NO_PARAMETERS = Parameters()

T = TypeVar("T", bound=Struct)
S = TypeVar("S")


def filled(kind: type[T], columns: Mapping[str, Iterable[object]]) -> list[T]:
    """The values of a kind, made of a column for each of its fields."""
    return list(map(kind, *(columns[name] for name in kind.__struct_fields__)))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    return str(value)


def to_json(value: object) -> str:
    """`value` as JSON text that SQLite can hold."""
    return whole_characters(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain))


def nodes_of(rows: Sequence[Row]) -> list[Node]:
    """The nodes of rows of NODE_FIELDS. A value that no check of SQLite can find damaged is left out, not raised."""
    if not rows:
        return []
    column = dict(zip(NODE_FIELDS, zip(*rows, strict=True), strict=True))
    blocks = [blocks_of(text) if text else () for text in column["blocks"]]
    column["message"] = tuple(
        filled(
            Message,
            {
                "role": [_ROLES.get(role, Role.USER) for role in column.pop("role")],
                "text": column.pop("text"),
                "blocks": blocks,
                "reasoning": column.pop("reasoning"),
                "reasoning_field": column.pop("reasoning_field"),
                "pasted": [_places_in(text) if text else () for text in column.pop("pasted")],
                "calls": [_calls_in(text) if text else () for text in column.pop("calls")],
                "tools": [tools or b"" for tools in column.pop("tools")],
            },
        )
    )
    del column["blocks"]
    column["state"] = tuple(_STATES.get(state, State.INTERRUPTED) for state in column["state"])
    column["figures"] = tuple(figures_of(column["figures"]))
    column["note"] = tuple(_note_of(text) if text else None for text in column["note"])
    column["ids"] = tuple(_ids_of(stored) if isinstance(stored, bytes) else None for stored in column["ids"])
    return filled(Node, column)


# Most answers have no token ids.


def _ids_of(stored: bytes) -> AnswerIds | None:
    from kvchat.prompt.token_ids import unpacked

    return unpacked(stored)


def _stored_ids(ids: AnswerIds) -> bytes:
    from kvchat.prompt.token_ids import packed

    return packed(ids)


def node_of(row: Row) -> Node:
    """The node of a row of NODE_FIELDS."""
    return nodes_of([row])[0]


def row_of(node: Node) -> tuple[object, ...]:
    """The values of NODE_FIELDS for a node."""
    message = node.message
    blocks = [[block.kind, block.source, block.text, *([block.ref] if block.ref else [])] for block in message.blocks]
    return (
        node.id,
        node.parent,
        message.role.value,
        whole_characters(message.text),
        to_json(blocks) if blocks else None,
        whole_characters(message.reasoning),
        whole_characters(message.reasoning_field),
        node.wire,
        node.digest,
        node.created,
        node.state.value,
        whole_characters(node.model),
        figures_to_json(node.figures),
        to_json(stored(node.note)) if node.note else "",
        _stored_ids(node.ids) if node.ids is not None else None,
        to_json(message.pasted) if message.pasted else None,
        to_json([[call.id, call.name, call.arguments] for call in message.calls]) if message.calls else None,
        message.tools or None,
    )


def from_json(text: str | None, kind: type[S]) -> S:
    """The value of a stored JSON text; an empty `kind` where there is none, or another thing."""
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, kind) else kind()


def blocks_of(text: str) -> tuple[ContextBlock, ...]:
    found = [block for block in from_json(text, list) if isinstance(block, list) and len(block) in (3, 4)]
    return tuple(ContextBlock(*map(str, block)) for block in found)


def _places_in(text: str) -> tuple[tuple[int, int], ...]:
    found = [pair for pair in from_json(text, list) if isinstance(pair, list) and len(pair) == 2]
    return tuple((start, end) for start, end in found if isinstance(start, int) and isinstance(end, int))


def _calls_in(text: str) -> tuple[ToolCall, ...]:
    found = [call for call in from_json(text, list) if isinstance(call, list) and len(call) == 3]
    return tuple(ToolCall(*map(str, call)) for call in found)


def figures_of(texts: Iterable[str | None]) -> list[TurnFigures | None]:
    """The figures of each stored text; None where there are none."""
    texts = list(texts)
    found = from_json(f"[{','.join(text or 'null' for text in texts)}]", list)  # one call: a fifth of the time
    if len(found) != len(texts) or any(values is not None and not isinstance(values, list) for values in found):
        found = [from_json(text, list) or None for text in texts]
    given = [(*values, *_NO_FIGURES)[: len(_NO_FIGURES)] for values in found if values is not None]
    column: dict[str, Iterable[object]] = {}
    if given:
        column.update(zip(FIGURE_FIELDS, zip(*given, strict=True), strict=True))
        column["cause"] = [cause if isinstance(cause, str) else None for cause in column["cause"]]
        for name in ("evidence", "remedy"):
            column[name] = [statement_of(value) for value in column[name]]
    figures = iter(filled(TurnFigures, column) if given else ())
    return [None if values is None else next(figures) for values in found]


def figures_to_json(figures: TurnFigures | None) -> str | None:
    return None if figures is None else to_json([stored(getattr(figures, name)) for name in FIGURE_FIELDS])


def _note_of(text: str) -> Statement | None:
    return statement_of(from_json(text, list))


def conversations_of(rows: Sequence[Row], tags: Mapping[str, tuple[str, ...]]) -> list[Conversation]:
    """The conversations of rows of CONVERSATION_FIELDS, with their `tags` by id."""
    if not rows:
        return []
    column: dict[str, Iterable[object]] = dict(zip(CONVERSATION_FIELDS, zip(*rows, strict=True), strict=True))
    column["parameters"] = [parameters_of(text) if text else _NO_PARAMETERS for text in column["parameters"]]
    options: Iterable[Any] = column["template_options"]
    column["template_options"] = [from_json(text, dict) if text else {} for text in options]
    for name in ("unread", "system_in_user", "memory"):
        column[name] = [flag != 0 for flag in column[name]]
    column["collections"] = [tuple(filter(None, str(names).split("/"))) for names in column["collections"]]
    column["retrieval"] = [mode if mode in RETRIEVAL_MODES else OFF for mode in column["retrieval"]]
    column["tags"] = [tags.get(row[0], ()) for row in rows]
    return filled(Conversation, column)


def tags_of(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    """The tags by conversation, of rows of a conversation's id and a tag."""
    names: dict[str, list[str]] = {}
    for id, name in rows:
        names.setdefault(id, []).append(name)
    return {id: tagged(these) if len(these) > 1 else (these[0],) for id, these in names.items()}


def conversation_row(conversation: Conversation) -> tuple[object, ...]:
    """The values of CONVERSATION_FIELDS for a conversation."""
    return (
        conversation.id,
        conversation.head,
        conversation.created,
        conversation.updated,
        whole_characters(conversation.title),
        conversation.turns,
        whole_characters(conversation.model),
        parameters_to_json(conversation.parameters),
        to_json(dict(conversation.template_options)) if conversation.template_options else None,
        conversation.forked_from,
        int(conversation.unread),
        conversation.trashed,
        conversation.context_used,
        whole_characters(conversation.server),
        int(conversation.system_in_user),
        int(conversation.memory),
        whole_characters("/".join(conversation.collections)),
        conversation.retrieval,
    )


def parameters_of(text: Any) -> Parameters:
    """The parameters of a stored JSON text, by whatever version; what is of the wrong kind is left out."""
    found = from_json(text, dict)
    known = {name: found[name] for name in _PARAMETERS if name in found}
    for name, kind in _CONTAINERS.items():
        if not isinstance(known.get(name), kind):
            known.pop(name, None)
    if "stop" in known:
        known["stop"] = tuple(known["stop"])
    return Parameters(**known)


def parameters_to_json(parameters: Parameters) -> str | None:
    given = {
        name: value
        for name in _PARAMETERS
        if (value := getattr(parameters, name)) is not None and value != () and value != {}
    }
    return to_json(given) if given else None
