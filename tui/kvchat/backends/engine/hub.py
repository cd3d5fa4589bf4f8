"""Models from Hugging Face: which files a name means, and fetching them into the cache that `llama-server -hf` has too.

What is sent is the name of a repository and of its files, and the token of HF_TOKEN where there is one. The hub's own
client does it (`hub_child`), and reads HF_ENDPOINT and its further variables itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kvchat.backends.engine.folders import hub_cache
from kvchat.backends.engine.gguf import quantisation_of
from kvchat.backends.engine.models import parts_of
from kvchat.sanitize import one_line
from kvchat.text.engine import HubProblem, exit_in_words
from kvchat.text.format import size
from kvchat.text.problems import ProblemError

USUAL = "Q4_K_M"
"""The quantisation that `-hf` takes where none is named."""
LONGEST_LINE = 16 * 1024 * 1024
"""Bytes: a repository may have thousands of files."""
_NAME = re.compile(
    r"(?:https?://(?:www\.)?(?:huggingface\.co|hf\.co)/|(?:huggingface\.co|hf\.co)/)?"
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*?)"
    r"(?::(?P<tag>[\w.-]+)|/(?:(?:blob|resolve)/[^/]+/)?(?P<file>[^?#]+\.gguf)(?:[?#].*)?|/(?:tree/[^?#]*)?(?:[?#].*)?)?",
    re.IGNORECASE,
)
_NO_MODELS = ("mmproj", "imatrix")


class HubError(ProblemError):
    """A model that cannot be fetched."""


@dataclass(frozen=True, slots=True)
class HubName:
    """A model's name there."""

    repo: str
    tag: str = ""
    """A quantisation, or the path of a file in the repository; empty: the usual one."""

    def __str__(self) -> str:
        return f"{self.repo}:{self.tag}" if self.tag else self.repo


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model that can be fetched."""

    name: HubName
    files: tuple[tuple[str, int], ...]
    """Its files with their sizes in bytes: one, or all parts."""
    address: str
    folder: Path
    """The cache that it is kept in."""

    @property
    def file(self) -> str:
        """The name of its (first) file."""
        return self.files[0][0].rpartition("/")[2]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(size for _, size in self.files)


@dataclass(frozen=True, slots=True)
class Fetching:
    """How far a download is: bytes, and bytes per second (0: not known yet)."""

    done: int
    total: int
    speed: float = 0.0
    checking: bool = False


def hub_address(env: Mapping[str, str] = os.environ) -> str:
    return env.get("HF_ENDPOINT", "").strip().rstrip("/") or "https://huggingface.co"


def hub_name(text: str) -> HubName | None:
    """The model that `text` names: OWNER/REPO with or without :QUANT or /FILE.gguf, or an address of the hub."""
    text = text.strip().removeprefix(f"{hub_address()}/")
    found = _NAME.fullmatch(text)
    if found is None or found["repo"].lower().endswith(".gguf"):
        return None
    tag = found["file"] or found["tag"] or ""
    return HubName(found["repo"], "" if tag.lower() == "latest" else tag)


async def find(name: HubName) -> HubModel:
    """What is to be fetched for a name: its files and their sizes. Raises HubError."""
    listed: Sequence[tuple[str, int]] = ()
    async for told in _asked(name.repo, {"repo": name.repo}):
        if isinstance(files := told.get("files"), list):
            listed = [(str(path), size if isinstance(size, int) else 0) for path, size in files]
    return HubModel(name, tuple(chosen(name, listed)), hub_address(), hub_cache(os.environ, Path.home()))


async def fetch(model: HubModel, told: Callable[[Fetching], None]) -> Path:
    """Fetch a model, going on where an earlier attempt ended; the path of its first file. Cancelled, it ends at once
    and keeps what came. Raises HubError."""
    began, first = time.monotonic(), -1
    request = {"repo": model.name.repo, "cache": str(model.folder), "wanted": model.files}
    async for line in _asked(model.name.repo, request, folder=model.folder):
        if isinstance(path := line.get("path"), str):
            return Path(path)
        done, total = line.get("done"), line.get("total")
        if isinstance(done, int) and isinstance(total, int):
            first = done if first < 0 else first
            passed = time.monotonic() - began
            told(Fetching(done, total, (done - first) / passed if passed > 1 else 0.0, "checking" in line))
    raise HubError(HubProblem.ENDED, exit="without a word")


def chosen(name: HubName, files: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The files of a repository that a name means, as `-hf` chooses: the quantisation that is named, else the usual
    one, else the first model; all parts of a split one. Raises HubError."""
    sizes = dict(files)
    models = [
        path
        for path in sizes
        if path.lower().endswith(".gguf")
        and not any(mark in path.lower().rpartition("/")[2] for mark in _NO_MODELS)
        and str(parts_of(Path(path))[0]) == path
    ]
    if not models:
        raise HubError(HubProblem.NO_GGUF, repo=name.repo)
    named = re.compile(rf"(?:^|[-_./]){re.escape(name.tag or USUAL)}(?=[-.])", re.IGNORECASE)
    found = next((path for path in models if path == name.tag or named.search(path)), None)
    if found is None and name.tag:
        there = dict.fromkeys(quantisation_of(Path(path).stem) or path for path in models)
        raise HubError(HubProblem.NO_SUCH_FILE, repo=name.repo, tag=name.tag, names=", ".join(there))
    parts = [str(part) for part in parts_of(Path(found or models[0]))]
    if not sizes.keys() >= set(parts):
        raise HubError(HubProblem.PARTS_MISSING, repo=name.repo, name=parts[0])
    return [(part, sizes[part]) for part in parts]


async def _asked(
    repo: str, request: Mapping[str, object], folder: Path | None = None
) -> AsyncIterator[Mapping[str, object]]:
    """The lines that the child answers. Raises HubError."""
    if find_spec("huggingface_hub") is None:
        raise HubError(HubProblem.NOT_INSTALLED)
    command = (sys.executable, "-P", "-m", "kvchat.backends.engine.hub_child", json.dumps(request))
    env = {**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=env, limit=LONGEST_LINE, start_new_session=True
        )
    except OSError as error:
        raise HubError(HubProblem.ENDED, exit=error.strerror) from None
    assert child.stdout is not None
    try:
        async for line in child.stdout:
            told = json.loads(line)
            if (problem := told.pop("problem", None)) is not None:
                for amount in ("needed", "free"):
                    told[amount] = size(told.get(amount))
                told["reason"] = one_line(str(told.get("reason")), 160).rstrip(".")
                raise HubError(HubProblem[problem], repo=repo, address=hub_address(), folder=folder, **told)
            yield told
        if code := await child.wait():
            raise HubError(HubProblem.ENDED, exit=exit_in_words(code))
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
