"""Lossless JSON: a conversation with everything it is made of, every branch, as kvchat reads it back.

The rule: wire bytes are written and read as they are, never rendered again, and every digest is checked on the way
in. A wire that was changed after the export is reported, never loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields

from kvchat import __version__
from kvchat.cache.causes.cause import plain
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node
from kvchat.prompt.tree import Tree
from kvchat.transfer.exact_json import dumps
from kvchat.transfer.source import Source, Sources, TransferError

FORMAT = "kvchat-conversations"
VERSION = 1


def parents_first(tree: Tree) -> Iterator[Node]:
    """All nodes, each after its parent."""
    waiting = tree.children(None)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(tree.children(node.id)[::-1])


def _node(node: Node) -> dict[str, object]:
    message = node.message
    return {
        "id": node.id,
        "parent": node.parent,
        "role": message.role.value,
        "text": message.text,
        "reasoning": message.reasoning,
        "reasoning_field": message.reasoning_field,
        "blocks": [asdict(block) for block in message.blocks],
        # A byte that is not UTF-8 becomes a lone surrogate, which JSON can carry and the reader turns back.
        "wire": node.wire.decode("utf-8", "surrogateescape"),
        "digest": node.digest.hex(),
        "created": node.created,
        "state": node.state.value,
        "model": node.model,
        "figures": None if node.figures is None else asdict(node.figures, dict_factory=plain),
        "note": node.note,
    }


def _conversation(conversation: Conversation) -> dict[str, object]:
    values = {item.name: getattr(conversation, item.name) for item in fields(conversation)}
    parameters = conversation.parameters
    values["parameters"] = {item.name: getattr(parameters, item.name) for item in fields(parameters)}
    values["parameters"]["extra"] = dict(parameters.extra)
    values["template_options"] = dict(conversation.template_options)
    return values


def _source(source: Source) -> dict[str, object]:
    nodes = [_node(node) for node in parents_first(source.tree)]
    if len(nodes) != len(source.tree):
        raise TransferError(
            f"{len(source.tree) - len(nodes)} messages of conversation {source.conversation.id} hang on a message that "
            "is missing, so they cannot be exported as JSON. Export it as Markdown."
        )
    found: dict[str, object] = {"conversation": _conversation(source.conversation), "nodes": nodes}
    return {**found, "draft": source.draft} if source.draft else found


def pieces(sources: Sources) -> Iterator[str]:
    """The conversations as JSON text, every branch of them.

    Raises TransferError if a value cannot be written as JSON.
    """
    document = {
        "format": FORMAT,
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
        return dumps(_source(source), indent=1)
    except (TypeError, ValueError, RecursionError) as error:
        raise TransferError(f"A conversation holds a value that JSON cannot carry ({error}).") from error
