"""What is said while memory is off is never gone through; and what another kvchat says is followed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from remembering_kit import pending, remembering, said, until
from test_memory_while_it_runs import FACT

from kvchat.backends.dialect import ServerInfo
from kvchat.chat.background import extraction
from kvchat.chat.background.extraction import WAS_OFF
from kvchat.chat.errors import ChatError
from kvchat.memory.ledger import ExtractionLedger
from toyserver import ToyServer, tokens


def waits(service, id):
    return [
        node.text for node in ExtractionLedger(service.store.database).pending(service.conversations.get(id).path())
    ]


async def test_what_is_said_while_it_is_off_in_a_conversation_is_passed_over(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, rest_seconds=600) as service:
        server.on_chat(tokens("Yes."))
        id = (await service.new_conversations.create("Be brief.")).id
        await said(service, id, "I keep bees.")
        await service.extraction.set_memory(id, False)
        await said(service, id, "I have a secret.")
        await service.extraction.set_memory(id, True)
        assert waits(service, id) == ["I keep bees.", "Yes."]
        await said(service, id, "I keep wasps.")
        await service.extraction.set_memory(id, False)
        await service.extraction.set_memory(id, True)
        assert waits(service, id) == ["I keep bees.", "Yes.", "I keep wasps.", "Yes."]


async def test_a_conversation_of_which_nothing_is_ever_read_says_so(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, rest_seconds=600) as service:
        server.on_chat(tokens("Yes."))
        id = (await service.new_conversations.create("Be brief.")).id
        await service.extraction.set_memory(id, False)
        await said(service, id, "I have a secret.")
        await service.extraction.set_memory(id, True)
        with pytest.raises(ChatError, match="not read for memories: it was asked with kvchat ask, or while memory"):
            await service.extraction.request(id)


async def test_what_was_said_while_it_was_off_in_the_settings_is_passed_over(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path, enabled=False) as service:
            id = (await service.new_conversations.create("Be brief.")).id
            await said(service, id, "I have a secret.")
        async with remembering(server.url, tmp_path, rest_seconds=600) as service:
            await service.conversations.open(id)
            await until(service, lambda: not service.core.setting(WAS_OFF))
            assert pending(service, id) == 0
            await said(service, id, "I keep bees.")
            assert pending(service, id) == 2


async def test_a_conversation_that_another_kvchat_goes_on_with_is_followed(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path) as one, remembering(server.url, tmp_path) as other:
            id = (await one.new_conversations.create("Be brief.")).id
            await other.conversations.open(id)
            await said(one, id, "I drink oolong.")
            other.refresh()
            await said(other, id, "Hello to you.")
            texts = [node.text for node in other.conversations.get(id).path()[1:]]
            assert texts == ["I drink oolong.", "Yes.", "Hello to you.", "Yes."]
            one.refresh()
            assert [node.text for node in one.conversations.get(id).path()[1:]] == texts


async def test_with_the_demo_model_nothing_is_gone_through_and_what_is_known_is_given(tmp_path, monkeypatch):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path, idle_seconds=0) as service:
            await service.memory.remember("I keep bees in Bergen.")
            monkeypatch.setattr(ServerInfo, "is_demo", True)
            id = (await service.new_conversations.create("Be brief.")).id
            await said(service, id, "I keep wasps in Bergen.")
            assert b"bees" in server.chats[-1].body
            with pytest.raises(ChatError):
                await service.extraction.request(id)
            await service.extraction._resume()
            for job in service.jobs.all():
                assert await service.jobs.begins_at(job) is None
            assert len(server.chats) == 1 and waits(service, id) == ["I keep wasps in Bergen.", "Yes."]
            monkeypatch.undo()
            service.jobs.look_again()
            await until(service, lambda: len(server.chats) == 2)


async def test_the_demo_model_is_the_small_one_of_the_built_in_engine(tmp_path):
    async with ToyServer() as server, remembering(server.url, tmp_path, begin=False) as service:
        for embedded, model, is_demo in (
            (True, "/models/SmolLM2-135M-Instruct-Q4_K_M.gguf", True),
            (False, "SmolLM2-135M-Instruct", False),
            (True, "/models/qwen3-8b.gguf", False),
        ):
            assert replace(service.servers.info, embedded=embedded, model=model).is_demo is is_demo


async def test_what_another_kvchat_has_left_is_put_into_the_queue(tmp_path):
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path) as app:
            async with remembering(server.url, tmp_path, begin=False) as asked:
                id = (await asked.new_conversations.create("Be brief.", reuse=False)).id
                await said(asked, id, "I keep bees in Bergen.")
            app.extraction._resumed = 0.0
            app.refresh()
            await until(app, lambda: id in {job.subject for job in app.jobs.all()})


async def test_of_much_that_was_left_only_some_is_in_the_queue_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "RESUMED", 2)
    async with ToyServer(slots=2) as server:
        server.on_chat(tokens("Yes."))
        async with remembering(server.url, tmp_path, begin=False, enabled=False) as before:
            for number in range(7):
                new = await before.new_conversations.create("Be brief.", reuse=False)
                await said(before, new.id, f"I keep {number} bees.")
        server.on_chat(tokens(FACT))
        async with remembering(server.url, tmp_path, begin=False, idle_seconds=0) as service:
            service.store.jobs.put("other", "", 1e12)
            queued = []

            def is_done():
                queued.append(sum(job.kind == extraction.EXTRACTION for job in service.jobs.all()))
                return not ExtractionLedger(service.store.database).behind()

            service.begin_background()
            service.jobs.typed_at = 0.0
            await until(service, is_done)
            assert 0 < max(queued) <= 2
