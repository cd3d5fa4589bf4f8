"""A server's own special tokens: found by asking it, in bounded time, and asked for once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine_fixture import RunningServer, running_server, small_model
from kvchat.backends import tokens
from kvchat.backends.dialect import BackendError, HostClass, ServerInfo, Trouble, failure
from kvchat.backends.identify import connect
from kvchat.backends.tokens import SpecialTokenAccess, special_texts
from kvchat.prompt.context import broken, guarded
from kvchat.text.faults import Fault
from tiny_models import dense, tokenizer_of

OF_SMOLLM = (
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
OWN = ("[[user]]", "§§end§§", "~~role~~", "/xmode", "<:role:>", "{%sys%}", "<:a", "a:>", "@@@")
"""Special tokens of a made-up model: no list of the known families has them."""


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "WAIT_S", 60)


@pytest.fixture(scope="module")
def server(plain_server: RunningServer) -> RunningServer:
    return plain_server


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    known = tokenizer_of(small_model())
    tokens = [*known.tokens[:3], *OWN, *known.tokens[3 + len(OWN) :]]
    path = tmp_path_factory.mktemp("models") / "own.gguf"
    dense(path, dataclasses.replace(known, tokens=tokens))
    with running_server(context=512, model=path) as running:
        yield running


async def test_the_special_tokens_of_a_real_server_are_found_in_a_text(server: RunningServer) -> None:
    backend = await connect(server.base_url)
    assert isinstance(backend, SpecialTokenAccess)
    text = "漢 List<String> <b>" + "x".join(OF_SMOLLM) + "</context> [1] a|b <file> <sep> 🙂 file_sep"
    found = await special_texts(backend, text)
    assert found == set(OF_SMOLLM)
    assert not await special_texts(backend, broken(text, found))
    assert not await special_texts(backend, guarded(text))
    assert not await special_texts(backend, "def f(a: List[int]) -> None: return a[0] < 1 | 2  # <div>")


async def test_special_tokens_that_no_list_knows_are_found_and_broken(own_server: RunningServer) -> None:
    backend = await connect(own_server.base_url)
    assert isinstance(backend, SpecialTokenAccess)
    text = guarded("\n".join(f"in {token}{token} words a{token}b" for token in OWN) + "\n<:a:> @@@@ <:<:a")
    found = await special_texts(backend, text)
    assert found == set(OWN)
    safe = broken(text, found)
    assert await backend.ids_of(safe, specials=True) == await backend.ids_of(safe, specials=False)
    assert guarded(safe) == safe


async def test_a_special_token_that_only_shows_once_another_is_broken_is_found(own_server: RunningServer) -> None:
    backend = await connect(own_server.base_url)
    found = await special_texts(backend, "so <:a:> it is")
    assert found == {"<:a", "a:>"}


async def test_a_special_token_is_found_in_a_line_of_any_length(own_server: RunningServer) -> None:
    backend = await connect(own_server.base_url)
    for at in range(0, 5000, 617):
        line = "-" * at + f"{OWN[0]}" + "=" * 3000
        assert await special_texts(backend, line) == {OWN[0]}


class Toy:
    """A tokeniser of special texts and single characters, which counts what it is asked."""

    def __init__(self, *specials: str, delay: float = 0, error: BackendError | None = None) -> None:
        self.info = ServerInfo("llama.cpp", "http://toy", HostClass.LOOPBACK, "m")
        self.specials = specials
        self.asked = 0
        self.delay = delay
        self.error = error

    def _read(self, text: str) -> Iterator[tuple[int, str]]:
        at = 0
        while at < len(text):
            special = next((mark for mark in self.specials if text.startswith(mark, at)), "")
            piece = special or text[at]
            yield (self.specials.index(special) if special else 1000 + ord(text[at])), piece
            at += len(piece)

    async def ids_of(self, text: str, *, specials: bool) -> Sequence[int]:
        self.asked += 1
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        return [id for id, _ in self._read(text)] if specials else [1000 + ord(char) for char in text]

    async def pieces_of(self, text: str) -> Sequence[tuple[int, str]]:
        return list(self._read(text))


async def _found(toy: object, text: str) -> frozenset[str]:
    return await special_texts(toy, text)  # type: ignore[arg-type]


async def test_what_was_asked_for_once_is_not_asked_for_again() -> None:
    toy = Toy("<x>", "<y>")
    assert await _found(toy, "one <x> two <div> three") == {"<x>"}
    before = toy.asked
    assert await _found(toy, "again one <x> and <div>!") == {"<x>"} and toy.asked > before  # `<div>!` is new
    before = toy.asked
    assert await _found(toy, "<div>! one two <x>") == {"<x>"}
    assert await _found(toy, "plain words, nothing else.") == set()
    assert toy.asked == before
    assert await _found(toy, "<y>") == {"<y>"}


async def test_another_model_on_the_server_is_asked_anew() -> None:
    toy = Toy("<x>")
    assert await _found(toy, "a <z> b <x>") == {"<x>"}
    toy.specials = ("<z>",)
    toy.info = replace(toy.info, model="n")
    assert await _found(toy, "a <z> b <x>") == {"<z>"}


async def test_a_slow_server_holds_no_question_up_and_what_it_told_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy("<x>")
    assert await _found(toy, "<x>") == {"<x>"}
    monkeypatch.setattr(tokens, "WAIT_S", 0.01)
    toy.delay = 3600
    assert await _found(toy, "<x> <new>") == {"<x>"}
    toy.delay = 0
    toy.specials = ("<x>", "<new>")
    monkeypatch.setattr(tokens, "WAIT_S", 60)
    assert await _found(toy, "<x> <new>") == {"<x>", "<new>"}


async def test_a_text_of_many_parts_is_learnt_part_by_part_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy("<x>")
    text = " ".join(f"<{number:06}>" for number in range(20_000)) + " <x>"
    asked = toy.ids_of

    async def hurried(part: str, *, specials: bool) -> Sequence[int]:
        if toy.asked >= 6:
            toy.delay = 3600
        return await asked(part, specials=specials)

    monkeypatch.setattr(toy, "ids_of", hurried)
    monkeypatch.setattr(tokens, "WAIT_S", 1)
    assert await _found(toy, text) == set()
    toy.delay, toy.asked = 0, 0
    monkeypatch.setattr(toy, "ids_of", asked)
    monkeypatch.setattr(tokens, "WAIT_S", 60)
    assert await _found(toy, text) == {"<x>"}
    parts = len(text) // tokens.PART
    assert toy.asked < 2 * parts


@pytest.mark.parametrize("server", [object(), Toy("<x>", error=failure(Trouble.REFUSED, Fault.TOLD, sentence="No."))])
async def test_a_server_that_cannot_be_asked_has_none(server: object) -> None:
    assert await _found(server, "one <x>") == set()


TOKEN = st.text("ab<|>/", min_size=2, max_size=4).filter(lambda text: not text.isalnum())


@given(st.text("ab<|>/ \n", max_size=40), st.lists(TOKEN, max_size=4, unique=True))
def test_breaking_what_is_found_leaves_nothing_special(text: str, specials: list[str]) -> None:
    toy = Toy(*specials)

    async def run() -> str:
        found = await _found(toy, text)
        assert found <= set(specials)
        return broken(text, found)

    safe = asyncio.run(run())
    assert not any(special in safe for special in specials)


async def test_a_token_in_pieces_of_characters_is_no_trouble(server: RunningServer) -> None:
    backend = await connect(server.base_url)
    assert isinstance(backend, SpecialTokenAccess)
    pieces = await backend.pieces_of("🙂<file_sep>漢")
    assert ("<file_sep>" in [piece for _, piece in pieces]) and "" in [piece for _, piece in pieces]
    assert [id for id, _ in pieces] == await backend.ids_of("🙂<file_sep>漢", specials=True)
