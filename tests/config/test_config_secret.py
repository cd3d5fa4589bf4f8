"""The API key: from a variable or a command, and nowhere else."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace

import pytest

from kvchat.config import ConfigError, ServerSettings, Settings, api_key, secret

PYTHON = shlex.quote(sys.executable)


def command(code: str) -> ServerSettings:
    return ServerSettings(api_key_command=f"{PYTHON} -c {shlex.quote(code)}")


def test_there_is_no_key_where_none_is_asked_for() -> None:
    assert api_key(ServerSettings(), {"KVCHAT_API_KEY": "x"}) is None


def test_the_key_comes_from_the_variable() -> None:
    assert api_key(ServerSettings(api_key_env="MY_KEY"), {"MY_KEY": " sk-1 \n"}) == "sk-1"


def test_the_key_comes_from_the_command_without_a_shell() -> None:
    assert api_key(ServerSettings(
        api_key_command=f"{PYTHON} -c 'import sys; print(\"sk-\" + sys.argv[1])' '$HOME;x'")) == "sk-$HOME;x"


@pytest.mark.parametrize(("server", "sentence"), [
    (ServerSettings(api_key_env="MY_KEY"), r"The environment variable MY_KEY \(server.api_key_env\) is not set"),
    (command("import sys; print('CANARY-7'); print('CANARY-7', file=sys.stderr); sys.exit(3)"), "ended with status 3"),
    (command("pass"), "printed nothing"),
    (command("print('CANARY-7'); print('more')"), "is not an API key"),
    (ServerSettings(api_key_command="/no/such/program-7"), "cannot be run: no such file"),
    (ServerSettings(api_key_command="a\0b"), "cannot be run"),
])
def test_a_failure_is_one_sentence_without_the_key(server: ServerSettings, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        api_key(server, {})
    assert "CANARY-7" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_command_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "COMMAND_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"did not end within 0\.2 s"):
        api_key(command("import time; time.sleep(60)"))


def test_settings_keep_secrets_out_of_their_repr() -> None:
    server = ServerSettings(base_url="http://u:CANARY-7@h", proxy="http://u:CANARY-7@h",
                            api_key_command="echo CANARY-7", api_key_env="CANARY_7")
    text = repr(replace(Settings(), server=server))
    assert "CANARY" not in text
    assert "model" in text
