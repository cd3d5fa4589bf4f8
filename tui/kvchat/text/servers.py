"""Servers in words, the same on every screen and on the command line."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from kvchat.figures.speed import SpeedFit

ENGINE = "the built-in engine"
CACHED_TOKENS = "cached tokens"
"""Among the facts that a server does not report."""


@lru_cache(64)
def model_name(model: str) -> str:
    """A model's name to show: without folders and without .gguf."""
    name = one_line(model.replace("\\", "/").rstrip("/").rpartition("/")[2] or model)
    return name[:-5] if name.lower().endswith(".gguf") else name


def place_words(name: str) -> str:
    """A server's name as a sentence has it: of an address host and port, of a model file its name, of a profile its
    own; empty: the built-in engine."""
    if not name:
        return ENGINE
    if "://" in name:
        return one_line(name.partition("://")[2].rpartition("@")[2].rstrip("/"), 60)
    if name.endswith(".gguf") or "/" in name or "\\" in name:
        return f"{ENGINE} ({one_line(Path(name).name, 40)})"
    return one_line(name, 40)


def server_facts(model: str, window: int | None, slots: int | None, speed: SpeedFit | None) -> str:
    """`SmolLM2-135M · 8,192-token window · 4 slots · prefills 350 tok/s`, as far as it is known."""
    words = [one_line(model_name(model), 40)]
    if window:
        words.append(f"{window:,}-token window")
    if slots:
        words.append("1 slot" if slots == 1 else f"{slots} slots")
    if speed is not None and speed.alpha > 0:
        words.append(f"prefills {speed.speed(0):,.0f} tok/s")
    return " · ".join(filter(None, words))


def fallback_words(off: str, used: str) -> str:
    """That a conversation begins elsewhere: `192.168.1.5:8080 is off · using the built-in engine`."""
    return f"{place_words(off)} is off · using {place_words(used)}"


class Reaching(StrEnum):
    """What is done to reach a server. `name`: of the model's file, `server`: as `place_words` has it."""

    LOOKING = "Looking for a model server on this machine …"
    CONNECTING = "Connecting to {url} …"
    LOADING = "{url} is loading its model ({seconds:.0f} s) …"
    STARTING = "Starting the built-in engine with {name} …"
    OFF = "{server} is off, looking for another server …"


FAILS = "answers with an error"
_UNUSABLE = {
    "needs a key": "needs a key (api_key_env in the settings)",
    "needs a password": "needs a user name and a password (Basic auth)",
    "fails": FAILS,
}


def unusable_words(title: str, url: str, phase: str) -> str:
    """Of a server that was found and cannot be talked to. `phase`: as it was found."""
    return f"{title or 'a server'} at {url} {_UNUSABLE.get(phase, 'does not say what it is')}"


_HOSTS = {
    "lan": "another machine of this network",
    "tailnet": "a machine of your tailnet",
    "cloud": "a server on the internet",
}


def leaving_lines(base_url: str, goes_to: str, host_class: str, *, begun_nearer: bool) -> list[str]:
    """What is to be known before a conversation leaves this machine. `goes_to`: where the server `base_url` sends it,
    itself for most; `begun_nearer`: another server has answered in it before."""
    lines = [
        f"{goes_to} is {_HOSTS[host_class]}."
        if goes_to == base_url
        else f"{base_url} passes your messages on to {goes_to}.",
        "Every message of this conversation, with its context, leaves this machine.",
    ]
    if begun_nearer:
        lines.append("That includes what was said on the server before.")
    return lines
