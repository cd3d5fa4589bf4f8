"""`kvchat ask --persona`: a new conversation with a persona, in one line."""

from __future__ import annotations

import pytest

from toyserver import ToyServer, tokens


@pytest.fixture(autouse=True)
def personas(own_folders):
    folder = own_folders / "config" / "personas"
    folder.mkdir(parents=True)
    (folder / "german.toml").write_text(
        'system_prompt = "You translate."\nfirst_message = "Into German: {{text}}"\n[parameters]\ntemperature = 0.25\n'
    )
    (folder / "there.toml").write_text('system_prompt = "x"\nprofile = "work"\n')
    return folder


async def test_a_persona_begins_the_conversation_and_its_first_message(run):
    async with ToyServer() as server:
        server.on_chat(tokens("Hallo"))
        done = await run("--base-url", server.url, "ask", "--persona", "German", "hello")
        assert (done.status, done.out) == (0, "Hallo\n")
        body = server.chats[0].json
        assert body["messages"][0]["content"].startswith("You translate.")
        assert body["messages"][1]["content"].endswith("Into German: hello")
        assert body["temperature"] == 0.25
        server.on_chat(tokens("Ja"))
        assert (await run("--base-url", server.url, "ask", "-c", "yes")).status == 0
        later = server.chats[1].json
    assert later["messages"][:2] == body["messages"], "the persona stays as it was begun with"
    assert later["messages"][-1]["content"].endswith("yes") and later["temperature"] == 0.25


async def test_a_persona_goes_to_the_server_of_its_profile(run, own_folders):
    async with ToyServer() as server, ToyServer() as other:
        (own_folders / "config" / "config.toml").write_text(
            f'[server]\nbase_url = "{other.url}"\n[profiles.work]\nbase_url = "{server.url}"\n'
        )
        server.on_chat(tokens("Here"))
        assert (await run("ask", "--persona", "there", "hello")).out == "Here\n"
        assert (len(server.chats), len(other.chats)) == (1, 0)


async def test_what_an_option_gives_comes_before_the_persona(run, personas):
    (personas / "german.toml").write_text('system_prompt = "You translate."\nmodel = "nosuch"\n')
    async with ToyServer() as server:
        at = ("--base-url", server.url, "ask", "--persona", "german", "hello")
        told = (await run(*at)).err
        assert f"The persona german asks for the model nosuch, which {server.url} does not have. It has: toy." in told
        assert server.chats == []
        assert (await run("--model", "toy", "--system", "Be a poet.", *at)).status == 0
        assert server.chats[0].json["messages"][0]["content"].startswith("Be a poet.")


async def test_what_is_not_used_of_a_persona_is_told_and_the_question_is_sent(run, personas):
    (personas / "german.toml").write_text('system_prompt = "You translate."\ncolour = "red"\n')
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "--persona", "german", "hello")
        assert len(server.chats) == 1
    assert (done.status, done.out) == (0, "Hello\n")
    assert done.err.startswith("kvchat: german.toml:2:1: unknown setting colour; a persona has about, system_prompt,")


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("--persona", "germn", "hi"), 1, "kvchat: There is no persona germn; did you mean german?"),
        (
            ("--persona", "there", "hi"),
            1,
            "kvchat: The persona there asks for the profile work, which the settings do not",
        ),
        (("--persona", "german", "-c", "hi"), 2, "not allowed with argument"),
    ],
)
async def test_what_cannot_be_is_told_and_nothing_is_sent(run, arguments, status, sentence):
    async with ToyServer() as server:
        done = await run("ask", *arguments, env={"KVCHAT_DEFAULT_PROFILE": ""})
        assert (done.status, done.out) == (status, "") and sentence in done.err
        assert server.chats == []


async def test_the_check_names_what_is_wrong_in_personas_and_snippets(run, personas):
    (personas / "bad.toml").write_text("model = x\n")
    snippets = personas.parent / "snippets"
    snippets.mkdir()
    (snippets / "help.toml").write_text('text = "x"\n')
    done = await run("config", "check")
    assert done.status == 1
    assert [line.split(" ")[0] for line in done.out.splitlines()] == ["bad.toml:1:9:", "help.toml:"]
    assert "/help is a command; give the snippet another name" in done.out
