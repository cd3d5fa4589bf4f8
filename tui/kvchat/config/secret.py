"""The server's API key, fetched when it is needed.

The rule: a key is never stored, and no sentence about it holds it or what a command printed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping

from kvchat.config.problem import ConfigError
from kvchat.config.settings import ServerSettings
from kvchat.paths import reason

COMMAND_SECONDS = 10.0


def api_key(server: ServerSettings, env: Mapping[str, str] = os.environ) -> str | None:
    """The key from the variable or the command of the settings; None where neither is set. May take ten seconds, so
    call it in a thread. Raises ConfigError."""
    if server.api_key_env:
        key = env.get(server.api_key_env, "").strip()
        if not key:
            raise ConfigError(f"The environment variable {server.api_key_env} (server.api_key_env) is not set. "
                              "Set it to the server's API key.")
        return _checked(key, f"The environment variable {server.api_key_env}")
    if server.api_key_command:
        return _checked(_printed(server.api_key_command), "What server.api_key_command prints")
    return None


def _printed(command: str) -> str:
    try:
        done = subprocess.run(shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=COMMAND_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"server.api_key_command did not end within {COMMAND_SECONDS:g} s. Run it in a shell to see "
                          "what it waits for.") from None
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not a command"
        raise ConfigError(f"server.api_key_command cannot be run: {why}.") from None
    if done.returncode:
        raise ConfigError(f"server.api_key_command ended with status {done.returncode}. Run it in a shell to see why.")
    key = done.stdout.decode("utf-8", "replace").strip()
    if not key:
        raise ConfigError("server.api_key_command printed nothing. It must print the API key.")
    return key


def _checked(key: str, source: str) -> str:
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(f"{source} is not an API key: it holds spaces, line breaks or characters outside ASCII.")
    return key
