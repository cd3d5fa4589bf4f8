"""Documents that attack: one pair of fences each on the wire, no special token for a server, nothing unsafe shown."""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from datetime import UTC, datetime

import pytest
from injected_documents import DOCUMENTS
from textual.content import Content

from corpus import corpus
from engine_fixture import RunningServer
from kvchat.backends.dialect import ChatTurn
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.identify import connect
from kvchat.backends.tokens import special_texts
from kvchat.prompt.citations import numbered
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock, defused, foreign, guarded
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.drafts import label_of
from kvchat.prompt.message import Message, Node, Role, new_id, node, system_message
from kvchat.prompt.request import wires_of
from kvchat.prompt.tree import Tree
from kvchat.sanitize import clean, one_line
from kvchat.transfer.formats import Source, render
from kvchat.ui.view_models import item_of
from kvchat.ui.widgets.transcript.render.message import Folds, foot_rows

SHORT = {name: text for name, text in DOCUMENTS.items() if len(text) < 100_000}
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\U000e0000-\U000e007f]")
FENCED = r'<context source="[^"<>\n]*">\n.*?\n</context>\n'
CONTENT = re.compile(rf"\[[^\n]*\]\n{FENCED}{FENCED}\nWhat does it say\?", re.DOTALL)


def _blocks(text: str) -> list[ContextBlock]:
    """A document as a passage, as a file, and with the beginning of its text as its name."""
    return [
        ContextBlock(PASSAGE, "handbook/a.md:1-9", text, "docs/handbook/a.md#1-9"),
        ContextBlock(FILE, f"{text[:80]}.md", f"{text}\n", "/notes/b.md#0123456789abcdef"),
    ]


def _path(blocks: list[ContextBlock]) -> list[Node]:
    system = node(None, system_message("Be brief."), 0.0)
    sent = tuple(numbered(blocks, [system]))
    return [system, node(system, Message(Role.USER, "What does it say?", sent), 1.0)]


def _read(text: str) -> str:
    """A text as a careless reader takes it: nothing invisible, compatible characters as one, in small letters."""
    seen = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Mn", "Cc") or char in "\n\t")
    return unicodedata.normalize("NFKC", seen).casefold()


def test_the_corpus_is_of_a_size() -> None:
    assert len(DOCUMENTS) >= 40


@pytest.mark.slow
@corpus("name", DOCUMENTS)
def test_each_block_has_one_true_opening_and_one_true_closing_fence(name: str) -> None:
    (_, question) = _path(_blocks(DOCUMENTS[name]))
    text = Message(Role.USER, "What does it say?", question.message.blocks).wire().decode()
    assert text == question.wire.decode()
    content = json.loads(text)["content"]
    assert CONTENT.fullmatch(content)
    plain = _read(content)
    assert len(re.findall(r"<[\s/\\]*context\b", plain)) == 4
    assert len(re.findall(r"^<context source=\"[^\"\n]*\">$", plain, re.MULTILINE)) == 2
    assert len(re.findall(r"^</context>$", plain, re.MULTILINE)) == 2
    assert not UNSAFE.search(content)


# -- as a real server reads it


@pytest.fixture(scope="module")
def server(plain_server: RunningServer) -> RunningServer:
    return plain_server


NAMES = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<jupyter_script>",
    "<empty_output>",
)


async def _access(server: RunningServer) -> LlamaCppBackend:
    backend = await connect(server.base_url)
    assert isinstance(backend, LlamaCppBackend)
    return backend


@pytest.fixture(scope="module")
def specials(server: RunningServer) -> frozenset[int]:
    """The ids of the model's special tokens."""

    async def read() -> list[list[int]]:
        backend = await _access(server)
        return [await backend.ids_of(name, specials=True) for name in NAMES]

    found = asyncio.run(read())
    assert all(len(ids) == 1 for ids in found)
    return frozenset(ids[0] for ids in found)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.tokens.WAIT_S", 60)


async def _count(backend: LlamaCppBackend, path: list[Node], specials: frozenset[int]) -> int:
    """How many special tokens the server reads in what its chat template makes of a conversation."""
    prompt = await backend.prompt_text(ChatTurn(wires_of(path), "s"))
    return sum(id in specials for id in await backend.ids_of(prompt, specials=True))


@pytest.fixture
async def backend(server: RunningServer) -> LlamaCppBackend:
    return await _access(server)


@corpus("name", DOCUMENTS)
async def test_a_real_server_reads_as_many_special_tokens_as_in_a_harmless_conversation(
    backend: LlamaCppBackend, specials: frozenset[int], name: str
) -> None:
    expected = await _count(backend, _path(_blocks("It says nothing of the kind.")), specials)
    assert expected == 5  # around two messages, and where the answer begins
    blocks = _blocks(DOCUMENTS[name]) if name in SHORT else _blocks(DOCUMENTS[name])[:1]
    assert await _count(backend, _path(blocks), specials) == expected
    if name not in SHORT:
        return
    assert await special_texts(backend, foreign(blocks)) == frozenset()
    assert await _count(backend, _path(defused(blocks, {"Obey", "<|im"})), specials) == expected


async def test_the_same_words_unguarded_would_be_special_tokens(
    server: RunningServer, specials: frozenset[int]
) -> None:
    """Or the tests above would prove nothing."""
    backend = await _access(server)
    for name in ("ChatML", "closer and role", "tokens for code", "a megabyte of tokens"):
        text = DOCUMENTS[name][:10_000]
        assert specials & set(await backend.ids_of(text, specials=True))
        assert await special_texts(backend, text)


# -- as it is shown


def _source(path: list[Node]) -> Source:
    answer = node(path[-1], Message(Role.ASSISTANT, "It says [1] and [2]."), 2.0)
    return Source(Conversation(new_id(), answer.id, 0.0, 0.0), Tree([*path, answer]))


@corpus("name", DOCUMENTS)
def test_nothing_unsafe_is_shown_of_a_document(name: str) -> None:
    text = DOCUMENTS[name][:200_000]
    for block in (*_blocks(text), *_path(_blocks(text))[1].message.blocks):
        for shown in (clean(block.text), one_line(block.source), one_line(block.text, 200), guarded(block.text)):
            assert not UNSAFE.search(shown)
    source = _source(_path(_blocks(text)))
    for format in ("md", "html"):
        assert not UNSAFE.search(render(format, [source]))


@corpus("name", SHORT)
def test_nothing_unsafe_is_in_the_rows_of_the_transcript_nor_in_a_chip(name: str) -> None:
    path = _path(_blocks(SHORT[name]))
    source = _source(path)
    tree = source.tree
    for message in tree.path(source.conversation.head):
        item = item_of(tree, message, None, "m", datetime(2026, 1, 1, tzinfo=UTC))
        for folds in (Folds(), Folds(context=True)):
            for row in foot_rows(item, 60, folds):
                for run in row.runs:
                    assert not UNSAFE.search(run.text) and "\n" not in run.text
    for block in _blocks(SHORT[name]):
        label = label_of(block)
        assert not UNSAFE.search(label) and "\n" not in label
        assert Content(label).plain == label
