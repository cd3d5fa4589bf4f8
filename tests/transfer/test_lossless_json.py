"""Lossless JSON comes back as it was, bytes included, and a changed file is not believed."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from transfer_samples import CORPUS, chat

from corpus import corpus
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import RETRIEVAL_MODES, Conversation
from kvchat.prompt.message import Message, Node, Role, State, chained, node
from kvchat.prompt.request import Parameters
from kvchat.prompt.tags import tagged
from kvchat.prompt.tools import ToolCall
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import canonical, whole_characters
from kvchat.transfer import FORMATS
from kvchat.transfer.formats import Source, TransferError, render
from kvchat.values import statement
from lossless_reading import read_lossless

TEXTS = st.text(max_size=40) | st.sampled_from([item["text"] for item in CORPUS])
IDS = st.uuids().map(lambda value: value.hex)
NOTES = st.builds(statement, TEXTS, st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS))
COUNTS = st.none() | st.integers(0, 2**40)
TIMES = st.floats(0, 4e9)
MILLISECONDS = st.none() | st.floats(0, 1e9)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
FIGURES = st.builds(TurnFigures, COUNTS, COUNTS, COUNTS, COUNTS, MILLISECONDS, MILLISECONDS, MILLISECONDS, COUNTS)
BLOCKS = st.lists(st.builds(ContextBlock, TEXTS, TEXTS, TEXTS, TEXTS), max_size=2).map(tuple)
NUMBERS = st.none() | st.floats(-10, 10)
WHOLE = st.none() | st.integers(-1, 2**31)
PARAMETERS = st.builds(
    Parameters,
    NUMBERS,
    NUMBERS,
    WHOLE,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    WHOLE,
    WHOLE,
    st.lists(TEXTS, max_size=2).map(tuple),
    st.dictionaries(st.text(max_size=8), JSON, max_size=2),
)


CLEAN = TEXTS.map(whole_characters)
CALLS = st.builds(ToolCall, CLEAN, CLEAN, CLEAN)


@st.composite
def nodes_below(draw: st.DrawFn, parent: Node | None, id: str) -> Node:
    role = draw(st.sampled_from(Role)) if parent else Role.SYSTEM
    message = Message(role, draw(TEXTS))
    if role is Role.USER:
        ends = draw(st.lists(st.integers(0, len(message.text)), max_size=4).map(sorted))
        message = replace(message, blocks=draw(BLOCKS), pasted=tuple(zip(ends[::2], ends[1::2], strict=False)))
    if role is Role.ASSISTANT:
        field = draw(st.sampled_from(["reasoning", "thinking", "", "<think>\n{}\n</think>\n\n", "{}[/THINK]"]))
        message = replace(message, reasoning=draw(TEXTS), reasoning_field=field)
        message = replace(message, calls=tuple(draw(st.lists(CALLS, max_size=2))))
    if role is Role.TOOL:
        message = replace(message, calls=(draw(CALLS),))
    if role is Role.SYSTEM:
        message = replace(message, tools=draw(st.sampled_from([b"", b'[{"type":"function"}]'])))
    made = node(
        parent,
        message,
        draw(TIMES),
        id=id,
        state=draw(st.sampled_from(State)),
        model=draw(TEXTS),
        figures=draw(st.none() | FIGURES),
        note=draw(st.none() | NOTES),
    )
    if message.blocks and draw(st.booleans()):  # the frame of an earlier version, frozen in the wire bytes
        wire = canonical({"role": "user", "content": "[[notes]]\n" + message.text})
        made = replace(made, wire=wire, digest=chained(parent.digest if parent else b"", wire))
    return made


@st.composite
def sources(draw: st.DrawFn) -> Source:
    ids = draw(st.lists(IDS, min_size=1, max_size=8, unique=True))
    nodes: list[Node] = []
    for id in ids:
        nodes.append(draw(nodes_below(draw(st.sampled_from(nodes)) if nodes else None, id)))
    record = draw(
        st.builds(
            Conversation,
            IDS,
            st.none() | st.sampled_from(ids),
            TIMES,
            TIMES,
            TEXTS,
            st.integers(0, 9),
            TEXTS,
            PARAMETERS,
            st.dictionaries(st.text(max_size=8), JSON, max_size=2),
            st.none() | IDS,
            st.booleans(),
            st.none() | TIMES,
            COUNTS,
            collections=st.lists(st.from_regex(r"[\w.-]{1,40}", fullmatch=True), max_size=3).map(tuple),
            retrieval=st.sampled_from(RETRIEVAL_MODES),
            tags=st.lists(st.sampled_from(["favourite", "archive", "work", "ärger", "旅行"])).map(tagged),
        )
    )
    return Source(record, Tree(draw(st.permutations(nodes))))


def nodes_of(source: Source) -> dict[str, Node]:
    return {made.id: made for made in source.tree}


@settings(max_examples=60, deadline=None)
@given(st.lists(sources(), max_size=2, unique_by=lambda source: source.conversation.id))
def test_what_is_read_equals_what_was_written_wire_bytes_included(written: list[Source]) -> None:
    text = render("json", written)
    read = read_lossless(text)
    assert [source.conversation for source in read] == [source.conversation for source in written]
    assert [nodes_of(source) for source in read] == [nodes_of(source) for source in written]
    assert [[leaf.id for leaf in source.tree.leaves()] for source in read] == [
        [leaf.id for leaf in source.tree.leaves()] for source in written
    ]
    assert render("json", read) == render("json", written)


@pytest.mark.parametrize("all_branches", [True, False])
def test_every_branch_is_in_it_asked_for_or_not(branched: Source, all_branches: bool) -> None:
    [read] = read_lossless(render("json", [branched], all_branches=all_branches))
    assert nodes_of(read) == nodes_of(branched)


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_json_shows_no_control_and_no_invisible_character_to_a_terminal(hostile: Source, format: str) -> None:
    text = render(format, [hostile], all_branches=True)
    text.encode("utf-8")
    seen = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char != "\n"}
    assert seen == set()


def changed(source: Source, change: Callable[[dict[str, Any]], None]) -> str:
    document = json.loads(render("json", [source]))
    change(document)
    return json.dumps(document)


def set_node(index: int, **fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["conversations"][0]["nodes"][index].update(fields)


def set_conversation(**fields: object) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["conversations"][0]["conversation"].update(fields)


def test_an_export_of_an_older_kvchat_that_knew_no_documents_is_read(branched: Source) -> None:
    document = json.loads(render("json", [branched]))
    for name in ("collections", "retrieval", "tags"):
        del document["conversations"][0]["conversation"][name]
    for made in document["conversations"][0]["nodes"]:
        for block in made["blocks"]:
            del block["ref"]
    [read] = read_lossless(json.dumps(document))
    assert read.conversation == branched.conversation and nodes_of(read) == nodes_of(branched)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_tampered_wire_is_reported_with_its_message(index: int) -> None:
    source = chat("How are you?", "Well.")
    wire = json.loads(render("json", [source]))["conversations"][0]["nodes"][index]["wire"]
    with pytest.raises(TransferError, match=f"Message {index + 1}: the digest does not fit"):
        read_lossless(changed(source, set_node(index, wire=wire.replace(".", "!").replace("?", "!"))))


def test_a_text_that_is_not_what_the_model_would_see_is_reported() -> None:
    source = chat("How are you?", "Well.")
    for fields in ({"text": "Badly."}, {"reasoning": "I lie."}, {"role": "user"}):
        with pytest.raises(TransferError, match="Message 3: its text is not the text the model would see"):
            read_lossless(changed(source, set_node(2, **fields)))


def test_words_hidden_in_the_wire_beside_the_text_are_reported() -> None:
    source = chat("How are you?")
    parent = source.tree.path(source.conversation.head)[0]
    for sent in (
        {"role": "user", "content": "Obey. How are you?"},
        {"role": "user", "content": "How are you?", "tool_calls": []},
    ):
        wire = canonical(sent)
        change = set_node(1, wire=wire.decode(), digest=chained(parent.digest, wire).hex())
        with pytest.raises(TransferError, match="not the text the model would see"):
            read_lossless(changed(source, change))


def test_words_hidden_around_a_thought_in_the_text_are_reported() -> None:
    """Only its tags may stand there."""
    source = chat("How are you?", "Fine.")
    *_, parent, answer = source.tree.path(source.conversation.head)
    for field, is_right in (("<think>\n{}</think>", True), ("Obey. {}", False)):
        wire = replace(answer.message, reasoning="Hm.", reasoning_field=field).wire()
        change = set_node(
            2,
            wire=wire.decode(),
            digest=chained(parent.digest, wire).hex(),
            reasoning="Hm.",
            reasoning_field=field,
        )
        if is_right:
            read_lossless(changed(source, change))
            continue
        with pytest.raises(TransferError, match="not the text the model would see"):
            read_lossless(changed(source, change))


@corpus(
    ("change", "sentence"),
    [
        (lambda d: d.update(conversations=[3]), "The conversation is not a JSON object"),
        (lambda d: d["conversations"][0].update(nodes=["x"]), "Message 1 is not a JSON object"),
        (lambda d: d["conversations"][0]["nodes"].reverse(), "does not stand before it"),
        (lambda d: d["conversations"][0]["nodes"].append(d["conversations"][0]["nodes"][0]), "stands twice"),
        (
            lambda d: d["conversations"].append(
                {**d["conversations"][0], "nodes": [{**d["conversations"][0]["nodes"][0], "parent": "nowhere"}]}
            ),
            "does not stand before it",
        ),
        (set_node(2, state="sleeping"), "state is not"),
        (set_node(2, role="wizard"), "role is not"),
        (set_node(2, text=None), "text is not text"),
        (set_node(2, id="../x"), "id is not an id"),
        (set_node(2, created="now"), "created is not a number"),
        (set_node(2, created=10**400), "created is not a number"),
        (set_node(2, digest="zz"), "wire or digest is not"),
        (set_node(2, wire="\ud800"), "wire or digest is not"),
        (set_node(2, figures=[]), "figures is not a JSON object"),
        (set_node(2, figures={"prompt_tokens": 1.5}), "prompt_tokens is not a whole number"),
        (set_node(2, blocks=[{"kind": "file"}]), "context 1: the field source is not text"),
        (set_node(2, blocks=[{"kind": "file", "source": "a", "text": "b", "ref": 1}]), "ref is not text"),
        (set_conversation(collections="handbook"), "collections is not a list"),
        (set_conversation(collections=["hand/book"]), "collections is not a list of names"),
        (set_conversation(collections=[""]), "collections is not a list of names"),
        (set_conversation(retrieval="sometimes"), "retrieval is not off, ask or always"),
        (set_conversation(tags="work"), "tags is not a list"),
        (set_conversation(tags=["two words"]), "tags is not a list of tags"),
        (set_conversation(head="0" * 32), "its branch ends at a message that is not in the file"),
        (set_conversation(unread=1), "unread is not true or false"),
        (set_conversation(template_options=[]), "template_options is not a JSON object"),
        (set_conversation(parameters={"stop": [1]}), "stop is not a list of texts"),
    ],
)
def test_a_damaged_file_is_refused_with_one_sentence(change: Callable[[dict[str, Any]], None], sentence: str) -> None:
    with pytest.raises(TransferError, match=sentence) as caught:
        read_lossless(changed(chat("How are you?", "Well."), change))
    assert "\n" not in caught.value.sentence


def test_a_value_json_cannot_carry_is_told_and_not_written() -> None:
    source = chat("Hello")
    record = replace(source.conversation, parameters=Parameters(temperature=float("nan")))
    with pytest.raises(TransferError, match="JSON cannot carry"):
        render("json", [Source(record, source.tree)])


def test_an_unknown_format_is_told_with_the_known_ones() -> None:
    with pytest.raises(TransferError, match="md, html, json, jsonl"):
        render("docx", [chat("Hello")])
    assert set(FORMATS) == {"md", "html", "json", "jsonl"}
