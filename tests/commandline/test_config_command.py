"""`kvchat config`: where the settings are, what is in force, what is wrong."""

import json
from pathlib import Path

import pytest

from toyserver import ToyServer


async def test_every_mistake_is_told_with_its_line(run, own_folders):
    file = own_folders / "config" / "config.toml"
    (file.parent / "themes").mkdir(parents=True)
    file.write_text('theme = "kvchat-nigth"\n[keys]\nnew = "ctrl+h"\n[engine]\nslots = "two"\n')
    (file.parent / "themes" / "mine.toml").write_text("name = \n")
    done = await run("config", "check")
    assert done.status == 1
    lines = done.out.splitlines()
    assert any(line.startswith("config.toml:1:") and "kvchat-night" in line for line in lines)
    assert any(line.startswith("config.toml:3:") and "backspace" in line for line in lines)
    assert any(line.startswith("config.toml:5:") and "engine.slots" in line for line in lines)
    assert any(line.startswith("mine.toml:1:") for line in lines)


async def test_without_mistakes_it_says_so(run, own_folders):
    done = await run("config", "check")
    assert (done.status, "defaults" in done.out) == (0, True)
    assert (await run("config", "path")).out.strip() == str(own_folders / "config" / "config.toml")
    assert "time_stamp_minutes" in (await run("config", "show", "--theme", "kvchat-day")).out


async def test_a_model_that_the_server_does_not_have_is_refused_before_anything_is_sent(run):
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "--model", "nosuch", "ask", "hello")
        assert server.posts == 0
    assert done.status == 2
    assert "has no model nosuch" in done.err
    assert "toy" in done.err


# -- one setting


@pytest.fixture
def file(own_folders: Path) -> Path:
    path = own_folders / "config" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# mine\nmouse = true  # the cat's\n")
    return path


async def test_a_setting_is_changed_and_read_and_taken_out(run, file):
    assert (await run("config", "get", "mouse")).out == "true\n"
    done = await run("config", "set", "mouse", "off")
    assert (done.status, done.out) == (0, "mouse = false  (config.toml:2)\n")
    assert file.read_text() == "# mine\nmouse = false  # the cat's\n"
    await run("config", "set", "profiles.work.base_url", "http://127.0.0.1:9")
    await run("config", "set", "parameters.stop", '["a", "b"]')
    await run("config", "set", "keys.export", "f11")
    told = json.loads((await run("config", "get", "parameters.stop", "--json")).out)
    assert (told["value"], told["default"]) == ('["a", "b"]', "[]") and told["from"].startswith("config.toml:")
    assert (await run("config", "unset", "mouse")).out == "mouse = true  (default)\n"
    assert (await run("config", "check")).status == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("get", "theem"), "Unknown setting theem; did you mean theme?"),
        (("set", "base_url", "x"), "Unknown setting base_url; base_url belongs under [server]."),
        (("get", "engine"), "engine is a section: engine.model, engine.context_size, engine.slots, engine.threads …."),
        (("set", "engine.slots", "many"), "engine.slots must be a whole number."),
        (("set", "theme", "kvchat-nigth"), "There is no theme kvchat-nigth; did you mean kvchat-night?"),
        (
            ("set", "server.locality", "clud"),
            'server.locality must be one of "auto", "local", "cloud"; did you mean cloud?',
        ),
        (("set", "memory.profile", "work"), "There is no profile work; the settings have none."),
        (("set", "keys.exprt", "f9"), "keys.exprt: there is no such action; did you mean export?"),
        (
            ("set", "keys.export", "ctrl+h"),
            "keys.export: ctrl+h cannot be used: terminals send it for the backspace key.",
        ),
        (("set", "server.api_key", "sk-1"), "kvchat keeps no keys in files: remove server.api_key, "),
        (
            ("set", "server.headers", "{Host = 'x'}"),
            "server.headers.Host cannot be set: kvchat sends this header itself.",
        ),
    ],
)
async def test_what_cannot_be_is_one_sentence_and_the_file_stays(run, file, arguments, sentence):
    before = file.read_text()
    done = await run("config", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"kvchat: {sentence}") and len(done.err.splitlines()) == 1
    assert file.read_text() == before


async def test_what_the_environment_gives_is_said(run, file):
    environment = {"KVCHAT_MOUSE": "false"}
    told = json.loads((await run("config", "get", "mouse", "--json", env=environment)).out)
    assert (told["value"], told["from"]) == ("false", "KVCHAT_MOUSE")
    done = await run("config", "set", "mouse", "true", env=environment)
    assert done.out == "mouse is saved; KVCHAT_MOUSE gives it in this run, and overrides the file.\n"


async def test_secrets_are_not_printed(run, file):
    file.write_text('[server]\nheaders = {X-Team = "hush"}\nbase_url = "http://me:hush@127.0.0.1:9"\n')
    for name in ("server.headers", "server.base_url"):
        for arguments in ((), ("--json",)):
            assert "hush" not in (await run("config", "get", name, *arguments)).out


# -- the whole file


@pytest.fixture
def editor(own_folders: Path, monkeypatch: pytest.MonkeyPatch):
    """An editor that writes these texts, one each time it is opened."""

    def writes(*texts: str) -> None:
        for number, text in enumerate(texts):
            (own_folders / f"text{number}").write_text(text)
        script = own_folders / "editor"
        script.write_text(
            f'#!/bin/sh\ncd {own_folders}; n=$(cat n 2>/dev/null || echo 0); cp text$n "$1"\necho $((n + 1)) > n\n'
        )
        script.chmod(0o755)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", str(script))

    return writes


async def test_the_file_is_edited_and_checked(run, file, editor):
    editor('theme = "kvchat-day"\n')
    done = await run("config", "edit")
    assert (done.status, file.read_text()) == (0, 'theme = "kvchat-day"\n')


async def test_a_file_with_a_mistake_is_told_with_its_place_and_the_old_one_stays(run, file, editor):
    before = file.read_text()
    editor("mouse = yes\n")
    done = await run("config", "edit")
    assert done.status == 1 and file.read_text() == before
    assert done.err.splitlines()[0].startswith("kvchat: config.toml:1:9: not valid TOML")
    assert done.err.splitlines()[-1] == f"kvchat: {file} is as it was."


async def test_a_mistake_is_edited_again_where_there_is_a_terminal(run, file, editor):
    editor("mouse = yes\n", "mouse = false\n")
    done = await run("config", "edit", terminal=True, stdin=b"\n")
    assert (done.status, file.read_text()) == (0, "mouse = false\n")
    assert "Enter edits again, k keeps the old file, s saves it as it is" in done.out


async def test_what_another_kvchat_saved_meanwhile_is_not_undone(run, file, editor, own_folders):
    editor("mouse = false\n")
    script = own_folders / "editor"
    script.write_text(script.read_text() + f"echo 'notify = false' > {file}\n")
    done = await run("config", "edit")
    assert (done.status, file.read_text()) == (1, "notify = false\n")
    assert file.with_name("config.toml.edited").read_text() == "mouse = false\n"
    assert f"what you wrote is in {file}.edited" in done.err


async def test_an_editor_that_fails_changes_nothing(run, file, monkeypatch):
    before = file.read_text()
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    done = await run("config", "edit")
    assert done.status == 1 and "Cannot run the editor" in done.err and file.read_text() == before
