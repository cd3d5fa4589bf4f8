"""`kvchat trunk`, and conversations that begin with one."""

from __future__ import annotations

import json

import pytest

from toyserver import ToyServer, reply


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "lamp.md").write_text("The lamp is lit at dusk.\n")
    (folder / "fog.md").write_text("The bell rings in fog.\n")
    return folder


async def test_a_trunk_is_made_listed_asked_and_removed(run, notes):
    async with ToyServer("openai") as server:
        at = ("--base-url", server.url)
        made = await run(*at, "trunk", "add", "light", str(notes))
        assert made.status == 0 and made.out.startswith("light: 2 files, "), made
        assert made.out.rstrip().endswith("To begin with it: kvchat --trunk light")
        assert "this server saves no states" in made.out

        bodies = []
        for question in ("When is it lit?", "When does it ring?"):
            done = await run(*at, "ask", "--trunk", "light", question)
            assert (done.status, done.err) == (0, "")
            bodies.append(server.chats[-1].json)
        roots = [body["messages"][0] for body in bodies]
        assert roots[0] == roots[1] and roots[0]["role"] == "system", "the same bytes in front of both"
        assert "The lamp is lit at dusk." in roots[0]["content"] and "[2] notes/lamp.md" in roots[0]["content"]
        assert all(len(body["messages"]) == 2 for body in bodies)

        id = json.loads((await run("list", "--json")).out)[0]["id"]
        shown = (await run("show", id)).out
        assert "The bell rings in fog." in shown and "\\[2\\] notes/lamp.md" in shown, "the system prompt as it is sent"
        exported = notes.parent / "one.html"
        assert (await run("export", id, "-o", str(exported))).status == 0
        assert "The bell rings in fog." in exported.read_text()

        (notes / "fog.md").write_text("The horn sounds in fog.\n")
        told = await run(*at, "ask", "--trunk", "light", "And now?")
        assert told.err == (
            "kvchat: notes/fog.md has changed since the trunk light was made. "
            "To make it again: kvchat trunk add light PATH\n"
        )
        assert server.chats[-1].json["messages"][0] == roots[0]

        listed = json.loads((await run("trunk", "list", "--json")).out)
        assert [(one["name"], one["changed"], len(one["files"])) for one in listed] == [("light", ["notes/fog.md"], 2)]
        assert "notes/fog.md" in (await run("trunk", "list")).out
        assert (await run(*at, "trunk", "warm", "light")).out.startswith("light: 2 files, ")
        assert (await run("trunk", "remove", "light")).status == 0
    assert (await run("trunk", "list")).out == (
        "There are no trunks yet. To make one of files: kvchat trunk add NAME PATH\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("trunk", "warm", "lihgt"), 1, "There is no trunk lihgt. To make one: kvchat trunk add NAME PATH."),
        (("trunk", "add", "a b", "."), 1, "a b cannot be the name of a trunk: use letters, digits, - and _."),
        (("trunk", "add", "light", "nowhere.md"), 1, "There is no file nowhere.md in "),
        (("--incognito", "trunk", "list"), 2, "An incognito run has no trunks; leave out --incognito."),
        (("--incognito", "ask", "--trunk", "light", "hi"), 1, "An incognito run has no trunks; leave out --incognito."),
        (("ask", "--trunk", "light", "-c", "hi"), 2, "not allowed with argument"),
        (("ask", "--trunk", "light", "--continue-answer"), 2, "Leave out --trunk."),
    ],
)
async def test_what_cannot_be_done_is_said_in_one_sentence(run, notes, monkeypatch, words, code, said):
    monkeypatch.chdir(notes)
    async with ToyServer() as server:
        done = await run("--base-url", server.url, *words)
    assert done.status == code and said in done.err and "Traceback" not in done.err
    assert server.posts == 0


async def test_a_template_that_leaves_the_text_out_costs_no_trunk(run, notes):
    async with ToyServer() as server:
        server.on("/apply-template", reply(200, {"prompt": "always the same"}))
        server.on("/tokenize", reply(200, {"tokens": [1, 2, 3]}))
        made = await run("--base-url", server.url, "trunk", "add", "light", str(notes))
    assert (made.status, "Traceback" in made.err) == (0, False), made
    assert made.out.startswith("light: 2 files"), made.out
