"""What each kind of server is sent to go on with a reply, and which kinds do."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kvchat.backends.dialect import ChatTurn, HostClass, ServerInfo
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.dialects.lmstudio import LMStudioBackend
from kvchat.backends.dialects.ollama.backend import OllamaBackend
from kvchat.backends.dialects.sglang import SglangBackend
from kvchat.backends.dialects.vllm import VllmBackend
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.kinds import KINDS
from kvchat.prompt.message import Message, Role

QUESTION = Message(Role.USER, "Go on").wire()
REPLY = Message(Role.ASSISTANT, "Half an")
FIELDS = {"add_generation_prompt", "continue_final_message"}


@pytest.mark.parametrize(
    ("dialect", "fields"),
    [
        (LlamaCppBackend, {"add_generation_prompt": False, "continue_final_message": True}),
        (VllmBackend, {"add_generation_prompt": False, "continue_final_message": True}),
        (SglangBackend, {"continue_final_message": True}),
        (OllamaBackend, {}),
    ],
)
def test_a_request_ends_with_the_reply_and_says_so_where_the_server_needs_it(dialect, fields):
    backend = dialect(Endpoint(BaseUrl("http", "127.0.0.1", 9), ResolvedServer(HostClass.LOOPBACK, ("127.0.0.1",))))
    turn = ChatTurn((QUESTION, REPLY.wire()), "s", "m", continues=True)
    body = json.loads(backend.body(turn))
    assert body["messages"][-1] == {"role": "assistant", "content": "Half an"}
    assert {name: body[name] for name in FIELDS & body.keys()} == fields
    plain = json.loads(backend.body(ChatTurn((QUESTION,), "s", "m")))
    assert not FIELDS & plain.keys()


@pytest.mark.parametrize(
    ("build", "is_asked"), [("b8929-0a", False), ("b9713-1f", True), ("b0-unknown", True), ("", True)]
)
def test_a_build_that_does_not_know_the_fields_is_not_sent_them(build: str, is_asked: bool) -> None:
    backend = LlamaCppBackend(
        Endpoint(BaseUrl("http", "127.0.0.1", 9), ResolvedServer(HostClass.LOOPBACK, ("127.0.0.1",)))
    )
    backend._info = replace(backend.info, build=build)
    body = json.loads(backend.body(ChatTurn((QUESTION, REPLY.wire()), "s", "m", continues=True)))
    assert (body.keys() >= FIELDS) is is_asked


def test_which_kinds_go_on_with_what():
    def goes_on(kind: str, reply: Message) -> bool:
        return ServerInfo(kind, "http://127.0.0.1:9", HostClass.LOOPBACK).continues(reply)

    thought = Message(Role.ASSISTANT, "", reasoning="I th")
    assert {kind for kind in KINDS if goes_on(kind, REPLY)} == {"llama.cpp", "ollama", "sglang", "vllm"}
    assert {kind for kind in KINDS if goes_on(kind, thought)} == {"llama.cpp"}
    assert not goes_on("llama.cpp", Message(Role.ASSISTANT, "", reasoning="I th", reasoning_field="reasoning"))
    assert LMStudioBackend.kind.continuing == "not"
