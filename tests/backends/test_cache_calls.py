"""Following a real llama.cpp server's cache: prompt texts, token ids, slots, reading ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_fixture import RunningServer
from kvchat.backends.dialect import CacheAccess, ChatTurn
from kvchat.backends.identify import connect
from kvchat.backends.tokens import PieceTokens
from kvchat.cache.tokens import Tokens
from kvchat.prompt.message import Message, Role, node
from kvchat.prompt.request import wires_of


@pytest.fixture(scope="module")
def server(plain_server: RunningServer) -> RunningServer:
    return plain_server


def _turn(*texts: str) -> ChatTurn:
    roles = [Role.SYSTEM, *[Role.USER, Role.ASSISTANT] * len(texts)]
    path = []
    for role, text in zip(roles, texts, strict=False):
        path.append(node(path[-1] if path else None, Message(role, text), 0.0))
    return ChatTurn(wires_of(path), "s")


async def _access(server: RunningServer) -> CacheAccess:
    backend = await connect(server.base_url)
    assert isinstance(backend, CacheAccess)
    return backend


async def test_a_growing_prompt_has_the_ids_the_server_gives_for_the_whole_of_it(server: RunningServer) -> None:
    access = await _access(server)
    texts = ["You are terse.", "Hi", "Hello!\n\n", "  two\nlines <|im_end|> and a mark", "Grüße 漢字 🙂"]
    for count in range(2, len(texts) + 1):
        text = await access.prompt_text(_turn(*texts[:count]))
        async with httpx.AsyncClient(base_url=server.base_url) as client:
            found = await client.post("/tokenize", json={"content": text, "add_special": True, "parse_special": True})
        whole = found.json()["tokens"]
        assert list(await access.tokens_of(text)) == whole


async def test_reading_ahead_leaves_the_prompt_in_a_slot(server: RunningServer) -> None:
    access = await _access(server)
    prompt = await access.tokens_of(await access.prompt_text(_turn("Read ahead. " * 40, "Now?")))
    seen = []
    read = await access.prefill(prompt, seen.append)
    counts = await access.slot_counts()
    assert read.slot is not None and counts[read.slot].tokens == len(prompt)
    assert seen[-1].processed == len(prompt)
    again = await access.prefill(prompt, seen.append)
    assert again.cached_tokens == len(prompt) - 1


def _toy(text: str) -> list[int]:
    """A tokeniser like the real ones: specials are one token, other texts merge letters in pairs."""
    ids: list[int] = []
    for part in text.replace("<e>", "\0<e>\0").replace("<b>", "\0<b>\0").split("\0"):
        if part in ("<e>", "<b>"):
            ids.append(1 if part == "<b>" else 2)
        else:
            ids += [hash(part[at : at + 2]) % 1000 + 10 for at in range(0, len(part), 2)]
    return ids


@given(st.lists(st.text("ab <>eb", max_size=12), min_size=1, max_size=8), st.lists(st.integers(1, 8), max_size=4))
def test_pieces_give_the_ids_of_the_whole_and_are_asked_for_once(parts: list[str], cuts: list[int]) -> None:
    asked: list[str] = []

    async def ask(text: str, is_start: bool) -> Sequence[int]:
        asked.append(text)
        return _toy(text)

    async def ask_pieces(text: str, is_start: bool) -> Sequence[tuple[int, str]]:
        return [(id, {1: "<b>", 2: "<e>"}.get(id, "ab")) for id in await ask(text, is_start)]

    pieces = PieceTokens(ask, ask_pieces, ("<e>", "<b>"))
    full = "<b>".join(f"{part}<e>" for part in parts)

    async def run() -> None:
        for cut in sorted(cuts):
            end = full.find("<e>", min(len(full), cut * 7))
            grown = full[:end] if end > 0 else full
            assert await pieces.tokens(grown) == Tokens(_toy(grown))
        assert await pieces.tokens(full) == Tokens(_toy(full))
        asked.clear()
        assert await pieces.tokens(full) == Tokens(_toy(full))

    asyncio.run(run())
    assert asked == []


@pytest.mark.parametrize(
    ("specials", "requests"), [(("<e>", "<b>"), 1), (("<b>",), 1), ((), 2)], ids=["two", "one", "none known"]
)
@pytest.mark.parametrize("then", ["\n\nYes.", "Yes<e>", "<b>", " "])
def test_a_prompt_and_the_answer_to_it_are_asked_for_at_once(
    specials: tuple[str, ...], requests: int, then: str
) -> None:
    asked: list[str] = []

    async def ask(text: str, is_start: bool) -> list[int]:
        asked.append(text)
        return _toy(text)

    async def ask_pieces(text: str, is_start: bool) -> list[tuple[int, str]]:
        return [(id, {1: "<b>", 2: "<e>"}.get(id, "ab")) for id in await ask(text, is_start)]

    async def run() -> None:
        pieces, prompt = PieceTokens(ask, ask_pieces, specials), "<b>who?<e><b>keeper\n"
        assert await pieces.tokens(prompt, then=then) == Tokens(_toy(prompt))
        assert await pieces.tokens(prompt + then) == Tokens(_toy(prompt + then))

    asyncio.run(run())
    assert len(asked) <= requests, asked
