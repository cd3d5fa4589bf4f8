"""The API key: from a variable, the keyring or a command, and nowhere else."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from types import ModuleType

import pytest

from kvchat.config import ConfigError, ServerSettings, Settings, api_key, secret

PYTHON = shlex.quote(sys.executable)


def command(code: str) -> ServerSettings:
    return ServerSettings(api_key_command=f"{PYTHON} -c {shlex.quote(code)}")


def test_there_is_no_key_where_none_is_asked_for() -> None:
    assert api_key(ServerSettings(), {"KVCHAT_API_KEY": "x"}) is None


def test_the_key_comes_from_the_variable() -> None:
    assert api_key(ServerSettings(api_key_env="MY_KEY"), {"MY_KEY": " sk-1 \n"}) == "sk-1"


@pytest.mark.process
def test_the_key_comes_from_the_command_without_a_shell() -> None:
    assert (
        api_key(ServerSettings(api_key_command=f"{PYTHON} -c 'import sys; print(\"sk-\" + sys.argv[1])' '$HOME;x'"))
        == "sk-$HOME;x"
    )


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (ServerSettings(api_key_env="MY_KEY"), r"The environment variable MY_KEY \(server.api_key_env\) is not set"),
        (
            command("import sys; print('CANARY-7'); print('CANARY-7', file=sys.stderr); sys.exit(3)"),
            "ended with status 3",
        ),
        (command("pass"), "printed nothing"),
        (command("print('CANARY-7'); print('more')"), "is not an API key"),
        (ServerSettings(api_key_command="/no/such/program-7"), "cannot be run: no such file"),
        (ServerSettings(api_key_command="a\0b"), "cannot be run"),
    ],
)
@pytest.mark.process
def test_a_failure_is_one_sentence_without_the_key(server: ServerSettings, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        api_key(server, {})
    assert "CANARY-7" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.process
def test_a_command_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "COMMAND_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"did not end within 0\.2 s"):
        api_key(command("import time; time.sleep(60)"))


def test_settings_keep_secrets_out_of_their_repr() -> None:
    server = ServerSettings(
        base_url="http://u:CANARY-7@h",
        proxy="http://u:CANARY-7@h",
        api_key_command="echo CANARY-7",
        api_key_env="CANARY_7",
        api_key_keyring="CANARY-7/me",
        headers={"Authorization": "CANARY-7"},
    )
    text = repr(replace(Settings(), server=server))
    assert "CANARY" not in text
    assert "model" in text


class Keyring(ModuleType):
    """A keyring with one key."""

    def get_password(self, service: str, user: str) -> str | None:
        if service == "broken":
            raise RuntimeError("CANARY-7")
        return " sk-2\n" if (service, user) == ("https://llm.example", "me") else None


def test_the_key_comes_from_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring("keyring"))
    assert api_key(ServerSettings(api_key_keyring="https://llm.example/me"), {}) == "sk-2"


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            "my llm/me",
            "The keyring has nothing for profiles.work.api_key_keyring. Store the key there: keyring set 'my llm' me",
        ),
        (
            "broken/me",
            "The keyring cannot be asked for profiles.work.api_key_keyring (RuntimeError). Try it in a shell: "
            "keyring get broken me",
        ),
    ],
)
def test_a_keyring_without_the_key_is_told(monkeypatch: pytest.MonkeyPatch, entry: str, sentence: str) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring("keyring"))
    with pytest.raises(ConfigError) as caught:
        api_key(ServerSettings(api_key_keyring=entry), {}, "profiles.work")
    assert str(caught.value) == sentence


def test_a_missing_keyring_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError) as caught:
        api_key(ServerSettings(api_key_keyring="llm/me"), {})
    assert str(caught.value) == (
        "server.api_key_keyring needs the package keyring, which is not installed. Install it "
        "beside kvchat: pip install 'kvchat[keyring]'."
    )


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (
            ServerSettings(api_key_env="MY_KEY"),
            "The environment variable MY_KEY (profiles.work.api_key_env) is not set",
        ),
        (command("pass"), "profiles.work.api_key_command printed nothing"),
        (command("print('a b')"), "What profiles.work.api_key_command prints is not an API key"),
        (ServerSettings(api_key_command="/no/such/program-7"), "profiles.work.api_key_command cannot be run"),
    ],
)
@pytest.mark.process
def test_a_failure_names_the_profile_it_is_about(server: ServerSettings, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        api_key(server, {}, "profiles.work")
    assert str(caught.value).startswith(sentence)


@pytest.mark.process
def test_the_variable_comes_before_the_keyring_and_the_keyring_before_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", Keyring("keyring"))
    server = replace(command("print('sk-3')"), api_key_keyring="https://llm.example/me", api_key_env="MY_KEY")
    assert api_key(server, {"MY_KEY": "sk-1"}) == "sk-1"
    assert api_key(replace(server, api_key_env=""), {}) == "sk-2"
    assert api_key(replace(server, api_key_env="", api_key_keyring=""), {}) == "sk-3"
