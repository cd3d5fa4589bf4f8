"""Memories found by meaning: embedded in the background by a server of their own, and never waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from remembering_kit import until

from kvchat.backends.dialect import BackendError, HostClass, ServerInfo
from kvchat.chat.service import ChatService
from kvchat.config import MemorySettings, Settings
from kvchat.config.settings import EmbeddingSettings
from kvchat.memory.memories import Memories
from kvchat.store import Store
from standins.embeddings import EmbeddingsStandIn
from toyserver import reply


@pytest.fixture
def start(tmp_path):
    def start(url, model=""):
        store = Store.open(tmp_path / "data")
        settings = replace(
            Settings(), embeddings=EmbeddingSettings(base_url=url, model=model), memory=MemorySettings(rest_seconds=0)
        )
        service = ChatService(
            store,
            settings,
            lanes=tmp_path / "lanes",
            memories=lambda: Memories.open(
                store, tmp_path / "memory", tmp_path / "index.db", session=service.memory.session
            ),
        )
        service.jobs.enabled = True
        return service

    return start


async def test_what_is_remembered_gets_vectors_and_a_question_one_of_its_own(start):
    async with EmbeddingsStandIn() as server:
        service = start(server.url)
        try:
            service.begin_background()
            await service.memory.remember("I prefer metric units.")
            await service.memory.remember("My sister Ida repairs clocks.")
            await until(service, lambda: not service.jobs.all() and not service.jobs.at_work())
            model = (await service.vectors.source()).model
            assert await service.memory.with_memories(lambda m: m.index.without_vector(model, 9, "memory/")) == []
            id = (await service.new_conversations.create()).id
            assert await service.vectors.of("Who mends timepieces?")
            asked = len(server.visits)
            await service.memory.recall(id, "Who mends timepieces?")
            assert len(server.visits) == asked, "the same question was embedded twice"
            async with service.vectors.lane.chat("a chat on the same server"):
                assert await service.vectors.of("Another question?") is None
            assert len(server.visits) == asked, "a vector was asked for beside an answer"
        finally:
            await service.aclose()


async def test_a_source_of_vectors_that_is_gone_keeps_no_memory_from_a_question(start):
    service = start("http://127.0.0.1:9")
    try:
        service.begin_background()
        await service.memory.remember("I prefer metric units.")
        id = (await service.new_conversations.create()).id
        found = await service.memory.recall(id, "How long is a mile in metric units?")
        assert [entry.text for recalled in found for entry in recalled.entries] == ["I prefer metric units."]
    finally:
        await service.aclose()


CLOUD = "https://ollama.com:443"


@pytest.mark.parametrize(
    ("entry", "model", "leaves"),
    [
        ({"name": "embed:latest", "remote_host": CLOUD, "remote_model": "embed"}, "embed", True),
        ({"name": "embed:cloud"}, "embed:cloud", True),
        ({"name": "other:latest", "size": 9}, "embed-cloud", True),
        ({"name": "embed:latest", "size": 9, "digest": "a" * 64}, "embed", False),
        (None, "embed", False),
    ],
)
async def test_words_go_on_to_a_cloud_only_when_the_user_agreed_to_that(start, entry, model, leaves):
    class Listing(EmbeddingsStandIn):
        def _answer_to(self, visit):
            if visit.path == "/api/tags" and entry is not None:
                return reply(200, {"models": [entry]})
            return super()._answer_to(visit)

    async with Listing() as server:
        service = start(server.url, model)
        try:
            found = await service.vectors.of("Who mends timepieces?")
            assert (found is None, not server.asked) == (leaves, leaves)
            if leaves:
                source = await service.vectors.source()
                with pytest.raises(BackendError, match=r"runs at https://ollama\.com") as refused:
                    await source.vectors(["My sister Ida repairs clocks."])
                assert "Nothing was sent" in refused.value.sentence and not server.asked
                info = ServerInfo("ollama", server.url, HostClass.LOOPBACK, "a:cloud")
                await service.servers.consent.allow_sending_to(info)
                assert await source.vectors(["My sister Ida repairs clocks."]) and server.asked
        finally:
            await service.aclose()
