"""`kvchat ask -a FILE` with an image: it goes out where the model sees; else one sentence, and nothing is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from picture_samples import bomb, picture
from standins.llamacpp_vision import SeeingServer


@pytest.fixture
def lamp(tmp_path: Path) -> Path:
    path = tmp_path / "lamp.png"
    path.write_bytes(picture())
    return path


async def test_an_image_goes_out_and_comes_back_in_exports(run, lamp: Path) -> None:
    async with SeeingServer() as server:
        done = await run("--base-url", server.url, "ask", "--no-stdin", "-a", lamp, "What is this?")
        assert (done.status, done.out.strip(), done.err) == (0, "Fine thanks", "")
        content = json.loads(server.chats[-1].body)["messages"][-1]["content"]
        assert [part["type"] for part in content] == ["image_url", "text"]
        await run("--base-url", server.url, "ask", "--no-stdin", "-c", "And why?")
        assert server.reads[1][1] >= server.reads[0][0]
    out = (await run("export", "--all", "-f", "json")).out
    assert len(json.loads(out)["conversations"][0]["images"]) == 1
    assert "![lamp.png 640x480][image-" in (await run("export", "--all", "-f", "md")).out


async def test_a_model_that_does_not_see_is_told_of_before_anything_is_sent(run, lamp: Path) -> None:
    async with SeeingServer(sees=False, model="blind-1b") as server:
        done = await run("--base-url", server.url, "ask", "--no-stdin", "-a", lamp, "What is this?")
        assert (done.status, done.out) == (1, "") and not server.posts
        assert done.err == (
            "kvchat: Nothing was sent: blind-1b cannot see images. Name a model that can (-m), or "
            "leave the image out.\n"
        )
    assert json.loads((await run("list", "--json")).out) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bomb(), "it has too many pixels (60,000 x 60,000); make it smaller first."),
        (picture()[:900], "it is a broken image."),
        (b"no image\n", "it is named like an image and is none."),
        (b"", "it is named like an image and is none."),
    ],
    ids=["bomb", "cut", "text", "empty"],
)
async def test_what_is_no_picture_is_told_in_a_sentence(run, tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "odd.png"
    path.write_bytes(data)
    async with SeeingServer() as server:
        done = await run("--base-url", server.url, "ask", "--no-stdin", "-a", path, "What is this?")
        assert (done.status, done.out) == (1, "") and not server.posts
        assert done.err == f"kvchat: odd.png cannot be attached: {said}\n"
