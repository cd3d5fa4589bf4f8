"""Every error that a server was seen or documented to send becomes a sentence a person can act on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from backend_kit import Heard, a_turn, hurried, llamacpp_at, openai_at

from engine_fixture import small_model
from kvchat.backends import errors
from kvchat.backends.dialect import BackendError, CacheAccess, ChatTurn, Trouble
from kvchat.backends.identify import connect
from kvchat.prompt.message import State
from kvchat.prompt.request import system_in_user
from kvchat.text.notes import note_sentence
from tiny_server import tiny_server
from toyserver import Answer, ToyServer, raw, reply, sse, tokens

FIXTURES = Path(__file__).parents[1] / "fixtures"
WIRE = FIXTURES / "wire"
ROLES = FIXTURES / "servers/llama.cpp/roles-must-alternate.http"
DOCUMENTED: dict[str, Any] = json.loads((FIXTURES / "servers/documented-errors.json").read_bytes())

LONGEST = 300
ADDRESS = "/model"
MODEL = "/model"
KEY = "server.api_key_env in the settings"
PARAMETERS = "Check the conversation's parameters and the server's log."
LOG = "Try again; if it stays so, look at the server's log."
ROOM = "Start a new conversation, delete a turn, or give the server a larger context"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sentence has to say: what happened, and what to do."""

    trouble: Trouble
    happened: tuple[str, ...]
    action: str


def refused(*words: str) -> Expected:
    return Expected(Trouble.REFUSED, ("refused the request (400)", *words), PARAMETERS)


OVERFLOW = Expected(Trouble.CONTEXT_OVERFLOW, ("3,031 tokens", "holds 1,024"), ROOM)
NO_KEY = Expected(Trouble.UNAUTHORIZED, ("wants an API key (401)",), KEY)
NO_PATH = Expected(Trouble.REFUSED, ("does not know this path", "(404)"), ADDRESS)
FULL = Expected(Trouble.CONTEXT_OVERFLOW, ("window", "full", "Context size has been exceeded"), ROOM)

CAPTURED = {
    "400_exceed_context_nostream": OVERFLOW,
    "400_exceed_context_stream": OVERFLOW,
    "401_models": NO_KEY,
    "401_no_key": NO_KEY,
    "401_wrong_key": NO_KEY,
    "slots_noauth": NO_KEY,
    "404_path": NO_PATH,
    "405_get_chat": NO_PATH,
    "resume_404": NO_PATH,
    "bad_content_type": Expected(Trouble.SERVER_ERROR, ("failed (500)", "image input is not supported"), LOG),
    "message_no_role": Expected(Trouble.SERVER_ERROR, ("failed (500)", "Missing 'role'"), LOG),
    "bad_grammar": refused("failed to parse grammar"),
    "bad_schema": refused("parser for this template"),
    "bad_temperature": refused("Field 'temperature'"),
    "n2": refused("Field 'n'"),
    "deep_json": refused("must contain 'content'"),
    "empty_body": refused("parse error"),
    "huge_header": refused(),
    "invalid_utf8_body": refused("parse error"),
    "json_array_body": refused("'messages' is required"),
    "lone_surrogate": refused("parse error"),
    "malformed_json": refused("parse error"),
    "messages_not_array": refused("to be an array"),
    "missing_messages": refused("'messages' is required"),
    "midstream_error_client0": FULL,
    "midstream_error_client1": FULL,
    "kill9_truncated": Expected(Trouble.CUT, ("broke before the answer was complete", "kept"), "try again"),
    "stream_deleted_tail": Expected(Trouble.CUT, ("broke before the answer was complete", "kept"), "try again"),
    "resume_part1": Expected(Trouble.CUT, ("broke before the answer was complete", "kept"), "try again"),
}
LOADING = ("503_loading_chat", "503_loading_health")

QUOTED = {
    "ollama_404_model": Expected(Trouble.REFUSED, ("does not have the model", "'x' not found"), MODEL),
    "ollama_openai_404_model": Expected(Trouble.REFUSED, ("does not have the model", "try pulling it"), MODEL),
    "ollama_ndjson_midstream": Expected(
        Trouble.SERVER_ERROR, ("stopped the answer", "error was encountered while running the model"), LOG
    ),
    "vllm_400_context_new": Expected(Trouble.CONTEXT_OVERFLOW, ("window", "You passed 1015"), "or lower max_tokens"),
    "vllm_400_old_shape": Expected(Trouble.CONTEXT_OVERFLOW, ("1,029 tokens", "1,024"), ROOM),
    "first_event_error_200": Expected(Trouble.CONTEXT_OVERFLOW, ("600,013 tokens", "536,826"), ROOM),
    "lmstudio_sse_error": Expected(Trouble.CONTEXT_OVERFLOW, ("14,538 tokens", "2,048"), ROOM),
    "proxy_html_502": Expected(Trouble.SERVER_ERROR, ("proxy that got no answer", "(502)"), "Start or restart"),
}

ALTERNATE = "Conversation roles must alternate user/assistant/user/assistant/..."
"""What chat templates raise; the servers wrap it in shapes of their own."""
WRAPPED = {
    "llama.cpp": (400, json.loads(ROLES.read_bytes().partition(b"\r\n\r\n")[2]), ALTERNATE),
    "llama.cpp, an older one": (
        500,
        {
            "error": {
                "code": 500,
                "message": "\n---\nWhile executing CallExpression\nError: Jinja Exception: System role not supported",
                "type": "server_error",
            }
        },
        "System role not supported",
    ),
    "vLLM": (
        400,
        {"error": {"message": "System role not supported None", "type": "BadRequestError", "code": 400}},
        "System role not supported",
    ),
    "vLLM, an older one": (
        400,
        {"object": "error", "message": ALTERNATE, "type": "BadRequestError", "code": 400},
        ALTERNATE,
    ),
    "SGLang": (
        400,
        {"object": "error", "message": "Only user and assistant roles are supported!", "code": 400},
        "Only user and assistant",
    ),
    "mlx-lm": (
        404,
        {
            "error": "After the optional system message, conversation roles must alternate "
            "user/assistant/user/assistant/..."
        },
        "After the optional system message",
    ),
    "TabbyAPI": (
        400,
        {"detail": "TemplateError: Only user, assistant and tool roles are supported, got system."},
        "got system",
    ),
    "LM Studio": (
        400,
        {"error": 'Error rendering prompt with jinja template: "System role not supported".'},
        "System role not supported",
    ),
    "a cloud": (
        400,
        {
            "error": {
                "message": "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
                "param": "messages[0].role",
            }
        },
        "'system'",
    ),
    "another cloud": (
        400,
        {"error": {"message": "Developer instruction is not enabled for models/gemma-3-27b-it"}},
        "Developer instruction",
    ),
}

OTHERS: dict[str, tuple[int, Any, Expected]] = {
    "llama-swap, no such model": (
        404,
        {
            "src": "llama-swap",
            "error": {
                "message": "no router for requested model",
                "type": "invalid_request_error",
                "param": None,
                "code": "not_found",
            },
        },
        Expected(Trouble.REFUSED, ("does not have the model", "no router"), MODEL),
    ),
    "llama.cpp router, no such model": (
        400,
        {"error": {"code": 400, "message": "model 'x' not found", "type": "invalid_request_error"}},
        Expected(Trouble.REFUSED, ("does not have the model", "'x' not found"), MODEL),
    ),
    "LM Studio, nothing loaded": (
        404,
        {"error": {"message": "No models loaded. Please load a model in the developer page.", "code": None}},
        Expected(Trouble.REFUSED, ("does not have the model", "No models loaded"), MODEL),
    ),
    "OpenAI, no such model": (
        404,
        {
            "error": {
                "message": "The model `gpt-99` does not exist or you do not have access to it.",
                "code": "model_not_found",
            }
        },
        Expected(Trouble.REFUSED, ("does not have the model", "gpt-99"), MODEL),
    ),
    "OpenAI, no quota": (
        429,
        {
            "error": {
                "message": "You exceeded your current quota, please check your plan and billing details.",
                "code": "insufficient_quota",
            }
        },
        Expected(Trouble.RATE_LIMITED, ("no credit left", "(429)"), "Add credit"),
    ),
    "DeepSeek, no balance": (
        402,
        {"error": {"message": "Insufficient Balance", "type": "unknown_error"}},
        Expected(Trouble.REFUSED, ("no credit left", "Insufficient Balance"), "Add credit"),
    ),
    "OpenRouter, its provider": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {
                    "raw": json.dumps({"error": {"message": "temperature must be at most 1"}}),
                    "provider_name": "P",
                },
            }
        },
        refused("temperature must be at most 1"),
    ),
    "Mistral, a list of problems": (
        422,
        {
            "object": "error",
            "message": {
                "detail": [
                    {"type": "extra_forbidden", "loc": ["body", "min_p"], "msg": "Extra inputs are not permitted"}
                ]
            },
        },
        Expected(Trouble.REFUSED, ("refused the request (422)", "min_p: Extra inputs"), PARAMETERS),
    ),
    "a forbidden model": (
        403,
        {"error": {"message": "key not allowed to access model"}},
        Expected(Trouble.UNAUTHORIZED, ("refuses access (403)", "not allowed"), KEY),
    ),
    "a proxy's limit": (
        413,
        b"<html>413 Request Entity Too Large</html>",
        Expected(Trouble.REFUSED, ("too large", "(413)"), "client_max_body_size"),
    ),
    "a proxy in time trouble": (
        504,
        b"<html>504 Gateway Time-out</html>",
        Expected(Trouble.SERVER_ERROR, ("proxy", "(504)"), "Start or restart"),
    ),
    "plain words": (500, b"Internal Server Error", Expected(Trouble.SERVER_ERROR, ("Internal Server Error",), LOG)),
    "a busy server": (
        503,
        {"error": "server busy, please try again"},
        Expected(Trouble.SERVER_ERROR, ("not available now (503)", "busy"), "Try again later"),
    ),
    "hostile words": (
        500,
        {"error": "\x1b]52;c;x\x07\u202eevil\r\n\x9b31m" + "z" * 999},
        Expected(Trouble.SERVER_ERROR, ("failed (500)", "evil"), LOG),
    ),
}


def check(sentence: str, url: str, happened: tuple[str, ...], action: str) -> None:
    assert url in sentence
    assert all(words in sentence for words in happened), sentence
    assert action in sentence
    assert sentence.isprintable() and sentence.endswith(".") and len(sentence) <= LONGEST, (len(sentence), sentence)


def told(error: BackendError | None, url: str, expected: Expected) -> None:
    assert error is not None and error.trouble is expected.trouble
    check(error.sentence, url, expected.happened, expected.action)


def captured(name: str) -> bytes:
    return (WIRE / f"llamacpp_{name}.http").read_bytes()


def documented(name: str) -> Answer:
    case = DOCUMENTED[name]
    if "sse" in case:
        return sse([case["sse"].encode()])
    if "lines" in case:
        return reply(200, "\n".join(case["lines"]).encode() + b"\n", content_type="application/x-ndjson")
    body = case["body_text"].encode() if "body_text" in case else case["body"]
    return reply(case["status"], body, content_type=case.get("content_type", "application/json"))


def test_every_captured_and_documented_error_is_looked_at() -> None:
    names = {path.stem.removeprefix("llamacpp_") for path in WIRE.glob("*.http")}
    assert {name for name in names if captured(name)[9:10] in b"45"} - set(LOADING) <= CAPTURED.keys()
    assert {name for name in names if b'data: {"error"' in captured(name)} <= CAPTURED.keys()
    assert DOCUMENTED.keys() == QUOTED.keys() | {"lmstudio_silent_empty"}


@pytest.mark.parametrize("name", CAPTURED)
async def test_a_captured_error_says_what_happened_where_and_what_to_do(name: str, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(raw(captured(name)))
        ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
    told(ended.error, server.url, CAPTURED[name])
    assert note_sentence(ended.note) == (ended.error and ended.error.sentence)


@pytest.mark.parametrize("name", QUOTED)
async def test_a_documented_error_says_what_happened_where_and_what_to_do(name: str, heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(documented(name))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
    told(ended.error, server.url, QUOTED[name])


RECORDED = sorted(path for path in (FIXTURES / "servers").glob("*/error-*.http") if path.read_bytes()[9:10] in b"45")
"""Errors of other real servers."""


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name} {path.stem}")
async def test_a_recorded_error_of_another_server_is_one_clean_sentence_with_something_to_do(
    path: Path, heard: Heard
) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(raw(path.read_bytes()))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
    assert ended.error is not None
    roles = any(words in path.stem for words in ("alternate", "system-role"))
    assert (ended.error.trouble is Trouble.SYSTEM_ROLE) == roles
    assert ("does not have the model" in note_sentence(ended.note)) == ("unknown-model" in path.stem)
    assert ended.error.trouble is Trouble.CONTEXT_OVERFLOW or "too-long" not in path.stem
    check(note_sentence(ended.note), server.url, (), "")
    told = note_sentence(ended.note)
    assert any(action in told for action in (ADDRESS, MODEL, PARAMETERS, LOG, ROOM, "another chat template"))


@pytest.mark.parametrize("name", OTHERS)
async def test_an_error_of_another_server_says_what_happened_where_and_what_to_do(name: str, heard: Heard) -> None:
    status, body, expected = OTHERS[name]
    async with ToyServer("openai") as server:
        kind = "text/plain" if isinstance(body, bytes) else "application/json"
        server.on_chat(reply(status, body, content_type=kind))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
    told(ended.error, server.url, expected)


@pytest.mark.parametrize("name", LOADING)
async def test_a_server_that_loads_is_waited_for_in_a_chat_and_told_elsewhere(name: str, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(raw(captured(name)), tokens("after"))
        ended = await llamacpp_at(server, hurried()).chat(a_turn(), heard)
        assert (ended.state, heard.text) == (State.DONE, "after")
        server.on("/props", raw(captured(name)))
        with pytest.raises(BackendError) as caught:
            await connect(server.url)
    told(caught.value, server.url, Expected(Trouble.LOADING, ("is still loading its model",), "then try again"))


async def test_an_answer_without_a_word_is_told_with_what_to_do(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(documented("lmstudio_silent_empty"))
        ended = await openai_at(server).chat(a_turn(), heard)
    assert ended.state is State.EMPTY
    check(note_sentence(ended.note) + server.url + ".", server.url, ("answered nothing",), "Try again")


async def test_a_wrong_key_is_told_apart_from_a_missing_one(heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(raw(captured("401_wrong_key")))
        ended = await llamacpp_at(server, api_key="k").chat(a_turn(), heard)
    told(ended.error, server.url, Expected(Trouble.UNAUTHORIZED, ("refused the API key (401)",), KEY))


@pytest.mark.parametrize("name", WRAPPED)
async def test_a_template_that_does_not_take_the_roles_is_known_by_its_words(name: str, heard: Heard) -> None:
    status, body, words = WRAPPED[name]
    async with ToyServer("openai") as server:
        server.on_chat(reply(status, body))
        ended = await openai_at(server, hurried()).chat(a_turn(), heard)
        assert server.posts == 1
    told(ended.error, server.url, Expected(Trouble.SYSTEM_ROLE, ("chat template", words), "another chat template"))
    assert "CallExpression" not in note_sentence(ended.note)


async def test_the_words_of_a_template_are_known_inside_an_answer_too(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on_chat(sse([b'data: {"error":{"message":"' + ALTERNATE.encode() + b'","code":400}}\n\n']))
        ended = await openai_at(server).chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.SYSTEM_ROLE


@pytest.mark.parametrize(
    "message",
    [
        "The system ran out of memory",
        "Invalid value for 'role'",
        "user quota exceeded",
        "roles are required",
    ],
)
def test_other_words_about_systems_and_roles_are_no_template_trouble(message: str) -> None:
    error = errors.of_status("http://h", 400, json.dumps({"error": {"message": message}}))
    assert error.trouble is Trouble.REFUSED


GEMMA = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
"""The template of the first Gemma models: no system message, and strict turns."""


@contextmanager
def strict_server() -> Iterator[str]:
    with tiny_server(small_model(), chat_template=GEMMA, n_ctx=512, n_parallel=1) as url:
        yield url


@pytest.mark.engine
async def test_a_real_llama_server_folds_the_system_message_itself_and_only_two_questions_in_a_row_are_refused(
    heard: Heard,
) -> None:
    system, question = a_turn().wires
    with strict_server() as url:
        backend = await connect(url, on_loading=lambda seconds: None)
        assert isinstance(backend, CacheAccess)
        folded = await backend.prompt_text(a_turn())
        assert "user\nBe brief." in folded and "Hi" in folded
        ours = await backend.prompt_text(ChatTurn(system_in_user((system, question)), "s"))
        assert folded.split() == ours.split()
        ended = await backend.chat(a_turn(), heard)
        assert ended.error is None and heard.reported.prompt_tokens
        twice = await backend.chat(ChatTurn((system, question, question), "s"), heard)
    told(twice.error, url, Expected(Trouble.SYSTEM_ROLE, (ALTERNATE,), "another chat template"))
