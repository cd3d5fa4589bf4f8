"""Images in conversations: sent where the server sees, as the same bytes every time; else refused before anything is
stored; and nothing is claimed of tokens that nobody knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import changed
from kvchat.prompt.context import IMAGE
from kvchat.prompt.images import MOST_TOKENS
from kvchat.prompt.message import NoteKind, Role, State
from kvchat.prompt.request import Parameters
from kvchat.reports.rail import Where
from kvchat.reports.warmth import Heat
from kvchat.text.faults import Fault
from picture_samples import picture
from standins.llamacpp_vision import SeeingServer
from toyserver import ToyServer

Maker = Callable[..., ChatService]


@pytest.fixture
async def seeing() -> AsyncIterator[SeeingServer]:
    async with SeeingServer() as server:
        yield server


@pytest.fixture
async def blind() -> AsyncIterator[SeeingServer]:
    async with SeeingServer(sees=False, model="models/blind-1b.gguf") as server:
        yield server


@pytest.fixture
def lamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A picture in the working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "lamp.png").write_bytes(picture())
    (folder / "sea.png").write_bytes(picture(text="sea"))
    return folder / "lamp.png"


async def begun(service: ChatService) -> str:
    return (await service.new_conversations.create("Be brief.")).id


async def say(service: ChatService, id: str, text: str, *attached: Path) -> None:
    blocks = tuple([await service.retrieval.attach(id, str(path)) for path in attached])
    await service.turns.send(id, Question(text, blocks))
    await service.conversations.wait(id)


def path_of(service: ChatService, id: str) -> list[tuple[Role, State]]:
    return [(node.role, node.state) for node in service.conversations.load(id).path()]


def messages_of(server: SeeingServer, at: int = -1) -> list[dict[str, object]]:
    chats = [visit for visit in server.chats if visit.path == "/v1/chat/completions"]
    return json.loads(chats[at].body)["messages"]


async def test_a_mentioned_picture_goes_out_in_front_of_the_question(
    make: Maker,
    seeing: SeeingServer,
    lamp: Path,
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    await say(service, id, "What is @./lamp.png ?")
    content = messages_of(seeing)[-1]["content"]
    assert [part["type"] for part in content] == ["image_url", "text"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert content[1]["text"].endswith("What is @./lamp.png ?")
    question = service.conversations.load(id).path()[-2]
    (block,) = [block for block in question.message.blocks if block.kind == IMAGE]
    assert (block.source, block.text) == ("lamp.png", "640x480") and len(question.wire) < 400


async def test_every_later_request_begins_with_the_bytes_of_the_one_before(
    make: Maker, seeing: SeeingServer, lamp: Path
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    await say(service, id, "What is this?", lamp)
    lamp.unlink()  # what was said does not change with the disk
    await say(service, id, "And why?")
    await service.aclose()
    again = make(seeing.url)
    await again.conversations.open(id)
    await say(again, id, "And this?", lamp.with_name("sea.png"))
    bodies = [[json.dumps(one) for one in messages_of(seeing, at)] for at in range(3)]
    assert bodies[1][: len(bodies[0])] == bodies[0] and bodies[2][: len(bodies[1])] == bodies[1]
    assert [
        cached >= total_before for (_, cached), (total_before, _) in zip(seeing.reads[1:], seeing.reads, strict=False)
    ] == [True, True]


async def test_the_figures_are_the_servers_and_nothing_of_them_is_claimed_to_be_known_in_ids(
    make: Maker, seeing: SeeingServer, lamp: Path
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    for text, attached in (("Begin.", ()), ("What is this?", (lamp,)), ("And why?", ())):
        await say(service, id, text, *attached)
        await asyncio.wait_for(service.warm_up.ended(), 60)
    first, second, third = (node.figures for node in service.conversations.load(id).path() if node.figures)
    assert first.predicted_cached is not None  # the prompt before the image was followed
    assert (second.prompt_tokens, second.cached_tokens) == seeing.reads[1]
    assert second.prompt_tokens > 400 and second.predicted_cached is None and third.predicted_cached is None
    assert second.wasted_tokens in (0, 1) and third.wasted_tokens in (0, 1)
    assert third.cached_tokens == seeing.reads[2][1] > 400
    cache = service.servers.link(id).cache
    assert cache is not None and cache.prompts.works
    await cache.settled()
    state = cache.simulated.best.slots[0]
    assert state is None or (state.tokens.known, len(state.tokens)) == (0, len(seeing.model.held))
    assert service.tracker.warmth(id).heat is Heat.WARM
    assert {stretch.where for stretch in service.rail.stretches(id).values()} == {Where.SLOT}
    paths = {visit.path for visit in seeing.visits if b"image_url" in visit.body}
    assert paths == {"/v1/chat/completions"}  # neither the template nor the tokenizer is asked about an image


async def test_a_server_that_does_not_see_is_not_asked_and_nothing_is_stored(
    make: Maker, blind: SeeingServer, lamp: Path
) -> None:
    service = make(blind.url)
    id = await begun(service)
    with pytest.raises(ChatError) as error:
        await say(service, id, "What is this?", lamp)
    assert str(error.value) == (
        "Nothing was sent: blind-1b.gguf cannot see images. Choose a model that can (/model), or remove the image."
    )
    assert len(path_of(service, id)) == 1 and not blind.posts
    with pytest.raises(ChatError, match="cannot see images"):
        await say(service, id, "What is @./lamp.png ?")
    await say(service, id, "Then without it.")
    assert path_of(service, id)[-1] == (Role.ASSISTANT, State.DONE)


async def test_a_server_that_does_not_say_is_not_asked(make: Maker, server: ToyServer, lamp: Path) -> None:
    service = make(server.url)
    id = await begun(service)
    with pytest.raises(ChatError, match=r'does not say whether toy can see images\. If it can, set vision to "yes"'):
        await say(service, id, "What is this?", lamp)


async def test_the_setting_speaks_for_the_server(make: Maker, server: ToyServer, lamp: Path) -> None:
    service = make(server.url)
    service.core.settings = changed(service.settings, "server.vision", "yes")
    id = await begun(service)
    await say(service, id, "What is this?", lamp)
    assert path_of(service, id)[-1] == (Role.ASSISTANT, State.DONE)


async def test_the_setting_of_vision_counts_at_once(
    make: Maker, server: ToyServer, seeing: SeeingServer, lamp: Path
) -> None:
    for at, before, after in ((server.url, "auto", "yes"), (server.url, "no", "yes"), (seeing.url, "no", "auto")):
        service = make(at)
        service.take_settings(changed(service.settings, "server.vision", before))
        id = await begun(service)
        with pytest.raises(ChatError, match="Nothing was sent"):
            await say(service, id, "What is this?", lamp)
        service.take_settings(changed(service.settings, "server.vision", after))
        await say(service, id, "What is this?", lamp)
        assert path_of(service, id)[-1] == (Role.ASSISTANT, State.DONE)
        service.take_settings(changed(service.settings, "server.vision", "no"))
        with pytest.raises(ChatError, match="this conversation has an image"):
            await say(service, id, "And why?")


async def test_the_setting_of_vision_of_a_named_server_counts_at_once(
    make: Maker, server: ToyServer, seeing: SeeingServer, lamp: Path
) -> None:
    service = make(seeing.url)
    other = replace(service.settings.server, base_url=server.url)
    service.core.settings = replace(service.settings, profiles={"other": other})
    id = await begun(service)
    await service.chooser.use(id, "other")
    with pytest.raises(ChatError, match="does not say"):
        await say(service, id, "What is this?", lamp)
    service.take_settings(replace(service.settings, profiles={"other": replace(other, vision="yes")}))
    await say(service, id, "What is this?", lamp)
    assert path_of(service, id)[-1] == (Role.ASSISTANT, State.DONE)


async def test_a_conversation_with_an_image_stays_where_it_can_be_seen(
    make: Maker, seeing: SeeingServer, blind: SeeingServer, lamp: Path
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    await say(service, id, "What is this?", lamp)
    await service.chooser.use(id, blind.url)
    with pytest.raises(ChatError, match=r"this conversation has an image, and blind-1b\.gguf cannot see images"):
        await say(service, id, "And why?")
    question = service.conversations.load(id).path()[-2]
    with pytest.raises(ChatError, match="cannot see images"):
        await service.turns.regenerate(id, question.id)
    await service.warm_up.warm(id)
    link, conversation = service.servers.link(id), service.conversations.load(id)
    async with link.lane.chat(id):
        answer = await service.side_requests.settled("test", link, conversation, conversation.path()[:-1], Parameters())
    assert answer.state is State.ERROR and answer.note.kind == NoteKind.NO_IMAGES
    assert not any(b"image_url" in visit.body for visit in blind.visits)


async def test_an_edit_keeps_the_image_whose_chip_stays_and_leaves_the_other(
    make: Maker, seeing: SeeingServer, lamp: Path
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    await say(
        service, id, "Compare [image lamp.png 640x480] and [image sea.png 640x480]", lamp, lamp.with_name("sea.png")
    )
    question = service.conversations.load(id).path()[-2]
    await service.turns.edit(id, question.id, "Only [image sea.png 640x480]")
    await service.conversations.wait(id)
    content = messages_of(seeing)[-1]["content"]
    assert [part["type"] for part in content] == ["image_url", "text"]
    assert content[0] == messages_of(seeing, 0)[-1]["content"][1]


async def test_an_image_that_the_branch_has_is_not_sent_again(make: Maker, seeing: SeeingServer, lamp: Path) -> None:
    service = make(seeing.url)
    id = await begun(service)
    await say(service, id, "What is @./lamp.png ?")
    await say(service, id, "Again: what is @./lamp.png ?")
    assert isinstance(messages_of(seeing)[-1]["content"], str)
    with pytest.raises(ChatError, match=r"lamp\.png is in this conversation already"):
        await service.retrieval.attach(id, str(lamp))
    lamp.write_bytes(picture(text="changed"))
    await say(service, id, "And now @./lamp.png ?")
    assert len(messages_of(seeing)[-1]["content"]) == 2


async def test_an_image_waits_in_the_queue_and_goes_out_from_there(
    make: Maker,
    seeing: SeeingServer,
    lamp: Path,
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    block = await service.retrieval.attach(id, str(lamp))
    await service.turns.send(id, Question("First."))
    await service.turns.queue_up(id, Question("What is [image lamp.png 640x480] ?", (block,)))
    await service.conversations.wait(id)
    assert messages_of(seeing)[-1]["content"][0]["type"] == "image_url"


async def test_what_is_gone_from_the_store_is_told_and_not_sent(make: Maker, seeing: SeeingServer, lamp: Path) -> None:
    service = make(seeing.url)
    id = await begun(service)
    await say(service, id, "What is this?", lamp)
    with service.store.database.write() as connection:
        connection.execute("DELETE FROM image")
    before = len(seeing.reads)
    await say(service, id, "And why?")
    answer = service.conversations.load(id).path()[-1]
    assert answer.state is State.ERROR and len(seeing.reads) == before
    assert answer.note.is_a(Fault.IMAGE_GONE)


async def test_an_estimate_counts_an_image_as_at_most(make: Maker, seeing: SeeingServer) -> None:
    service = make(seeing.url)
    id = await begun(service)
    price = service.prices.estimate(id, "attach", text="words", images=2)
    assert price.tokens is not None and price.tokens >= 2 * MOST_TOKENS


async def test_nothing_of_an_image_is_said_to_be_too_long(make: Maker, lamp: Path) -> None:
    """A window of 1,000 tokens and an image of 408: the estimate of at most 1,400 refuses nothing."""
    async with SeeingServer(context_size=1000) as server:
        service = make(server.url)
        id = await begun(service)
        await say(service, id, "What is this?", lamp)
        assert path_of(service, id)[-1] == (Role.ASSISTANT, State.DONE)


async def test_an_image_of_another_conversation_is_kept_once(make: Maker, seeing: SeeingServer, lamp: Path) -> None:
    service = make(seeing.url)
    for _ in range(2):
        await say(service, await begun(service), "What is this?", lamp)
    assert service.store.database.row("SELECT count(*) FROM image") == (1,)


async def test_five_turns_with_two_images_waste_at_most_a_token_each(
    make: Maker,
    seeing: SeeingServer,
    lamp: Path,
) -> None:
    service = make(seeing.url)
    id = await begun(service)
    for text, attached in (
        ("Begin.", ()),
        ("What is this?", (lamp,)),
        ("And why?", ()),
        ("And this?", (lamp.with_name("sea.png"),)),
        ("Which of them?", ()),
    ):
        await say(service, id, text, *attached)
        await asyncio.wait_for(service.warm_up.ended(), 60)
    figures = [node.figures for node in service.conversations.load(id).path() if node.figures]
    assert [(one.prompt_tokens, one.cached_tokens) for one in figures] == seeing.reads
    assert [one.wasted_tokens for one in figures if one.wasted_tokens not in (0, 1)] == []
    evaluated = [one.evaluated_tokens or 0 for one in figures]
    assert min(evaluated[1], evaluated[3]) > 400 > 40 > max(evaluated[2], evaluated[4])
    bodies = [[json.dumps(one) for one in messages_of(seeing, at)] for at in range(5)]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(bodies))
