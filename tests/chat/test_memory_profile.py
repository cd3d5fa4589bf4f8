"""Background work on a profile of its own (memory.profile)."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace
from remembering_kit import is_extraction, passed_over, pending, remembering, said, until

from kvchat.backends.dialect import HostClass
from kvchat.config import ServerSettings, Settings
from kvchat.memory.entry import Kind
from toyserver import ToyServer, error, tokens

NONE = '{"facts":[]}'


def with_profile(url: str, **more) -> Settings:
    return dataclasses.replace(Settings(), profiles={"small": ServerSettings(base_url=url, **more)})


async def test_a_background_model_without_a_system_role_changes_nothing_of_the_conversation(tmp_path):
    """Gemma for the background: its template refuses the system message of the stand-alone prompt. The conversation
    talks to another server, and its prefix is none of that one's business."""
    async with ToyServer(slots=2) as server, ToyServer(slots=1) as small:
        server.on_chat(tokens("Yes."))

        async def gemma(visit):
            if visit.json["messages"][0]["role"] == "system":
                return await error(400, "Jinja Exception: System role not supported", "invalid_request_error")(visit)
            return await tokens(NONE)(visit)

        small.on_chat(gemma)
        async with remembering(server.url, tmp_path, settings=with_profile(small.url), profile="small") as service:
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await said(service, id, "I keep bees in Bergen.")
            before = server.chats[-1].json["messages"]
            await service.extraction.request(id)
            await until(service, lambda: any(map(is_extraction, small.visits)) and not service.jobs.at_work())
            await said(service, id, "And wasps?")
            after = server.chats[-1].json["messages"]
            assert after[: len(before)] == before, "the prefix was changed by a background request to another server"
            assert not service.conversations.get(id).record.system_in_user


async def test_a_background_server_is_asked_for_its_own_model(tmp_path):
    async with ToyServer(slots=2, model="big") as server, ToyServer(slots=1, model="small") as small:
        server.on_chat(tokens("Yes."))
        small.on_chat(tokens(NONE))
        settings = with_profile(small.url)
        async with remembering(server.url, tmp_path, settings=settings, profile="small") as service:
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await service.options.set_model(id, "big")
            await said(service, id, "I keep bees in Bergen.")
            await service.extraction.request(id)
            await until(service, lambda: pending(service, id) == 0)
            assert [visit.json.get("model") for visit in small.chats] == ["small"], service.jobs.all()


async def test_a_profile_that_names_the_model_is_asked_for_that_one(tmp_path):
    """An OpenAI-like server with several models: the profile says which one is for the background."""
    async with ToyServer(slots=2, model="big") as server, ToyServer("openai", model="tiny") as small:
        server.on_chat(tokens("Yes."))
        small.on_chat(tokens(NONE))
        settings = with_profile(small.url, model="tiny")
        async with remembering(server.url, tmp_path, settings=settings, profile="small") as service:
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await said(service, id, "I keep bees in Bergen.")
            await service.extraction.request(id)
            await until(service, lambda: small.chats and not service.jobs.at_work())
            assert {visit.json.get("model") for visit in small.chats} == {"tiny"}


async def test_nothing_goes_to_a_background_profile_on_the_internet_unless_that_is_set(tmp_path):
    """memory.on_cloud is off. The person once agreed to send this conversation to that service, and went back."""
    async with ToyServer(slots=2) as server, ToyServer("openai") as away:
        server.on_chat(tokens("Yes."))
        away.on_chat(tokens(NONE))
        settings = with_profile(away.url)
        async with remembering(server.url, tmp_path, settings=settings, profile="small", on_cloud=False) as service:
            link = service.servers.links.at("small")
            await link.connector.ready()
            backend = link.connector._backend
            cloud = replace(backend.info, host_class=HostClass.CLOUD)
            backend._info = cloud
            assert link.info.host_class is HostClass.CLOUD
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await service.servers.consent.allow_sending_to(cloud, id)
            await said(service, id, "I keep bees in Bergen.")
            await service.extraction.request(id)
            await passed_over(service)
            assert away.posts == 0, "the conversation was sent to the internet in the background"


async def test_memories_of_all_conversations_are_not_sent_to_where_one_of_them_was_allowed_to_go(tmp_path):
    """Tidying, with the same profile: the whole memory goes, not the one conversation that was agreed to."""
    async with ToyServer(slots=2) as server, ToyServer("openai") as away:
        server.on_chat(tokens("Yes."))
        away.on_chat(tokens('{"pairs":[],"shorter":[]}'))
        async with remembering(
            server.url,
            tmp_path,
            settings=with_profile(away.url),
            profile="small",
            on_cloud=False,
            consolidate=True,
            idle_seconds=0,
        ) as service:
            link = service.servers.links.at("small")
            await link.connector.ready()
            cloud = replace(link.connector._backend.info, host_class=HostClass.CLOUD)
            link.connector._backend._info = cloud
            id = (await service.new_conversations.create("Be brief.")).id
            await service.conversations.open(id)
            await service.servers.consent.allow_sending_to(cloud, id)
            for text in ("I keep bees in Bergen.", "I moved the bees to Oslo.", "My doctor treats my asthma."):
                await service.memory.with_memories(lambda m, text=text: m.add(text, Kind.FACT, page="topics/bees.md"))
            await service.consolidation.consolidate_soon()
            await passed_over(service)
            assert not any(b"asthma" in visit.body for visit in away.visits), "the memory was sent to the internet"
