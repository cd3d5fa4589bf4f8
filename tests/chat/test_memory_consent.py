"""Background work asks nobody, so it goes only where the person agreed to."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace
from remembering_kit import is_extraction, passed_over, remembering, said

from kvchat.backends.dialect import HostClass
from kvchat.config import ServerSettings, Settings
from toyserver import ToyServer, tokens


@pytest.mark.parametrize("host_class", [HostClass.LAN, HostClass.CLOUD])
async def test_a_stand_alone_extraction_on_a_server_that_was_not_agreed_to(tmp_path, host_class):
    """memory.profile stands on another machine; the person agreed to send to it for no conversation at all."""
    async with ToyServer(slots=2) as server, ToyServer("openai") as away:
        server.on_chat(tokens("Yes."))
        away.on_chat(tokens('{"facts":[]}'))
        settings = dataclasses.replace(Settings(), profiles={"small": ServerSettings(base_url=away.url)})
        async with remembering(server.url, tmp_path, settings=settings, profile="small", on_cloud=True) as service:
            link = service.servers.links.at("small")
            await link.connector.ready()
            link.connector._backend._info = replace(link.connector._backend.info, host_class=host_class)
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await said(service, id, "I keep bees in Bergen.")
            await service.extraction.request(id)
            await passed_over(service)
            assert not any(map(is_extraction, away.visits)), f"sent to {host_class} without the person's agreement"


async def test_a_conversation_that_is_not_looked_at_on_its_own_server_that_was_not_agreed_to(tmp_path):
    """Begun here, then switched to a machine in the network; the person never agreed to send there."""
    async with ToyServer(slots=2) as server, ToyServer("openai") as away:
        server.on_chat(tokens("Yes."))
        away.on_chat(tokens('{"facts":[]}'))
        async with remembering(server.url, tmp_path) as service:
            id = (await service.new_conversations.create("Be brief.", reuse=False)).id
            await service.conversations.open(id)
            await said(service, id, "I keep bees in Bergen.")
            await service.chooser.use(id, away.url)
            link = service.servers.link(id)
            link.connector._backend._info = replace(link.connector._backend.info, host_class=HostClass.LAN)
            other = (await service.new_conversations.create("Be.", reuse=False)).id
            await service.conversations.open(other)
            await service.extraction.request(id)
            await passed_over(service)
            assert not any(map(is_extraction, away.visits)), "sent to another machine without the person's agreement"


async def test_a_background_profile_whose_server_here_passes_its_model_on_to_the_internet(tmp_path):
    """Ollama on this machine with a model of ollama.com, not met yet; memory.on_cloud is off."""
    from standins.ollama import OllamaStandIn
    from standins.ollama_engine import StandInModel

    async with (
        ToyServer(slots=2) as server,
        OllamaStandIn(StandInModel("big:latest", remote_host="https://ollama.com:443")) as passing,
    ):
        server.on_chat(tokens("Yes."))
        settings = dataclasses.replace(
            Settings(), profiles={"small": ServerSettings(base_url=passing.url, model="big:latest")}
        )
        async with remembering(server.url, tmp_path, settings=settings, profile="small", on_cloud=False) as service:
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await said(service, id, "I keep bees in Bergen.")
            await service.extraction.request(id)
            await passed_over(service)
            sent = [visit for visit in passing.visits if b"bees" in visit.body]
            assert not sent, f"the conversation went to ollama.com in the background, by {sent[0].path}"
