"""Images go into exports and come back out of them, and out of what other programs wrote."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from import_samples import SAMPLES, chatgpt_conversation, llama_messages, open_webui_conversation
from import_samples import llm as llm_database
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings
from kvchat.prompt.context import IMAGE
from kvchat.prompt.images import sent
from kvchat.prompt.message import Node, Role
from kvchat.store import Store
from kvchat.transfer.formats import TransferError
from kvchat.transfer.importing.thread import Loss
from lossless_reading import read_lossless
from picture_samples import bomb, picture
from standins.llamacpp_vision import SeeingServer

pytestmark = pytest.mark.slow

LAMP, SEA = picture(text="lamp"), picture(text="sea")


def data_url(data: bytes, type: str = "image/png") -> str:
    return f"data:{type};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
async def seeing() -> AsyncIterator[SeeingServer]:
    async with SeeingServer() as server:
        yield server


@pytest.fixture
async def asked(make: Callable[..., ChatService], seeing: SeeingServer, tmp_path: Path) -> tuple[ChatService, str]:
    """A conversation with two images."""
    service = make(seeing.url)
    id = (await service.new_conversations.create("Be brief.")).id
    for name, data in (("lamp.png", LAMP), ("sea.png", SEA)):
        (tmp_path / name).write_bytes(data)
        block = await service.retrieval.attach(id, str(tmp_path / name))
        await service.turns.send(id, Question(f"What is {name}?", (block,)))
        await service.conversations.wait(id)
    return service, id


@pytest.fixture
async def empty(tmp_path: Path) -> AsyncIterator[ChatService]:
    service = ChatService(Store.open(tmp_path / "other"), Settings())
    yield service
    await service.aclose()


def questions(service: ChatService) -> list[Node]:
    (row,) = service.store.conversations()
    return [node for node in service.store.tree(row.id).path(row.head) if node.role is Role.USER]


def images(service: ChatService) -> list[tuple[str, str]]:
    return [
        (block.source, block.text)
        for node in questions(service)
        for block in node.message.blocks
        if block.kind == IMAGE
    ]


async def test_lossless_json_carries_the_octets_and_gives_the_same_digests(
    asked: tuple[ChatService, str], empty: ChatService, tmp_path: Path
) -> None:
    service, id = asked
    path = await service.exports.write([id], "json", tmp_path / "out.json")
    report = await empty.imports.run([path])
    assert (report.made, report.losses, report.skipped) == (1, {}, {})
    before, after = service.store.tree(id), empty.store.tree(id)
    assert [(node.digest, node.wire) for node in after] == [(node.digest, node.wire) for node in before]
    assert empty.store.images.of(after) == service.store.images.of(before) and len(empty.store.images.of(after)) == 2
    again = await empty.imports.run([path])
    assert (again.made, again.grown, again.unchanged) == (0, 0, 1)


@pytest.mark.parametrize("change", ["octets", "name", "reference"])
async def test_a_changed_image_is_not_read(asked: tuple[ChatService, str], change: str) -> None:
    service, id = asked
    text = "".join(service.exports.text([id], "json"))
    document = json.loads(text)
    found = document["conversations"][0]
    name = next(iter(found["images"]))
    if change == "octets":
        found["images"][name] = data_url(SEA + b"x")
    elif change == "name":
        found["images"]["0" * 64] = found["images"].pop(name)
    else:
        node = next(node for node in found["nodes"] if node["blocks"] and node["role"] == "user")
        for block in node["blocks"]:
            block["ref"] = block["ref"].replace(name, "0" * 64)
    with pytest.raises(TransferError, match=r"does not fit its name|not the text the model would see"):
        read_lossless(json.dumps(document))


async def test_a_file_without_the_octets_is_read_and_says_so(
    asked: tuple[ChatService, str], empty: ChatService, tmp_path: Path
) -> None:
    service, id = asked
    document = json.loads("".join(service.exports.text([id], "json")))
    del document["conversations"][0]["images"]
    path = tmp_path / "without.json"
    path.write_text(json.dumps(document))
    report = await empty.imports.run([path])
    assert report.made == 1 and report.losses == {Loss.IMAGES: 2}


async def test_html_shows_the_images_and_fetches_nothing(asked: tuple[ChatService, str]) -> None:
    service, id = asked
    page = "".join(service.exports.text([id], "html"))
    found = re.findall(r'<img src="(data:image/png;base64,[^"]+)" alt="([^"]+)"', page)
    assert [alt for _, alt in found] == ["lamp.png 640x480", "sea.png 640x480"]
    urls = {url.decode() for url in service.store.images.of(service.store.tree(id)).values()}
    assert {url for url, _ in found} == urls and "img-src data:" in page and "http" not in page.split("<body>")[1]


async def test_markdown_shows_the_images_whose_octets_stand_at_its_end(asked: tuple[ChatService, str]) -> None:
    service, id = asked
    text = "".join(service.exports.text([id], "md"))
    parser = MarkdownIt("commonmark")
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    shown = [child for token in parser.parse(text) for child in token.children or () if child.type == "image"]
    urls = {url.decode() for url in service.store.images.of(service.store.tree(id)).values()}
    assert {image.attrs["src"] for image in shown} == urls
    assert [image.content for image in shown] == ["lamp.png 640x480", "sea.png 640x480"]
    assert "base64" not in text[: text.index("[image-", text.rindex("sea.png?"))]


async def test_jsonl_holds_what_the_server_got(asked: tuple[ChatService, str], seeing: SeeingServer) -> None:
    service, id = asked
    (line,) = "".join(service.exports.text([id], "jsonl")).splitlines()
    body = json.loads([visit for visit in seeing.chats if visit.path == "/v1/chat/completions"][-1].body)
    assert json.loads(line)["messages"][: len(body["messages"])] == body["messages"]


# -- of other programs


def chatgpt(folder: Path, data: bytes = LAMP) -> Path:
    conversation = chatgpt_conversation(0, 3)
    text = json.dumps([conversation]).replace("file-service://x", "file-service://file-AbC123xyz")
    path = folder / "chatgpt.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", text)
        archive.writestr("file-AbC123xyz-lamp.png", data)
        archive.writestr("chat.html", "<html></html>")
    return path


def unpacked(folder: Path) -> Path:
    with zipfile.ZipFile(chatgpt(folder)) as archive:
        archive.extractall(folder / "export")
    return folder / "export" / "conversations.json"


def open_webui(folder: Path) -> Path:
    conversation = open_webui_conversation(0, 1)
    messages = conversation["chat"]["history"]["messages"]  # type: ignore[index]
    first = next(one for one in messages.values() if one["role"] == "user")
    first["files"] = [{"type": "image", "url": data_url(LAMP), "name": "lamp.png"}]
    path = folder / "webui.json"
    path.write_text(json.dumps([conversation]))
    return path


def llama_ui(folder: Path) -> Path:
    messages = llama_messages(0, 1)
    first = next(one for one in messages if one["role"] == "user")
    first["extra"] = [{"type": "IMAGE", "name": "lamp.png", "base64Url": data_url(LAMP)}]
    path = folder / "llama.json"
    path.write_text(
        json.dumps([{"conv": {"id": "c", "name": "Night", "currNode": messages[-1]["id"]}, "messages": messages}])
    )
    return path


def oterm(folder: Path) -> Path:
    path = folder / "store.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE chat(id INTEGER PRIMARY KEY, name TEXT, model TEXT, system TEXT)")
        db.execute("CREATE TABLE message(id INTEGER PRIMARY KEY, chat_id INTEGER, role TEXT, text TEXT, images TEXT)")
        db.execute("INSERT INTO chat VALUES (1, 'Night', 'llava', '')")
        db.execute(
            "INSERT INTO message VALUES (1, 1, 'user', 'What?', ?)", (json.dumps([base64.b64encode(LAMP).decode()]),)
        )
        db.execute("INSERT INTO message VALUES (2, 1, 'assistant', 'A lamp.', '[]')")
    return path


def llm(folder: Path) -> Path:
    path = llm_database(folder, 2)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE attachments SET path = NULL, content = ?", (LAMP,))
        db.execute("DELETE FROM threads")
    return path


def aichat(folder: Path) -> Path:
    path = folder / "night.yaml"
    path.write_text(
        f"model: x\nmessages:\n- role: user\n  content:\n  - type: text\n    text: What?\n"
        f"  - type: image_url\n    image_url:\n      url: {data_url(LAMP)}\n"
        "- role: assistant\n  content: A lamp.\ndata_urls: {}\n"
    )
    return path


@pytest.mark.parametrize(
    "sample", [chatgpt, unpacked, open_webui, llama_ui, oterm, llm, aichat], ids=lambda one: one.__name__
)
async def test_an_image_comes_with_its_message_and_a_second_import_changes_nothing(
    empty: ChatService, tmp_path: Path, sample: Callable[[Path], Path]
) -> None:
    path = sample(tmp_path)
    report = await empty.imports.run([path], dry_run=True)
    assert report.made == 1 and Loss.IMAGES not in report.losses
    assert empty.store.database.row("SELECT count(*) FROM image") == (0,)
    report = await empty.imports.run([path])
    assert (report.made, report.skipped) == (1, {}) and Loss.IMAGES not in report.losses
    ((name, size),) = images(empty)
    assert size == "640x480" and name in ("lamp.png", "file-AbC123xyz", "image")
    question = next(node for node in questions(empty) if b"image_url" in node.wire)
    (wire,) = sent((question.wire,), empty.store.images.of([question]).__getitem__)
    assert json.loads(wire)["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert "not imported" not in question.text
    tree = empty.store.tree(empty.store.conversations()[0].id)
    again = await empty.imports.run([path])
    assert (again.made, again.grown, again.unchanged, again.losses) == (0, 0, 1, {})
    after = empty.store.tree(empty.store.conversations()[0].id)
    assert [node.digest for node in after] == [node.digest for node in tree]


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("chatgpt", 6),
        ("open_webui", 6),
        ("llama_ui", 6),
        ("llama_trace", 6),
        ("oterm", 6),
        ("llm", 3),
        ("claude", 0),
        ("lm_studio", 0),
        ("aichat", 0),
    ],
)
async def test_what_came_in_goes_out_as_lossless_json_and_comes_back_the_same(
    empty: ChatService, tmp_path: Path, name: str, images: int
) -> None:
    path = SAMPLES[name](tmp_path, 6, broken=2, image=lambda c: picture(text=f"night {c}"))
    report = await empty.imports.run([path])
    assert report.made >= 6 and sum(report.skipped.values()) >= 2
    assert len(stored_images(empty)) == images
    exported = tmp_path / "all.json"
    exported.write_text("".join(empty.exports.text([one.id for one in empty.store.conversations()], "json")))
    other = ChatService(Store.open(tmp_path / "second"), Settings())
    try:
        again = await other.imports.run([exported])
        assert (again.made, again.skipped, again.losses) == (report.made, {}, {})
        assert stored_images(other) == stored_images(empty)
        for row in empty.store.conversations():
            assert {node.id: (node.digest, node.wire) for node in other.store.tree(row.id)} == {
                node.id: (node.digest, node.wire) for node in empty.store.tree(row.id)
            }
    finally:
        await other.aclose()


def stored_images(service: ChatService) -> list[object]:
    return sorted(service.store.database.rows("SELECT sha256, url FROM image"))


@pytest.mark.parametrize("data", [b"no picture at all", bomb(), LAMP[:500]], ids=["none", "bomb", "cut"])
async def test_what_is_no_picture_costs_that_picture_only(empty: ChatService, tmp_path: Path, data: bytes) -> None:
    report = await empty.imports.run([chatgpt(tmp_path, data)])
    assert report.made == 1 and report.losses[Loss.IMAGES] == 1
    assert images(empty) == [] and any("[image not imported: file-AbC123xyz]" in node.text for node in questions(empty))


async def test_an_export_cannot_name_another_file_of_the_folder(empty: ChatService, tmp_path: Path) -> None:
    (tmp_path / "passport.png").write_bytes(SEA)
    conversation = json.dumps([chatgpt_conversation(0, 3)]).replace("file-service://x", "file-service://passport")
    path = tmp_path / "conversations.json"
    path.write_text(conversation)
    report = await empty.imports.run([path])
    assert report.losses[Loss.IMAGES] == 1 and images(empty) == []


async def test_an_undone_import_takes_its_images_along_when_the_trash_is_emptied(
    empty: ChatService,
    tmp_path: Path,
) -> None:
    await empty.imports.run([chatgpt(tmp_path)])
    assert empty.store.database.row("SELECT count(*) FROM image") == (1,)
    await empty.imports.undo()
    empty.store.purge_trash(4e9)
    assert empty.store.database.row("SELECT count(*) FROM image") == (0,)
