"""The process that talks to Hugging Face: a line with a request, answers as lines of JSON, until stdin ends.

It is the hub's own client, apart from kvchat, so that a download ends at once when it is stopped, whatever it waits
for, and nothing of it is loaded before one begins.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from filelock import FileLock
from huggingface_hub import HfApi, constants, get_hf_file_metadata, get_session, hf_hub_download, hf_hub_url
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.file_download import http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

from kvchat.apart.child import first_line, when_stdin_ends

CHUNK = 1024 * 1024
"""Bytes between two looks at how far it is, and the most that a stop loses."""
PROGRESS_INTERVAL_S = 0.1
"""Seconds between two lines about the same file."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ProblemFound(Exception):  # noqa: N818
    """The name of a `text.engine.HubProblem`, with its arguments."""

    def __init__(self, problem: str, **arguments: object) -> None:
        super().__init__(problem)
        self.problem, self.arguments = problem, arguments


def tell(**values: object) -> None:
    print(json.dumps(values), flush=True)


class Bar:
    """What the client believes to be a progress bar."""

    before, total, _next = 0, 0, 0.0
    """Bytes of the files that are there, and of all."""

    def __init__(self, *, initial: int = 0, **_: object) -> None:
        self.n = initial
        self.update(0)

    def update(self, n: float = 1) -> None:
        self.n += int(n)
        if (now := time.monotonic()) >= Bar._next:
            Bar._next = now + PROGRESS_INTERVAL_S
            tell(done=Bar.before + self.n, total=Bar.total)

    def update_transfer(self, n: float) -> None:
        """Counted apart where a transfer differs from what it makes: the file counts here."""

    def set_postfix_str(self, *_: object, **__: object) -> None: ...

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None: ...


def files(repo: str) -> None:
    """Tell the files of a repository, with their sizes in bytes."""
    info = HfApi().model_info(repo, files_metadata=True, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT)
    tell(files=[[sibling.rfilename, sibling.size] for sibling in info.siblings or ()])


def beginning(repo: str, path: str, most: int) -> None:
    """Tell the first `most` bytes of a file, in base64."""
    headers = {**build_hf_headers(), "Range": f"bytes=0-{most - 1}", "Accept-Encoding": "identity"}
    data = b""
    with get_session().stream("GET", hf_hub_url(repo, path), headers=headers, follow_redirects=True) as response:
        hf_raise_for_status(response)
        for chunk in response.iter_raw(CHUNK):
            data += chunk
            if len(data) >= most:  # from a server that knows no ranges, all of it would come
                break
    tell(data=base64.b64encode(data[:most]).decode())


def fetch(repo: str, cache: str, wanted: list[tuple[str, int]]) -> None:
    """Fetch files into the hub's cache, going on with what was begun before. Tells the path of the first one."""
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    storage = Path(cache, repo_folder_name(repo_id=repo, repo_type="model"))
    Bar.total = sum(size for _, size in wanted)
    storage.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, size in wanted:
        url = hf_hub_url(repo, name)
        etag, length = _metadata(url)
        blob = storage / "blobs" / etag
        if length <= constants.MAX_HTTP_DOWNLOAD_SIZE:  # larger ones come by another protocol, from the beginning
            lock = Path(cache, ".locks", storage.name, f"{blob.name}.lock")
            lock.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(lock):
                _fetch(url, blob, length, name)
        client: Any = Bar
        paths.append(hf_hub_download(repo, name, cache_dir=cache, tqdm_class=client))
        Bar.before += size
    tell(path=paths[0])


def _metadata(url: str) -> tuple[str, int]:
    """The name of a file's blob, and its bytes."""
    found = get_hf_file_metadata(url)
    if not re.fullmatch(r"[\w-]{8,128}", found.etag or "") or found.size is None:
        raise ProblemFound("ANSWERED", status="without checksum and size")
    return found.etag or "", found.size


def _fetch(url: str, blob: Path, size: int, name: str) -> None:
    """The bytes of a file, under their own name; the client keeps no part of one that was stopped."""
    if blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_name(f"{blob.name}.incomplete")
    with part.open("ab") as file:
        if file.tell() > size:
            file.truncate(0)
        needed, free = size - file.tell(), shutil.disk_usage(blob.parent).free
        if needed > free:
            raise ProblemFound("NO_ROOM", needed=needed, free=free)
        client: Any = Bar
        http_get(url, file, resume_size=file.tell(), headers=build_hf_headers(), expected_size=size, tqdm_class=client)
    if _DIGEST.fullmatch(blob.name):
        tell(done=Bar.before + size, total=Bar.total, checking=True)
        with part.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != blob.name:
            part.unlink()
            raise ProblemFound("DAMAGED", name=name)
    part.replace(blob)


def main() -> None:
    request = json.loads(first_line() or os._exit(1))
    when_stdin_ends(lambda: os._exit(1))  # nothing comes from a hub that hangs, which would tell
    try:
        if "wanted" in request:
            fetch(**request)
        elif "path" in request:
            beginning(**request)
        else:
            files(**request)
    except ProblemFound as found:
        tell(problem=found.problem, **found.arguments)
    except GatedRepoError:
        tell(problem="GATED")
    except (RepositoryNotFoundError, HFValidationError):
        tell(problem="NO_REPOSITORY")
    except HfHubHTTPError as error:
        tell(problem="ANSWERED", status=error.response.status_code)
    except Exception as error:
        is_of_disk = isinstance(error, OSError) and error.errno is not None
        reason = re.sub(r"\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
        tell(problem="NOT_WRITTEN" if is_of_disk else "UNREACHABLE", reason=reason)


if __name__ == "__main__":
    main()
