"""The chat template of a model whose files lie on this machine: in a folder of their own, or in the hub's cache.

For servers that neither give their template nor render a prompt, but name the model they loaded (SGLang, mlx-lm).
Looking is harmless: two files by name, within bounds; what is missing or cannot be read is an empty text.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.backends.engine.folders import sources
from kvchat.backends.http.payload import PayloadError, is_object, text_at
from kvchat.backends.template import MOST_TEMPLATE

MOST_CONFIG = 1 << 24
"""Bytes of a tokenizer's configuration; those with every added token in them have two million."""
_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")


async def template_here(server: ServerInfo, model: str) -> str:
    """The chat template of a model that `server` runs, where that is a server of this machine; empty elsewhere."""
    if server.host_class is not HostClass.LOOPBACK or not model:
        return ""
    return await asyncio.to_thread(local_template, model)


def local_template(model: str, env: Mapping[str, str] = os.environ, home: Path | None = None) -> str:
    """The chat template of `model`, a folder's path or a name on the hub (`owner/name`); empty where it is not here."""
    for folder in _folders(model, env, home or Path.home()):
        if text := _template_in(folder):
            return text
    return ""


def _folders(model: str, env: Mapping[str, str], home: Path) -> Iterator[Path]:
    """Where the files of a model may lie."""
    if Path(model).is_absolute():
        yield Path(model)
    elif _NAME.fullmatch(model):
        hub = (folder for source, folder in sources(env, home) if source == "Hugging Face")
        for folder in hub:
            kept = folder / f"models--{model.replace('/', '--')}"
            if revision := _text(kept / "refs/main", 64).strip():
                yield kept / "snapshots" / revision


def _template_in(folder: Path) -> str:
    """The template in a model's folder: a file of its own, as newer models have it, or a field of the tokenizer's
    configuration, where several have names."""
    if text := _text(folder / "chat_template.jinja", MOST_TEMPLATE):
        return text
    try:
        found = json.loads(_text(folder / "tokenizer_config.json", MOST_CONFIG) or "{}")
        fields = found if is_object(found) else {}
        several = fields.get("chat_template")
        if isinstance(several, list):
            named = {text_at(one, "name"): text_at(one, "template") for one in several if is_object(one)}
            return named.get("default") or ""
        return text_at(fields, "chat_template") or ""
    except (ValueError, RecursionError, PayloadError):
        return ""


def _text(path: Path, most: int) -> str:
    """A file's text; empty where it is none, cannot be read or is longer than `most` bytes."""
    try:
        with path.open("rb") as file:
            found = file.read(most + 1)
    except (OSError, ValueError):
        return ""
    return found.decode("utf-8", "replace") if len(found) <= most else ""
