"""Finding out what a server is."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
from backend_kit import Heard, a_turn, hurried

from kvchat.backends.dialect import PRESERVED, BackendError, HostClass, ServerInfo, Trouble
from kvchat.backends.dialects.llamacpp import LlamaCppBackend
from kvchat.backends.identify import connect
from kvchat.backends.kinds import Figures
from kvchat.cache import SlotCount
from toyserver import ToyServer, Visit, drop, error, hang, loading, raw, reply

WIRE = Path(__file__).parents[1] / "fixtures/wire"


async def test_a_llama_cpp_server_is_described_in_full() -> None:
    async with ToyServer() as server:
        for path, name in (("/props", "props"), ("/v1/models", "models")):
            server.on(path, raw((WIRE / f"llamacpp_200_{name}.http").read_bytes()))
        backend = await connect(server.url + "/v1/", embedded=True)
        assert backend.info == ServerInfo(
            kind="llama.cpp",
            base_url=server.url,
            host_class=HostClass.LOOPBACK,
            model="smol",
            listing=backend.info.listing,
            figures=Figures.BEFORE,
            context_size=backend.info.context_size,
            slots=backend.info.slots,
            build=backend.info.build,
            template=backend.info.template,
            takes_local_extras=True,
            reasoning_option=None,
            sees=False,
            takes_tools=False,
            embedded=True,
        )
        props = json.loads((WIRE / "llamacpp_200_props.http").read_bytes().partition(b"\r\n\r\n")[2])
        assert backend.info.context_size == props["default_generation_settings"]["n_ctx"]
        assert backend.info.slots == props["total_slots"]
        assert await backend.alive()


async def test_a_llama_cpp_server_is_known_by_two_questions_and_asked_each_once() -> None:
    async with ToyServer() as server:
        listing = reply(200, {"data": [{"id": "smol"}]}, server="llama.cpp")
        server.on("/v1/models", listing)
        backend = await connect(server.url)
        assert (backend.info.kind, backend.info.model) == ("llama.cpp", "smol")
        assert [visit.path for visit in server.visits] == ["/v1/models", "/props"]


async def test_a_template_that_keeps_reasoning_is_noticed() -> None:
    async with ToyServer() as server:
        server.on(
            "/props", reply(200, {"chat_template_caps": {"supports_preserve_reasoning": True}}, server="llama.cpp")
        )
        assert (await connect(server.url)).info.reasoning_option == PRESERVED


async def test_any_other_server_is_spoken_to_in_the_common_dialect() -> None:
    async with ToyServer("openai", model="mistral") as server:
        backend = await connect(server.url)
        assert (backend.info.kind, backend.info.model) == ("openai", "mistral")
        assert not backend.info.takes_local_extras
        assert (backend.info.context_size, backend.info.slots) == (None, None)


async def test_llama_cpp_behind_a_proxy_that_hides_it_is_still_recognised() -> None:
    async with ToyServer() as server:
        server.on("/props", reply(200, {"default_generation_settings": {"n_ctx": 512}}, server="nginx"))
        backend = await connect(server.url)
        assert (backend.info.kind, backend.info.context_size) == ("llama.cpp", 512)


async def test_a_server_that_only_imitates_llama_cpps_properties_is_not_taken_for_it() -> None:
    async with ToyServer("openai") as server:
        server.on("/props", reply(200, {"default_generation_settings": {"n_ctx": 512}, "total_slots": 1}))
        assert (await connect(server.url)).info.kind == "openai"


async def test_the_first_model_that_can_chat_is_chosen_and_a_loaded_one_before_it() -> None:
    async with ToyServer("openai") as server:
        entries = [{"id": "nomic-embed"}, {"id": "a", "max_model_len": 777}, {"id": "b"}, {"no": "id"}, 7]
        server.on("/v1/models", reply(200, {"data": entries}))
        info = (await connect(server.url)).info
        assert (info.model, info.models, info.context_size) == ("a", ("nomic-embed", "a", "b"), 777)
        entries[2] = {"id": "b", "status": {"value": "loaded"}}
        server.on("/v1/models", reply(200, {"data": entries}))
        assert (await connect(server.url)).info.model == "b"


async def test_a_loading_server_is_waited_for_if_somebody_listens() -> None:
    async with ToyServer() as server:
        ready, busy = server._routes["/props"], iter([loading()] * 3)
        server.on("/props", lambda visit: next(busy, ready)(visit))
        waited: list[float] = []
        backend = await connect(server.url, on_loading=waited.append, clock=hurried())
        assert backend.info.kind == "llama.cpp" and len(waited) == 3


async def test_a_loading_server_is_an_error_if_nobody_listens() -> None:
    async with ToyServer() as server:
        server.on("/props", loading())
        with pytest.raises(BackendError) as caught:
            await connect(server.url)
    assert caught.value.trouble is Trouble.LOADING
    assert caught.value.sentence == (
        f"The server at {server.url} is still loading its model. Wait until that is done, then try again."
    )


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (error(401, "Invalid API Key", "authentication_error"), Trouble.UNAUTHORIZED),
        (error(500, "boom"), Trouble.SERVER_ERROR),
        (reply(200, b"<html>", content_type="text/html"), Trouble.PROTOCOL),
        (reply(200, b"[1,2"), Trouble.PROTOCOL),
        (reply(200, {"data": 7}), Trouble.PROTOCOL),
        (raw(b"nonsense\r\n\r\n"), Trouble.PROTOCOL),
        (drop(), Trouble.CUT),
    ],
)
async def test_a_server_that_cannot_be_used_is_told_in_one_sentence(answer, trouble: Trouble) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", answer)
        with pytest.raises(BackendError) as caught:
            await connect(server.url)
    assert caught.value.trouble is trouble
    assert server.url in caught.value.sentence and caught.value.sentence.endswith(".")


async def test_a_get_is_tried_again_when_its_connection_breaks() -> None:
    async with ToyServer("openai") as server:
        good, answers = server._routes["/v1/models"], iter([drop()])
        server.on("/v1/models", lambda visit: next(answers, good)(visit))
        assert (await connect(server.url)).info.model == "toy"


async def test_a_server_that_hangs_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.base.GET_S", 0.05)
    async with ToyServer() as server:
        server.on("/props", hang())
        with pytest.raises(BackendError, match="did not answer within"):
            await connect(server.url)
        await server.until_closed()


async def test_a_server_without_models_names_none_and_still_chats(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(200, {"data": []}))
        backend = await connect(server.url)
        await backend.chat(a_turn(), heard)
        assert backend.info.model == "" and "model" not in server.chats[0].json and heard.text == "Hello"


async def test_a_prefix_in_the_base_url_stays_in_front_of_every_path(heard: Heard) -> None:
    async with ToyServer("openai") as server:
        server.on("/llm/v1/models", server._routes["/v1/models"])
        backend = await connect(f"{server.url}/llm/v1")
        await backend.chat(a_turn(), heard)
        assert server.chats[0].path == "/llm/v1/chat/completions"


@pytest.mark.process
def test_importing_the_interface_imports_no_http_client() -> None:
    code = (
        "import sys, kvchat.backends.dialect, kvchat.backends.identify\n"
        "assert not {'httpx', 'httpcore', 'anyio'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("processes", "are_several"), [(("one",), False), (("one", "two"), True)])
async def test_one_look_finds_out_whether_servers_of_this_machine_take_turns(
    processes: tuple[str, ...], are_several: bool
) -> None:
    async with ToyServer() as server:
        names = cycle(processes)

        async def props(visit: Visit) -> None:
            await reply(200, {"media_marker": next(names), "total_slots": 1}, server="llama.cpp")(visit)

        server.on("/props", props)
        backend = await connect(server.url)
        assert isinstance(backend, LlamaCppBackend)
        before = len(server.visits)
        await backend.look_for_replicas()
        assert backend.info.replicas is are_several
        assert [visit.path for visit in server.visits[before:]] == ["/props"]


async def test_who_answered_just_before_is_one_of_them() -> None:
    async with ToyServer() as server:
        server.on("/props", reply(200, {"media_marker": "two", "total_slots": 1}, server="llama.cpp"))
        backend = await connect(server.url)
        assert isinstance(backend, LlamaCppBackend)
        await backend.look_for_replicas("two")
        assert not backend.info.replicas, "it was started again"
        await backend.look_for_replicas("one")
        assert backend.info.replicas


async def test_what_others_have_asked_is_not_read_of_the_slots() -> None:
    """A server with LLAMA_SERVER_SLOTS_DEBUG=1 shows each slot's text."""
    async with ToyServer() as server:
        slot = {"id": 0, "n_prompt_tokens": 9, "id_task": 3, "prompt": "a secret", "generated": "another one"}
        server.on("/slots", reply(200, [slot], server="llama.cpp"))
        server.on("/props", reply(200, {"total_slots": 1}, server="llama.cpp"))
        backend = await connect(server.url)
        assert isinstance(backend, LlamaCppBackend)
        assert await backend.slot_counts() == [SlotCount(9, 3, False)]
