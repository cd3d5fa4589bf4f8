"""The server's API key, fetched when it is needed.

A key is never stored, and no sentence about it holds it or what a command printed.
"""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Mapping

from kvchat.config.problem import ConfigError
from kvchat.config.server import ServerSettings
from kvchat.paths import reason

COMMAND_SECONDS = 10.0


def api_key(server: ServerSettings, env: Mapping[str, str] = os.environ, name: str = "server") -> str | None:
    """The key from the variable, the keyring or the command of the settings, the first that is set; None where none
    is. `name` is the section as sentences name it: `server`, `profiles.work`. May take ten seconds, or until the user
    has unlocked the keyring, so call it in a thread. Raises ConfigError."""
    if server.api_key_env:
        key = env.get(server.api_key_env, "").strip()
        if not key:
            raise ConfigError(
                f"The environment variable {server.api_key_env} ({name}.api_key_env) is not set. "
                "Set it to the server's API key."
            )
        return _checked(key, f"The environment variable {server.api_key_env}")
    if server.api_key_keyring:
        setting = f"{name}.api_key_keyring"
        return _checked(_kept(server.api_key_keyring, setting), f"What the keyring has for {setting}")
    if server.api_key_command:
        setting = f"{name}.api_key_command"
        return _checked(_printed(server.api_key_command, setting), f"What {setting} prints")
    return None


def _kept(entry: str, setting: str) -> str:
    """The key in the system's keyring at `service/username`."""
    service, _, user = entry.rpartition("/")
    words = shlex.join((service, user))
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        raise ConfigError(
            f"{setting} needs the package keyring, which is not installed. Install it beside kvchat: "
            "pip install 'kvchat[keyring]'."
        ) from None
    try:
        key = keyring.get_password(service, user)
    except Exception as error:  # the keyrings of the systems fail each in their own way
        raise ConfigError(
            f"The keyring cannot be asked for {setting} ({type(error).__name__}). Try it in a shell: "
            f"keyring get {words}"
        ) from None
    if not isinstance(key, str) or not key.strip():
        raise ConfigError(f"The keyring has nothing for {setting}. Store the key there: keyring set {words}")
    return key.strip()


def _printed(command: str, setting: str) -> str:
    import subprocess

    try:
        done = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"{setting} did not end within {COMMAND_SECONDS:g} s. Run it in a shell to see what it waits for."
        ) from None
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not a command"
        raise ConfigError(f"{setting} cannot be run: {why}.") from None
    if done.returncode:
        raise ConfigError(f"{setting} ended with status {done.returncode}. Run it in a shell to see why.")
    key = done.stdout.decode("utf-8", "replace").strip()
    if not key:
        raise ConfigError(f"{setting} printed nothing. It must print the API key.")
    return key


def _checked(key: str, source: str) -> str:
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(f"{source} is not an API key: it holds spaces, line breaks or characters outside ASCII.")
    return key
