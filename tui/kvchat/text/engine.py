"""What fails in the built-in engine, and with its model files.

As in `text.problems`, a problem's value is its sentence.
"""

from __future__ import annotations

import signal
from enum import StrEnum

from kvchat.text.format import about, percent, size

_DAMAGED = "{path} is a damaged GGUF file: "


class EngineProblem(StrEnum):
    """`path`: of a model file. `error`, `reason`: the system's words."""

    # the engine
    NOT_INSTALLED = "The embedded engine is not installed. Install it with: pip install 'kvchat[embedded]'"
    NOT_LOADABLE = "The embedded engine cannot be loaded here: {error}"
    STOPPED = "The engine was stopped while it was starting."
    NO_PROCESS = "The engine's process cannot be started: {reason}."
    UNKNOWN_ARCHITECTURE = (
        "The engine does not know the architecture '{architecture}' of {path}: use another model, "
        "or a newer engine (pip install -U xllamacpp)."
    )
    INCOMPLETE = "{path} is damaged or not completely downloaded: download it again."
    NO_MEMORY = "There is not enough memory for {path}: use a smaller model or a smaller context."
    BROKE_DOWN = "The engine broke down while it loaded {path} ({exit})."
    NOT_LOADED = "The engine could not load {path}: {error}."
    SILENT = "The engine could not load {path}: it ended without a message."
    ENDED = "The engine ended unexpectedly ({exit})."
    KILLED = "The engine ended unexpectedly ({exit}; the machine may have run out of memory)."
    RANKS = "{path} ranks texts and makes no vectors: use an embedding model."
    # a model file
    GONE = "There is no file {path}."
    FOLDER = "{path} is a folder, not a GGUF model file."
    NO_MODELS = "{path} holds no GGUF model to chat with."
    SEVERAL = "{path} holds {number} models, name one of them: {names}."
    NO_CHAT = "{path} is {what}, not a model to chat with."
    PROJECTOR = "the part of a model that reads images (mmproj)"
    EMBEDDER = "an embedding model"
    ADAPTER = "an adapter (LoRA)"
    DRAFT = "a draft head, which runs beside a model"
    OTHER_KIND = "a GGUF file of another kind"
    LATER_PART = "{path} is part {part} of {parts} of a model: name its first part."
    PART_MISSING = "{path} is one of {parts} parts, and {missing} is not there: download it into the same folder."
    NO_FILE = "{path} is not a file."
    UNREADABLE = "{path} cannot be read: {reason}."
    EMPTY = "{path} is not a GGUF model file: it is empty, not GGUF."
    OTHER_FORMAT = "{path} is not a GGUF model file: it begins with {beginning}, not GGUF."
    OTHER_VERSION = "{path} is a GGUF file of a version this engine does not read ({version})."
    CUT_HEADER = _DAMAGED + "it ends in its header."
    SHORT = _DAMAGED + "its header needs byte {needed}, the file has {size}."
    MANY_ENTRIES = _DAMAGED + "it claims {count} header entries."
    LONG_NAME = _DAMAGED + "a name of {length} bytes."
    UNKNOWN_ENTRY = _DAMAGED + "an entry of the unknown type {type}."
    UNKNOWN_LIST = _DAMAGED + "a list of the unsupported type {type}."
    LONG_LIST = _DAMAGED + "a list of {count} strings in {size} bytes."


class HubProblem(StrEnum):
    """What fails in fetching a model. `address`: of the hub, `repo`: the model's name there."""

    NOT_INSTALLED = "Fetching models needs one more package: pip install 'kvchat[pull]'"
    NO_NAME = "{name} is no model's name on Hugging Face. They look like OWNER/REPO or OWNER/REPO:Q4_K_M."
    NO_REPOSITORY = "{address} shows no model {repo}: check the name; a private one needs HF_TOKEN."
    GATED = "{repo} asks for its terms to be accepted: do that at {address}/{repo}, then set HF_TOKEN."
    NO_GGUF = "{repo} has no GGUF model. Look for a repository whose name ends in -GGUF."
    NO_CHAT = "{repo} has no model to chat with: {name} is {what}."
    NO_SUCH_FILE = "{repo} has no {tag}. It has: {names}."
    PARTS_MISSING = "{repo} lacks parts of {name}."
    UNREACHABLE = "{address} cannot be reached: {reason}."
    ANSWERED = "{address} answered {status}. Try again later."
    NO_ROOM = "There is no room for {repo}: it needs {needed}, and {folder} has {free}."
    NOT_WRITTEN = "{repo} cannot be written to {folder}: {reason}."
    DAMAGED = "{name} arrived damaged and was deleted. Fetch it again."
    ENDED = "The download ended unexpectedly ({exit}). The next one goes on from there."


def fetch_words(done: int, total: int, speed: float, *, checking: bool) -> str:
    """How far a download is: `34 % of 2.5 GB · 12 MB/s · ~2 min`. `speed` in bytes per second, 0: not known."""
    if checking:
        return f"checking {size(total)}"
    words = [f"{percent(done / total)} of {size(total)}" if total else size(done)]
    if speed > 0:
        left = (total - done) / speed
        words += [f"{size(round(speed))}/s", about((left, left))]
    return " · ".join(filter(None, words))


def exit_in_words(code: int) -> str:
    """An exit code as the user knows it: `exit code 1`, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def ended_words(code: int) -> str:
    """That the engine has ended by itself with this exit code."""
    exit = exit_in_words(code)
    return (EngineProblem.KILLED if exit == "SIGKILL" else EngineProblem.ENDED).format(exit=exit)
