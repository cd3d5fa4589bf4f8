"""Which servers say that they see, and what each gets of a message with an image."""

from __future__ import annotations

import json

import pytest
from backend_kit import endpoint_of

from corpus import corpus
from kvchat.backends.base import HttpBackend, OneTokenWarmUp
from kvchat.backends.dialect import BackendError, ChatTurn, ServerOptions, Trouble
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.http.payload import sees_in
from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.images import url_sha256
from kvchat.prompt.message import Message, Role, system_message
from kvchat.text.faults import Fault
from standins.llamacpp_vision import SeeingServer
from standins.lmstudio import LMStudioStandIn
from toyserver import ToyServer

URL = b"data:image/png;base64,AAAA"
BLOCK = ContextBlock(IMAGE, "lamp.png", "640x480", f"/lamp.png#{url_sha256(URL)}")
TURN = ChatTurn((system_message("Be brief.").wire(), Message(Role.USER, "What?", (BLOCK,)).wire()), "session")


def backend_at(server: ToyServer, kind: type[HttpBackend] = LlamaCppBackend, **options: str) -> HttpBackend:
    return kind(
        endpoint_of(server),
        options=ServerOptions(**options),  # type: ignore[arg-type]
        images=lambda name: URL if name == url_sha256(URL) else None,
    )


@corpus(
    ("entry", "sees"),
    [
        ({"architecture": {"input_modalities": ["text", "image"]}}, True),  # llama.cpp, OpenRouter
        ({"architecture": {"input_modalities": ["text"]}}, False),
        ({"capabilities": ["completion", "vision"]}, True),  # Ollama
        ({"capabilities": ["completion", "multimodal"]}, True),  # llama.cpp's list for Ollama's clients
        ({"capabilities": ["completion"]}, False),
        ({"capabilities": {"vision": True, "trained_for_tool_use": False}}, True),  # LM Studio, Mistral
        ({"capabilities": {"vision": False}}, False),
        ({"capabilities": []}, None),
        ({"capabilities": {"vision": "yes"}}, None),
        ({"architecture": "llama"}, None),
        ({}, None),
    ],
)
def test_what_an_entry_of_a_list_says(entry: dict[str, object], sees: bool | None) -> None:
    assert sees_in(entry) is sees


@pytest.mark.parametrize("sees", [True, False])
async def test_llamacpp_says_it(sees: bool) -> None:
    async with SeeingServer(sees=sees) as server:
        backend = backend_at(server)
        info = await backend.identify()
        assert (info.takes_images(""), info.takes_images("seer-2b")) == (sees, sees)
        assert info.takes_images("another") is None


async def test_a_server_that_does_not_say_is_unknown() -> None:
    async with ToyServer("openai") as server:
        assert (await backend_at(server, OneTokenWarmUp).identify()).takes_images("toy") is None


async def test_lm_studio_says_it_of_each_model() -> None:
    class Seeing(LMStudioStandIn):
        def _entry(self, name: str) -> dict[str, object]:
            return super()._entry(name) | {"capabilities": {"vision": name == self.model}}

    from kvchat.backends.dialects.lmstudio import LMStudioBackend

    async with Seeing() as server:
        info = await backend_at(server, LMStudioBackend).identify()
        assert info.takes_images(server.model) is True and info.takes_images("sleepy-70b") is False


def test_the_body_has_the_image_that_the_message_names() -> None:
    backend = OneTokenWarmUp(endpoint_of(ToyServer()), images=lambda name: URL)
    parts = json.loads(backend.body(TURN))["messages"][1]["content"]
    assert parts == [{"type": "image_url", "image_url": {"url": URL.decode()}}, {"type": "text", "text": "What?"}]


@pytest.mark.parametrize("found", [None, b"data:image/png;base64,BBBB"], ids=["gone", "another"])
def test_an_image_that_is_gone_or_another_one_is_not_sent(found: bytes | None) -> None:
    backend = OneTokenWarmUp(endpoint_of(ToyServer()), images=lambda name: found)
    with pytest.raises(BackendError) as error:
        backend.body(TURN)
    assert (error.value.trouble, error.value.fault) == (Trouble.REFUSED, Fault.IMAGE_GONE)


async def test_llamacpp_is_never_asked_for_the_text_of_a_prompt_with_an_image() -> None:
    async with SeeingServer() as server:
        backend = LlamaCppBackend(endpoint_of(server), images=lambda name: URL)
        with pytest.raises(BackendError, match="cannot be prefilled ahead"):
            await backend.prefill_messages(TURN)
        assert not server.visits
