"""Models from Hugging Face: which files a name means, and fetching them into the cache that `llama-server -hf` has too.

What is sent is the name of a repository and of its files, and the token of HF_TOKEN where there is one. The hub's own
client does it (`hub_child`), and reads HF_ENDPOINT and its further variables itself.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct

from kvchat.apart.lines import LineProcess, command_of
from kvchat.backends.engine.folders import hub_cache
from kvchat.backends.engine.gguf import WINDOW, GgufError, header_in, quantisation_of
from kvchat.backends.engine.models import parts_of
from kvchat.sanitize import one_line
from kvchat.text.engine import EngineProblem, HubProblem, exit_in_words
from kvchat.text.format import size
from kvchat.text.problems import ProblemError

USUAL = "Q4_K_M"
"""The quantisation that `-hf` takes where none is named."""
SUGGESTED = (
    ("Qwen/Qwen3-1.7B-GGUF", 1_800_000_000, 4),
    ("Qwen/Qwen3-4B-GGUF", 2_500_000_000, 8),
    ("Qwen/Qwen3-8B-GGUF", 5_000_000_000, 16),
    ("Qwen/Qwen3-30B-A3B-GGUF", 18_600_000_000, 32),
)
"""Models to begin with: name, bytes, and the gigabytes of memory from which one is a good choice."""
MOST_LOOKS = 4
"""Files of a repository that are looked into for one to chat with."""
_NAME = re.compile(
    r"(?:https?://(?:www\.)?(?:huggingface\.co|hf\.co)/|(?:huggingface\.co|hf\.co)/)?"
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*?)"
    r"(?::(?P<tag>[\w.-]+)|/(?:(?:blob|resolve)/[^/]+/)?(?P<file>[^?#]+\.gguf)(?:[?#].*)?|/(?:tree/[^?#]*)?(?:[?#].*)?)?",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"(?:^|[-_./])(?:mmproj|imatrix|clip|mtp|nextn|draft(?:er)?|eagle\d|dflash|medusa|lora|adapters?|vocab(?=\.gguf$)|ggml-vocab"
    r"|control[-_]vector|embed(?:ding|dings|der)?|rerank(?:er|ing)?)(?=[-_./]|$)",
    re.IGNORECASE,
)
"""A name or a folder of a file that is no model to chat with: what goes with one, or another kind of model."""
_BITS = re.compile(r"(?:I?Q|TQ|FP|BF|F)(\d+)|(?:MX|NV)FP(4)", re.IGNORECASE)


class HubError(ProblemError):
    """A model that cannot be fetched."""


class HubName(Struct, frozen=True):
    """A model's name there."""

    repo: str
    tag: str = ""
    """A quantisation, or the path of a file in the repository; empty: the usual one."""

    def __str__(self) -> str:
        return f"{self.repo}:{self.tag}" if self.tag else self.repo


class HubModel(Struct, frozen=True):
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


class Fetching(Struct, frozen=True):
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


def suggested() -> list[tuple[str, str]]:
    """Models to begin with, each with what is to be known of it; the one for this machine's memory first."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 + 1  # some is the firmware's
    fitting = max((needed for _, _, needed in SUGGESTED if needed <= memory), default=SUGGESTED[0][2])
    found = [
        (name, f"~{size(octets)} · for {needed} GB of memory{', as here' if needed == fitting else ''}")
        for name, octets, needed in SUGGESTED
    ]
    return sorted(found, key=lambda one: not one[1].endswith("here"))


async def find(name: HubName) -> HubModel:
    """What is to be fetched for a name: its files and their sizes. What is no model to chat with by its own header is
    passed over, unless the file is named. Raises HubError."""
    listed: list[tuple[str, int]] = []

    def heard(line: Mapping[str, Any]) -> None:
        listed.extend((str(path), size if isinstance(size, int) else 0) for path, size in line["files"])

    await _ask({"repo": name.repo}, heard)
    refused: HubError | None = None
    for _ in range(MOST_LOOKS):
        try:
            files = chosen(name, listed)
        except HubError as error:
            raise refused or error from None
        path, octets = files[0]
        what = None if path == name.tag else await _no_chat(name.repo, path, octets)
        if what is None:
            return HubModel(name, tuple(files), hub_address(), hub_cache(os.environ, Path.home()))
        refused = HubError(HubProblem.NO_CHAT, repo=name.repo, name=path, what=what)
        listed = [one for one in listed if one not in files]
    assert refused is not None
    raise refused


async def _no_chat(repo: str, path: str, octets: int) -> EngineProblem | None:
    """What a file is by its header, if that can be read and it is no model to talk to. Raises HubError."""
    data = b""

    def heard(line: Mapping[str, Any]) -> None:
        nonlocal data
        data = base64.b64decode(line["data"])

    await _ask({"repo": repo, "path": path, "most": WINDOW}, heard)
    try:
        return header_in(data, max(octets, len(data)), Path(path)).no_chat
    except GgufError:
        return None


async def fetch(model: HubModel, report: Callable[[Fetching], None]) -> Path:
    """Fetch a model, going on where an earlier attempt ended; the path of its first file. Cancelled, it ends at once
    and keeps what came. Raises HubError."""
    began, first, path = time.monotonic(), -1, ""

    def heard(line: Mapping[str, Any]) -> None:
        nonlocal first, path
        if "path" in line:
            path = line["path"]
            return
        first = line["done"] if first < 0 else first
        passed = time.monotonic() - began
        speed = (line["done"] - first) / passed if passed > 1 else 0.0
        report(Fetching(line["done"], line["total"], speed, "checking" in line))

    await _ask({"repo": model.name.repo, "cache": str(model.folder), "wanted": model.files}, heard)
    return Path(path)


def chosen(name: HubName, files: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The files of a repository that a name means: the file or quantisation that is named, else the usual one, else the
    nearest to it; all parts of a split one. Raises HubError."""
    sizes = dict(files)
    models = [
        path
        for path in sizes
        if path.lower().endswith(".gguf")
        and (path == name.tag or not is_no_model(path))
        and str(parts_of(Path(path))[0]) == path
    ]
    if not models:
        raise HubError(HubProblem.NO_GGUF, repo=name.repo)
    named = re.compile(rf"(?:^|[-_./]){re.escape(name.tag or USUAL)}(?=[-.])", re.IGNORECASE)
    found = next((path for path in models if path == name.tag or named.search(path)), None)
    if found is None and name.tag:
        there = dict.fromkeys(quantisation_of(Path(path).stem) or path for path in models)
        raise HubError(HubProblem.NO_SUCH_FILE, repo=name.repo, tag=name.tag, names=", ".join(there))
    nearest = min(
        models, key=lambda path: _distance(path, sum(sizes.get(str(part), 0) for part in parts_of(Path(path))))
    )
    parts = [str(part) for part in parts_of(Path(found or nearest))]
    if not sizes.keys() >= set(parts):
        raise HubError(HubProblem.PARTS_MISSING, repo=name.repo, name=parts[0])
    return [(part, sizes[part]) for part in parts]


def is_no_model(path: str) -> bool:
    """Whether a file's name or folder says that it is no model to chat with."""
    return _NO_MODEL.search(path) is not None


def _distance(path: str, octets: int) -> tuple[float, int, int]:
    """How far a quantisation is from the usual one: in bits a weight, more rather than fewer; then 4 bit ones by how
    they are made; then the smaller file."""
    quantisation = quantisation_of(re.sub(r"-\d{5}-of-\d{5}$", "", Path(path).stem))
    found = _BITS.search(quantisation)
    bits = int(found[1] or found[2]) if found else 16
    made = 0 if "Q4_K" in quantisation else 1 if quantisation.startswith("Q") else 2
    return (bits - 4 if bits >= 4 else 4.5 - bits, made, octets)


async def _ask(request: Mapping[str, Any], heard: Callable[[Mapping[str, Any]], None]) -> None:
    """Hear what the child answers, line by line, to its end. Raises HubError."""
    if find_spec("huggingface_hub") is None:
        raise HubError(HubProblem.NOT_INSTALLED)
    env = {**os.environ, "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        child = await LineProcess.start(command_of("kvchat.backends.engine.hub_child"), env=env)
    except OSError as error:
        raise HubError(HubProblem.ENDED, exit=error.strerror) from None
    try:
        await child.give(json.dumps(request).encode())
        async for line in child.lines():
            message = json.loads(line)
            if "problem" in message:
                raise _error(message, request)
            heard(message)
        if code := await child.wait():
            raise HubError(HubProblem.ENDED, exit=exit_in_words(code))
    finally:
        await child.end(0)


def _error(report: Mapping[str, Any], request: Mapping[str, Any]) -> HubError:
    sizes = {amount: size(report.get(amount)) for amount in ("needed", "free")}
    reason = one_line(str(report.get("reason")), 160).rstrip(".")
    known = {"repo": request["repo"], "folder": request.get("cache"), "address": hub_address()}
    return HubError(HubProblem[report["problem"]], **{**report, **known, **sizes, "reason": reason})
