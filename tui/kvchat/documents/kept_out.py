"""What stays out of collections although it can be read: secrets, and what kvchat wrote itself.

A secret goes to a server only when the user said yes to it. What kvchat wrote would come back to the model as a source,
its own guesses among it.
"""

from __future__ import annotations

import re

SECRET = "looks like a private key or a file of passwords"
CONVERSATION = "is a conversation that kvchat wrote"
MEMORY_PAGE = "is a page of kvchat's memory"

_NAME = re.compile(
    r"id_[a-z0-9_]+|[._](?:netrc|pgpass|npmrc|pypirc|git-credentials|htpasswd)"
    r"|.*\.env(?:\.(?:local|prod|production|dev|development|test|staging|bak|backup|old|orig|save))*~?"
    r"|.*\.(?:pem|key|ppk|p12|pfx|jks|keystore|kdbx)",
    re.IGNORECASE,
)
_LARGEST_KEY = 1_000_000
_KEY = re.compile(
    rb"^[ \t>#*]*-{4,5} ?BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)? ?-{4,5}[ \t\r]*$"
    rb"|\A\s*PuTTY-User-Key-File-|\A\s*\{\s*\"type\":\s*\"service_account\"",
    re.MULTILINE,
)
"""The line that a private key begins with, alone on its line: what explains keys quotes it inside a sentence."""
_WRITTEN = re.compile(
    rb"---\r?\n(?:[^\n]*\n){0,9}?(?:exporter: \"kvchat\"|# kvchat [0-9a-f]{32} )|<!-- exporter: kvchat -->"
    rb"|\{\s*\"format\":\s*\"kvchat-conversations\""
    rb"|\{\"messages\": ?\[\{\"role\": ?\"(?:system|user)\", ?\"content\":"
    rb"|<!DOCTYPE html>(?s:.){0,300}?<meta name=\"generator\" content=\"kvchat\">"
)
"""How the mirror and the exports of all formats begin."""
_MEMORY = re.compile(rb"<!-- [mh][0-9a-z]{8} (?:[a-z]+:[^\s<>]* )*by:[^\s<>]* (?:[a-z]+:[^\s<>]* )*-->")


def is_secret_name(name: str) -> bool:
    """Whether a file of this name holds keys or passwords as a rule: `id_rsa`, `server.pem`, `prod.env`."""
    return _NAME.fullmatch(name) is not None


def is_secret(data: bytes) -> bool:
    """Whether a file contains a private key."""
    return _KEY.search(data[:_LARGEST_KEY].replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")) is not None


def looks_secret(name: str, text: str) -> bool:
    """Whether a file of this name and text needs a yes before it is sent."""
    return is_secret_name(name) or is_secret(text.encode(errors="replace"))


def why(data: bytes) -> str:
    """Why a file with these bytes is not indexed, as it follows its name; empty: nothing is against it."""
    if is_secret(data):
        return SECRET
    if _WRITTEN.match(data.removeprefix(b"\xef\xbb\xbf")):
        return CONVERSATION
    return MEMORY_PAGE if _MEMORY.search(data) else ""
