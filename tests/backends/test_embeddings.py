"""The source of vectors: what it sends, what it believes, what it refuses, and how long it keeps a question waiting."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from locality_kit import resolving

from kvchat.backends import embeddings
from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.embeddings import BATCH, REST_S, ChatServer, Embeddings
from kvchat.backends.http.transport import Clock
from standins.embeddings import EmbeddingsStandIn, given, vector
from toyserver import Answer, drop, error, hang, loading, raw, reply


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsStandIn]:
    async with EmbeddingsStandIn() as running:
        yield running


async def refused(source: Embeddings, *texts: str) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await source.vectors(texts or ("a cat",))
    sentence = caught.value.sentence
    assert sentence.endswith(".") and sentence.isprintable()
    assert "Ctrl+L" not in sentence and "--base-url" not in sentence and "conversation's" not in sentence
    return caught.value


async def test_texts_come_back_as_vectors_in_their_order_in_batches(server: EmbeddingsStandIn) -> None:
    texts = [f"text number {number}" for number in range(2 * BATCH + 3)]
    found = await Embeddings(server.url, "m").vectors(texts)
    assert found == [pytest.approx(vector(text)) for text in texts]
    assert [len(asked) for asked in server.asked] == [BATCH, BATCH, 3]
    assert set(server.models) == {"m"}


async def test_without_a_model_none_is_named(server: EmbeddingsStandIn) -> None:
    source = Embeddings(server.url)
    await source.vectors(["a cat"])
    assert server.models == [None]
    assert source.model and source.model != Embeddings("http://127.0.0.1:1").model


async def test_no_texts_are_no_request(server: EmbeddingsStandIn) -> None:
    assert await Embeddings(server.url).vectors([]) == []
    assert server.asked == []


async def test_vectors_that_come_out_of_order_are_put_back_by_their_index(server: EmbeddingsStandIn) -> None:
    server.once(reply(200, {"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]}))
    assert await Embeddings(server.url).vectors(["a", "b"]) == [[1.0, 0.0], [0.0, 1.0]]


async def test_models_that_tell_questions_from_texts_get_their_prefixes(server: EmbeddingsStandIn) -> None:
    source = Embeddings(server.url, "nomic-embed-text")
    await source.vectors(["a cat"])
    await source.vector("which cat?")
    assert server.asked == [["search_document: a cat"], ["search_query: which cat?"]]


BAD: dict[str, Answer] = {
    "too few": given([[1.0, 0.0]]),
    "too many": given([[1.0, 0.0]] * 3),
    "several lengths": given([[1.0, 0.0], [1.0]]),
    "empty vectors": given([[], []]),
    "text": reply(200, {"data": [{"embedding": "AAAA"}, {"embedding": "AAAA"}]}),
    "null": reply(200, {"data": [{"embedding": [None, 1]}, {"embedding": [1, 1]}]}),
    "true": reply(200, {"data": [{"embedding": [True, 1]}, {"embedding": [1, 1]}]}),
    "NaN": reply(200, b'{"data": [{"embedding": [NaN, 1]}, {"embedding": [1, 1]}]}'),
    "endless": reply(200, b'{"data": [{"embedding": [1e999, 1]}, {"embedding": [1, 1]}]}'),
    "huge": reply(200, b'{"data": [{"embedding": [1' + b"0" * 400 + b', 1]}, {"embedding": [1, 1]}]}'),
    "no data": reply(200, {"object": "list"}),
    "a list": reply(200, [[1.0], [2.0]]),
    "a page": reply(200, b"<html>hello</html>", content_type="text/html"),
    "an error in an answer": reply(200, {"error": "no model is loaded"}),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_is_not_a_finite_vector_for_each_text_is_told_not_believed(
    name: str, server: EmbeddingsStandIn
) -> None:
    server.once(BAD[name])
    assert (await refused(Embeddings(server.url), "a", "b")).trouble is Trouble.PROTOCOL


async def test_another_length_than_before_is_another_model(server: EmbeddingsStandIn) -> None:
    source = Embeddings(server.url)
    await source.vectors(["a cat"])
    server.length = 32
    told = await refused(source)
    assert "32" in told.sentence and "64" in told.sentence


FAULTS: dict[str, tuple[Answer, Trouble, str]] = {
    "loading": (loading(), Trouble.LOADING, ""),
    "no such path": (error(404, "File Not Found"), Trouble.REFUSED, "--embeddings"),
    "not switched on": (error(501, "This server does not support embeddings"), Trouble.REFUSED, "--embeddings"),
    "no such model": (error(404, 'model "m" not found, try pulling it first'), Trouble.REFUSED, "embeddings.model"),
    "a key is wanted": (error(401, "no key"), Trouble.UNAUTHORIZED, "embeddings.api_key_env"),
    "no pooling": (error(400, "Pooling type 'none' is not OAI compatible"), Trouble.REFUSED, "Pooling"),
    "garbage": (raw(b"\x00garbage\r\n\r\n"), Trouble.PROTOCOL, ""),
    "elsewhere": (
        reply(302, headers={"Location": "http://elsewhere.example/"}),
        Trouble.REFUSED,
        "embeddings.base_url",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_is_one_sentence_after_one_request(name: str, server: EmbeddingsStandIn) -> None:
    answer, trouble, remedy = FAULTS[name]
    server.once(answer)
    told = await refused(Embeddings(server.url))
    assert told.trouble is trouble and remedy in told.sentence and server.url in told.sentence
    assert server.posts == 1


async def test_a_connection_that_breaks_twice_is_told(server: EmbeddingsStandIn) -> None:
    server.once(drop(), drop())
    told = await refused(Embeddings(server.url))
    assert told.trouble is Trouble.CUT and server.url in told.sentence
    assert server.posts == 2


async def test_nobody_there_names_the_setting() -> None:
    told = await refused(Embeddings("http://127.0.0.1:9"))
    assert told.trouble is Trouble.UNREACHABLE and "embeddings.base_url" in told.sentence


@pytest.mark.parametrize("url", ["", "ftp://127.0.0.1", "http://", "127.0.0.1:8081", "http://user:pw@127.0.0.1"])
async def test_an_address_that_is_none_is_told(url: str) -> None:
    assert (await refused(Embeddings(url))).trouble is Trouble.BAD_ADDRESS


async def test_a_text_that_is_too_long_is_sent_shorter_and_the_others_whole() -> None:
    async with EmbeddingsStandIn(longest=600) as server:
        found = await Embeddings(server.url).vectors(["word " * 1000, "a cat"])
    assert found[1] == pytest.approx(vector("a cat"))
    assert [len(asked[0]) for asked in server.asked] == [2000, 1000, 500]


async def test_a_server_for_which_everything_is_too_long_is_told_after_a_few_requests() -> None:
    async with EmbeddingsStandIn(longest=3) as server:
        told = await refused(Embeddings(server.url), "word " * 1000)
    assert "too long" in told.sentence and len(server.asked) == 4


async def test_lone_surrogates_and_empty_texts_can_be_sent(server: EmbeddingsStandIn) -> None:
    assert len(await Embeddings(server.url).vectors(["\udc80 cat", ""])) == 2


# What goes where.


async def test_a_key_goes_with_the_request(server: EmbeddingsStandIn) -> None:
    server.key = "secret"
    assert await Embeddings(server.url, api_key="secret").vectors(["a cat"])
    assert "secret" not in (await refused(Embeddings(server.url, api_key="wrong"))).sentence


async def test_a_key_never_goes_over_plain_http_to_another_machine(server: EmbeddingsStandIn) -> None:
    for address in ("192.168.1.7", "203.0.113.7"):
        source = Embeddings("http://machine.example:8081", api_key="secret", resolver=resolving([address]))
        told = await refused(source)
        assert told.trouble is Trouble.REFUSED and "unencrypted" in told.sentence and "secret" not in told.sentence
        assert "allow_plain_http_key" not in told.sentence


@pytest.mark.parametrize("kind", ["llama.cpp", "llama-swap", "openai", ""])
@pytest.mark.parametrize(
    "spelled", ["http://127.0.0.1:{}", "http://localhost:{}/v1/", "http://127.0.0.2:{}", "http://here.example:{}"]
)
async def test_the_chats_own_server_is_never_asked_however_it_is_spelled(
    kind: str, spelled: str, server: EmbeddingsStandIn
) -> None:
    source = Embeddings(
        server.url,
        "m",
        chats=lambda: [ChatServer(spelled.format(server.port), kind, "chat")],
        resolver=resolving(["127.0.0.1"]),
    )
    told = await refused(source)
    assert told.trouble is Trouble.REFUSED and "cache" in told.sentence and "embeddings.base_url" in told.sentence
    assert server.posts == 0


@pytest.mark.parametrize("kind", ["ollama", "lmstudio"])
async def test_a_server_that_loads_a_model_for_it_may_be_the_chats(kind: str, server: EmbeddingsStandIn) -> None:
    chats = [ChatServer(server.url, kind, "chat:latest")]
    assert await Embeddings(server.url, "embedder", chats=lambda: chats).vectors(["a cat"])
    for model in ("", "chat"):
        assert "embeddings.model" in (await refused(Embeddings(server.url, model, chats=lambda: chats))).sentence
    assert server.posts == 1


async def test_a_chat_that_moves_to_its_server_ends_its_use(server: EmbeddingsStandIn) -> None:
    chats = [ChatServer("http://127.0.0.1:9", "llama.cpp")]
    source = Embeddings(server.url, chats=lambda: chats)
    assert await source.vectors(["a cat"])
    chats.append(ChatServer(server.url, "llama.cpp"))
    await refused(source)
    chats.pop()
    assert await source.vectors(["a cat"])
    assert server.posts == 2


# How long a question waits.


async def test_a_question_is_given_up_soon_and_its_connection_closed(
    server: EmbeddingsStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "QUERY_S", 0.05)
    server.once(hang())
    with pytest.raises(BackendError) as caught:
        await Embeddings(server.url).vector("which cat?")
    assert caught.value.trouble is Trouble.UNREACHABLE
    await server.until_closed()


async def test_after_a_failure_questions_do_not_wait_again_for_a_while(server: EmbeddingsStandIn) -> None:
    seconds = 0.0
    source = Embeddings(server.url, clock=Clock(now=lambda: seconds))
    server.once(error(500, "boom"))
    for _ in range(3):
        with pytest.raises(BackendError, match="boom"):
            await source.vector("which cat?")
    assert server.posts == 1
    seconds = REST_S + 1
    assert await source.vector("which cat?")


async def test_texts_that_get_through_end_the_rest_of_the_questions(server: EmbeddingsStandIn) -> None:
    source = Embeddings(server.url)
    server.once(error(500, "boom"))
    await refused(source)
    assert await source.vectors(["a cat"])
    assert await source.vector("which cat?")


async def test_a_cancelled_question_closes_its_connection(server: EmbeddingsStandIn) -> None:
    server.once(hang())
    asking = asyncio.create_task(Embeddings(server.url).vectors(["a cat"]))
    await server.until(lambda: server.posts == 1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await server.until_closed()


@pytest.mark.process
def test_nothing_of_it_is_imported_until_it_is_used() -> None:
    code = (
        "import sys, kvchat.cli, kvchat.cli.session, kvchat.index.index\n"
        "index = kvchat.index.index.Index.open(None)\n"
        "index.replace('memory/a.md', [kvchat.index.index.Chunk('a', '', 'a cat')])\n"
        "index.search('cat', vector=[1.0, 0.0])\n"
        "print(sorted({'kvchat.backends.embeddings', 'numpy', 'httpx'} & sys.modules.keys()))"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
