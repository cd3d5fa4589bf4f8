"""How much `kvchat ask` asks a real llama-server beside its question, and that it knows what it did not ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engine_fixture import running_server
from kvchat.backends.http.transport import Exchange
from kvchat.store import Store
from standins.liar import lying

pytestmark = pytest.mark.engine

QUESTION = "/v1/chat/completions"
MOST = 3


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths that are asked for, in order."""
    paths: list[str] = []
    original = Exchange.__init__

    def counted(self, endpoint, method, path, **rest):
        paths.append(path)
        original(self, endpoint, method, path, **rest)

    monkeypatch.setattr(Exchange, "__init__", counted)
    return paths


async def test_it_sends_three_requests_beside_the_question_and_still_knows_what_the_server_holds(
    run, asked, own_folders, monkeypatch
):
    monkeypatch.setenv("KVCHAT_PARAMETERS_TEMPERATURE", "0")  # an answer that ends by itself cannot be gone on with
    with running_server(slots=4) as server:

        async def ask(*words: str) -> str:
            asked.clear()
            done = await run("--base-url", server.base_url, "ask", "--json", "--max-tokens", 12, *words)
            assert asked.count(QUESTION) == 1 and len(asked) <= 1 + MOST, (asked, done.err)
            assert asked.index(QUESTION) <= 2, "no more is asked before it"
            return json.loads(done.out)["conversation"]

        first = await ask("Tell me of the lighthouse.")
        await ask("Tell me of the lantern.")
        await ask("--conversation", first, "And who keeps it, and since when?")
        await ask("Tell me of the lighthouse keeper.")
        await ask("--continue-answer")
    store = Store.open(own_folders / "data")
    found = [
        node.figures
        for conversation in store.conversations()
        for node in store.tree(conversation.id)
        if node.figures is not None
    ]
    store.close()
    told = [figures for figures in found if figures.predicted_cached is not None]
    assert len(told) >= len(found) - 1, "of the first nothing was known"
    assert all(figures.predicted_cached == figures.cached_tokens for figures in told)


def without_the_first_turn(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return [messages[0], *messages[3:]]


def without_the_system_prompt(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return messages[1:]


def with_less_of_the_first(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return [messages[0], {**messages[1], "content": messages[1]["content"][:40]}, *messages[2:]]


@pytest.mark.parametrize("cut", [without_the_first_turn, without_the_system_prompt, with_less_of_the_first])
async def test_it_notices_that_something_cut_its_prompt_on_the_way(run, asked, own_folders, monkeypatch, cut):
    counted, cuts = Exchange.__init__, False

    def cutting(self, endpoint, method, path, **rest):
        if path == QUESTION and cuts:
            sent = json.loads(rest["body"])
            rest["body"] = json.dumps({**sent, "messages": cut(sent["messages"])}).encode()
        counted(self, endpoint, method, path, **rest)

    monkeypatch.setattr(Exchange, "__init__", cutting)
    with running_server(slots=1) as server:
        at = ("--base-url", server.base_url, "ask", "--json", "--max-tokens", 8)
        system = "You know each lighthouse of the coast, who keeps it, and which oil it burns at night. " * 3
        first = await run(*at, "--system", system, "Tell me of the lighthouse on the island of Hvar. " * 12)
        asked.clear()
        cuts = True
        await run(*at, "--conversation", json.loads(first.out)["conversation"], "And who keeps it?")
        assert len(asked) <= 1 + MOST + 2, " ".join(asked)  # with its template, and a look at what was left
    store = Store.open(own_folders / "data")
    answer = store.tree(json.loads(first.out)["conversation"])
    causes = [node.figures.cause for node in answer if node.figures is not None]
    store.close()
    assert causes == [None, "cut"]


async def test_it_says_that_an_answer_may_be_another_conversations(run, own_folders):
    with running_server(slots=2) as server:
        async with lying(server.base_url) as liar:
            at = ("--base-url", liar.base_url, "ask", "--max-tokens", 12)
            first = json.loads((await run(*at, "--json", "Tell me of the lighthouse. " * 20)).out)["conversation"]
            for words in (("--json",), ()):
                honest = await run(*at, "--conversation", first, "And who keeps it?")
                assert "another conversation" not in honest.err
                liar.lies = 1
                lied = await run(*at, *words, "--conversation", first, "And since when?")
                assert "it may be another conversation's" in lied.err and "regenerate it" in lied.err
                assert not words or json.loads(lied.out)["note_kind"] == "reported_cold"
            shown = await run("show", first)
            assert shown.out.count("it may be another conversation's") == 2
