"""A server, a way to one, a model or a settings file that was named and cannot be used: nothing is sent, anywhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toyserver import ToyServer

Run = Callable[..., Awaitable[Any]]


def write(home: Path, text: str) -> Path:
    file = home / "config" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize("given", ["{0}\r", "{0}\n", " {0} ", "\t{0}\r\n"])
@pytest.mark.parametrize("by", ["KVCHAT_BASE_URL", "--base-url", "file"])
async def test_white_space_around_an_address_is_no_part_of_it(run: Run, own_folders: Path, given: str, by: str) -> None:
    async with ToyServer() as meant, ToyServer() as other:
        address = given.format(meant.url)
        file = meant.url if by == "file" else other.url
        write(own_folders, f'[server]\nbase_url = "  {file}\\r\\n"\n')
        options = (by, address) if by == "--base-url" else ()
        done = await run(*options, "ask", "hi", env={by: address} if by == "KVCHAT_BASE_URL" else {})
        assert (done.status, done.err, other.posts) == (0, "", 0) and meant.posts


@pytest.mark.parametrize(
    ("text", "env", "says"),
    [
        ('[server]\nbase_url = "htp://127.0.0.1:1"', {}, "config.toml:2:1: server.base_url must be an address"),
        ("[server]\nbase_url = 8080", {}, "server.base_url must be a text"),
        ('[server]\nbase-url = "{0}"', {}, "unknown setting server.base-url; did you mean server.base_url?"),
        ('[sever]\nbase_url = "{0}"', {}, "unknown section [sever]; did you mean [server]?"),
        ('[backend]\nbase_url = "{0}"', {}, "unknown section [backend]"),
        ('base_url = "{0}"', {}, "unknown setting base_url; base_url belongs under [server]"),
        ('base_ulr = "{0}"', {}, "unknown setting base_ulr"),
        ('profiles = "{0}"', {}, "profiles must be a section"),
        ('[server]\nbase_url = "{0}"\nproxy = "127.0.0.1:1"', {}, "server.proxy must be an address"),
        ('[server]\nbase_url = "{0}"\nprxy = "http://127.0.0.1:1"', {}, "unknown setting server.prxy"),
        ('[server]\nbase_url = "{0}"\nlocality = "remote"', {}, "server.locality must be one of"),
        ('[server]\nbase_url = "{0}"\nheaders = {{"a b" = "x"}}', {}, "is no name that a header can have"),
        ('[server\nbase_url = "{0}"', {}, "config.toml:1:8: not valid TOML"),
        ("theme = day", {}, "config.toml:1:9: not valid TOML"),
        ('default_profile = "wrok"\n[profiles.work]\nbase_url = "{0}"', {}, "names no profile that can be used: wrok"),
        ('default_profile = "work"\n[profiles.work]\nbase_url = "{0}"\nproxy = "x"', {}, "profiles.work.proxy"),
        ('default_profile = "work"\n[profiles.work]\nbase_url = "{0}"\nmodle = "x"', {}, "profiles.work.modle"),
        ("[engine]\nmodel = 4", {}, "engine.model must be a text"),
        ('[server]\nbase_url = "{0}"', {"KVCHAT_BASE_URL": "localhost:1"}, "KVCHAT_BASE_URL must be an address"),
        ('[server]\nbase_url = "{0}"', {"KVCHAT_SERVER_PROXY": "x"}, "KVCHAT_SERVER_PROXY must be an address"),
        ('[server]\nbase_url = "{0}"', {"KVCHAT_SERVER_KIND": "llama"}, "KVCHAT_SERVER_KIND must be"),
        ('[server]\nbase_url = "{0}"', {"KVCHAT_BASEURL": "http://127.0.0.1:1"}, "did you mean KVCHAT_BASE_URL?"),
        ('[server]\nbase_url = "{0}"', {"KVCHAT_PROFILE": "work"}, "there is no variable KVCHAT_PROFILE"),
        ('[profiles.work]\nbase_url = "{0}"', {"KVCHAT_DEFAULT_PROFILE": "wrok"}, "no profile that can be used: wrok"),
    ],
)
async def test_what_names_a_server_and_cannot_be_used_ends_the_question(
    run: Run, own_folders: Path, text: str, env: dict[str, str], says: str
) -> None:
    async with ToyServer() as server:
        write(own_folders, text.format(server.url))
        done = await run("ask", "A private question", env=env)
        assert (done.status, done.out, server.visits) == (2, "", [])
        assert says in done.err and done.err.startswith("kvchat: ") and done.err.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--base-url", "htp://127.0.0.1:1"),
        ("--profile", "typo"),
        ("--profile", "work"),
        ("--config", "typo.toml"),
        ("--model", "typo.gguf"),
        ("--api-key-env", "sk-1 2"),
    ],
)
async def test_an_option_that_cannot_be_used_ends_the_question(
    run: Run, own_folders: Path, options: tuple[str, ...]
) -> None:
    async with ToyServer() as server:
        write(own_folders, f'[server]\nbase_url = "{server.url}"\n[profiles.work]\nbase_url = "x"\n')
        done = await run(*options, "ask", "A private question")
        assert (done.status, done.out, server.visits) == (2, "", [])
        assert done.err.startswith("kvchat: ") and done.err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    ['[server]\nbase_url = "htp://x"\napi_key_env = "OWN"', 'default_profile = "gone"', "[server]\nprxy = 'x'"],
)
async def test_a_server_that_is_given_needs_nothing_that_is_wrong_in_the_settings(
    run: Run, own_folders: Path, text: str
) -> None:
    write(own_folders, text)
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "hi", env={"OWN": "sk-1"})
        if "prxy" in text:  # it may have been meant for this very server
            assert (done.status, server.visits) == (2, [])
        else:
            assert (done.status, done.err) == (0, "")
            assert {visit.headers.get("authorization") for visit in server.visits} == {None}


@pytest.mark.parametrize("text", ["theme = 3", "[server]\ntimeout = -1", "fancy = true", "[keys]\nexport = 4"])
async def test_a_matter_of_taste_keeps_its_default(run: Run, own_folders: Path, text: str) -> None:
    async with ToyServer() as server:
        write(own_folders, f"{text}\n")
        done = await run("--base-url", server.url, "ask", "hi")
        assert done.status == 0 and "config.toml:" in done.err


async def test_what_sends_nothing_works_but_not_without_settings_that_can_be_read(run: Run, own_folders: Path) -> None:
    write(own_folders, '[server]\nbase_url = "htp://x"\n')
    done = await run("list")
    assert done.status == 0 and "server.base_url" in done.err
    write(own_folders, "theme = day\n")
    done = await run("list")
    assert done.status == 2 and "not valid TOML" in done.err
    assert (await run("config", "check")).status == 1, "it tells what is wrong"
    assert (await run("config", "path")).status == 0


async def test_a_settings_file_that_a_variable_names_may_still_be_made_but_its_folder_may_not(
    run: Run, own_folders: Path
) -> None:
    async with ToyServer() as server:
        for folder, status in ((own_folders, 0), (own_folders / "typo", 2)):
            done = await run("--base-url", server.url, "ask", "hi", env={"KVCHAT_CONFIG": f" {folder}/new.toml\r"})
            assert done.status == status, done.err
    assert (
        done.err == f"kvchat: There is no {own_folders}/typo, which KVCHAT_CONFIG needs. Correct it, or leave it out.\n"
    )


async def test_a_model_that_the_server_does_not_have_gives_no_other_models_answer(run: Run, own_folders: Path) -> None:
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "-m", "typo", "ask", "hi")
        assert (done.status, done.out, server.posts) == (2, "", 0) and "has no model typo" in done.err


@pytest.mark.parametrize("by", ["KVCHAT_ENGINE_MODEL", "file"])
async def test_a_model_file_that_is_gone_is_not_replaced_by_another(run: Run, own_folders: Path, by: str) -> None:
    write(own_folders, '[engine]\nmodel = "/nowhere/x.gguf"\n' if by == "file" else "")
    done = await run("ask", "hi", env={} if by == "file" else {by: "/nowhere/x.gguf"})
    assert (done.status, done.out) == (2, "")
    assert done.err == "kvchat: There is no file /nowhere/x.gguf (engine.model).\n"


@pytest.mark.parametrize("text", ["proxy = 'x'", "modle = 'x'"])
async def test_a_conversation_on_a_server_that_cannot_be_used_is_not_continued_past_that(
    run: Run, own_folders: Path, text: str
) -> None:
    async with ToyServer() as server:
        profile = f'default_profile = "work"\n[profiles.work]\nbase_url = "{server.url}"\n'
        write(own_folders, profile)
        assert (await run("ask", "hi")).status == 0
        write(own_folders, profile.replace("default_profile", "theme = 'auto' #") + text)
        server.visits.clear()
        done = await run("ask", "-c", "and now?")
        assert (done.status, done.out, server.visits) == (2, "", [])


async def test_the_doctor_of_a_profile_does_not_go_past_its_proxy(run: Run, own_folders: Path) -> None:
    async with ToyServer() as server:
        write(own_folders, f'[profiles.work]\nbase_url = "{server.url}"\nproxy = "x"\n')
        done = await run("doctor", "work")
        assert (done.status, server.visits) == (2, [])


async def test_a_folder_without_a_model_answers_nothing(run: Run, own_folders: Path) -> None:
    done = await run("--model", f"{own_folders}", "ask", "hi")
    assert (done.status, done.out) == (2, "")
    assert done.err == f"kvchat: {own_folders} holds no GGUF model to chat with (engine.model).\n"
