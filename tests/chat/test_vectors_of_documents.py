"""Vectors of documents from a model file that kvchat's own engine runs, beside the chat's server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp")

from retrieval_kit import documents_service, indexed, written

from engine_fixture import small_model
from kvchat.config import Settings, changed
from toyserver import ToyServer

pytestmark = pytest.mark.engine


async def test_what_is_indexed_gets_vectors_and_the_engine_ends_with_the_service(server: ToyServer, tmp_path: Path):
    settings = changed(Settings(), "embeddings.model", str(small_model()))
    settings = changed(settings, "memory.rest_seconds", 0)
    async with documents_service(server.url, tmp_path / "data", settings=settings) as service:
        service.jobs.enabled = True
        service.begin_background()
        await indexed(service, written(tmp_path / "handbook"))
        id = (await service.new_conversations.create("Be brief.")).id
        source = await service.vectors.source()
        async with asyncio.timeout(120):
            while True:
                if not await service.documents.with_library(
                    lambda library: library.index.without_vector(source.model, 100, "docs/")
                ):
                    break
                await asyncio.sleep(0.2)
        assert source.is_running
        assert (await service.retrieval.retrieve(id, "@handbook How often does the lamp turn?")).passages
    assert not source.is_running
    assert changed(Settings(), "embeddings.model", "nomic").embeddings.local_model == ""
