"""Whatever a server lists, and whatever error it gives: kvchat reads it or says in a sentence that it cannot."""

from __future__ import annotations

from random import Random
from typing import Any

import lists
import pytest
from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.dialect import BackendError, HostClass, ServerInfo
from kvchat.backends.dialects.ollama.models import entries_in, facts_in, running_in
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.http.payload import PayloadError, Response, models_in, parsed
from kvchat.backends.http.transport import ResponseHead
from kvchat.backends.identify import backend_of
from kvchat.backends.kinds import KINDS
from kvchat.backends.recognition import recognised
from kvchat.text.faults import Fault
from kvchat.text.notes import note_sentence
from tries import tries

URL = "http://127.0.0.1:1"
ENDPOINT = Endpoint(BaseUrl("http", "127.0.0.1", 1), ResolvedServer(HostClass.LOOPBACK, ("127.0.0.1",)))
TRIES = tries("lists", 1_200)


def test_of_a_list_the_model_is_chosen_that_is_there_and_chats() -> None:
    for seed in range(TRIES):
        listing = lists.listing(Random(seed))
        try:
            found = models_in(listing.value)
        except PayloadError as error:
            assert listing.is_mutated and str(error), seed
            continue
        assert len(set(found.ids)) == len(found.ids) and all(found.ids), seed
        assert (found.chosen is None) == (not found.all), seed
        if not listing.is_mutated:
            assert set(found.ids) == {entry.id for entry in listing.entries}, seed
            assert not listing.best or (found.chosen and found.chosen.id in listing.best), (seed, found.chosen, listing)


def test_a_model_that_was_named_is_not_replaced_by_another() -> None:
    for seed in range(TRIES):
        listing = lists.listing(Random(seed))
        if not listing.is_mutated and listing.entries:
            named = Random(seed).choice(listing.entries)
            found = models_in(listing.value)
            info = ServerInfo("openai", URL, HostClass.LOOPBACK, found.all[0].id, found.all)
            known = info.known(named.id)
            assert known is not None and known.id == named.id, seed
            state = known.state or ("loaded" if known.loaded else "")
            assert state == ("" if named.state == "unloaded" else named.state), (seed, named)


def test_bodies_and_ollamas_lists_are_read_or_refused_in_words() -> None:
    for seed in range(TRIES):
        random = Random(seed)
        for read, value in (
            (models_in, lists.listing(random).value),
            (running_in, lists.tags(random)),
            (lambda found: entries_in(found, None), lists.tags(random)),
            (facts_in, lists.shown(random)),
        ):
            text = lists.body(random, value).decode("utf-8", "replace")
            try:
                read(parsed(text))  # type: ignore[operator]
            except PayloadError as error:
                assert str(error), seed


def _answers(random: Random) -> dict[str, Response]:
    """What a server answers, by path: lists, pages and errors, each perhaps damaged."""
    values: dict[str, Any] = {
        "/v1/models": lists.listing(random).value,
        "/api/tags": lists.tags(random),
        "/api/ps": lists.tags(random),
        "/api/show": lists.shown(random),
        "/api/version": {"version": random.choice(("0.34.1", "", None, 7))},
        "/props": lists.props(random),
        "/running": lists.mutated(random, {"running": [{"model": "a", "state": "ready", "ttl": 5}]}),
        "/api/v1/models": lists.mutated(
            random,
            {
                "models": [
                    {"key": "a", "type": "llm", "loaded_instances": [{"id": "a", "config": {"context_length": 9}}]}
                ]
            },
        ),
    }
    found = {}
    for path, value in values.items():
        if random.random() < 0.2:
            bad = lists.error_answer(random)
            found[path] = Response(bad.status, {"retry-after": bad.retry_after}, bad.body)
        else:
            found[path] = Response(200, {}, lists.body(random, value))
    return found


@pytest.mark.parametrize("kind", [*KINDS])
async def test_every_kind_describes_a_server_or_says_why_not(kind: str) -> None:
    backend_class = backend_of(KINDS[kind])
    for seed in range(max(60, TRIES // len(KINDS))):
        answers = _answers(Random(seed))

        class Described(backend_class):  # type: ignore[misc, valid-type]
            async def ask(self, method: str, path: str, *_: Any, **__: Any) -> tuple[ResponseHead, bytes]:
                bare = path.partition("?")[0]
                found = answers.get(bare) or answers.get(f"/v1{bare}") or Response(404, {}, b"")  # noqa: B023
                return ResponseHead(found.status, found.headers), found.body

        backend = Described(ENDPOINT)
        backend._endpoint = replace(ENDPOINT, is_bare=False)
        try:
            info = await backend.identify()
        except BackendError as error:
            assert error.sentence.endswith((".", "!", "?", "…")) and "{" not in error.sentence, (seed, error.sentence)
            continue
        assert isinstance(info.model, str) and all(isinstance(model.id, str) for model in info.listing), seed
        assert info.model.encode() is not None, seed
        recognised(answers)


def test_the_words_of_an_error_are_told_once_with_what_to_do() -> None:
    for seed in range(TRIES):
        answer = lists.error_answer(Random(seed))
        text = answer.body.decode("utf-8", "replace")
        error = errors.of_status(URL, answer.status, text, headers={"retry-after": answer.retry_after})
        sentence = error.sentence
        assert sentence == note_sentence(error.note) and sentence.isprintable(), (seed, sentence)
        if answer.words and error.fault in (Fault.FAILED, Fault.UNAVAILABLE, Fault.TOO_MANY, Fault.REFUSED):
            begin = errors.quoted(answer.words)[:20]
            assert sentence.count(begin) == (answer.words.count(begin) > 3) * (sentence.count(begin) - 1) + 1, (
                seed,
                sentence,
            )
        assert len(sentence) < 600, seed
        errors.unknown_field(text, {"session_id", "messages"})


def test_loading_is_where_it_is_loading() -> None:
    for seed in range(TRIES):
        answer = lists.error_answer(Random(seed))
        if answer.words:
            assert errors.is_loading(answer.status, answer.body.decode()) is answer.loads, (seed, answer)
