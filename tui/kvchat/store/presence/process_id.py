"""Who is writing: a process; its start time distinguishes it from a later one with the same number.

An owner counts as ended only when that is certain.
"""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

_open_here: set[str] = set()


def claim() -> str:
    """A new owner in this process: `pid:start time:mark`. It lives until `release` or the end of the process."""
    owner = f"{os.getpid()}:{_started(os.getpid()) or ''}:{uuid.uuid4().hex[:8]}"
    _open_here.add(owner)
    return owner


def release(owner: str) -> None:
    """Declare `owner` gone."""
    _open_here.discard(owner)


def is_gone(owner: str | None) -> bool:
    """Whether no process can be writing in the name of `owner` any more."""
    pid_text, _, rest = (owner or "").partition(":")
    if not pid_text.isdigit():
        return True
    pid, started = int(pid_text), rest.rpartition(":")[0]
    if pid == os.getpid() and started == (_started(pid) or ""):
        return owner not in _open_here
    if not _exists(pid):
        return True
    now = _started(pid)
    if now is None:
        return sys.platform.startswith("linux")
    return bool(started) and now != started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _started(pid: int) -> str | None:
    """When the process was started, in the system's own terms; None: there is none, or the system does not say."""
    if sys.platform.startswith("linux"):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
        return None if fields[0] in ("Z", "X") else fields[19]
    import subprocess

    try:
        found = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return "-".join(found.stdout.split()).replace(":", ".") or None
