"""A stand-in for Hugging Face: repositories with files, which it lists, and gives by way of another host, with ranges."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "5" * 40


@dataclass
class Hub:
    """What is there, and what was asked."""

    repositories: Mapping[str, Mapping[str, bytes]]
    token: str = ""
    """Where it is set, repositories are private to those who send it."""
    is_gated: bool = False
    stalls_at: int | None = None
    """Bytes of a file after which it sends no more, until it is let go on."""
    is_damaged: bool = False
    """Whether it sends other bytes than those that the checksum is of."""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path and range of every request."""
    tokens_at_files: list[bool] = field(default_factory=list)
    """Of each time that a file was read whether a token came to the other host."""
    url: str = ""
    goes_on: threading.Event = field(default_factory=threading.Event)

    def ranges(self) -> list[str]:
        """Of each time that a file was fetched the range that was asked for; empty: all of it. Its beginning alone was
        looked at."""
        files = [range for method, path, range in self.asked if method == "GET" and path.startswith("/cdn/")]
        return [range for range in files if not range.startswith("bytes=0-")]


@contextmanager
def running_hub(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None: ...

        def _answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append((self.command, path, self.headers.get("Range", "")))
            if path.startswith("/cdn/"):
                self._file(path.removeprefix("/cdn/"))
            else:
                self._send(*self._told(path))

        def _told(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
            listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/main)?", path)
            file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path)
            repo = (listing or file or [path, ""])[1]
            files = hub.repositories.get(repo)
            if files is None or (hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}"):
                if hub.is_gated and files is not None:
                    return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
                return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
            if listing:
                siblings = [{"rfilename": name, "size": len(data)} for name, data in files.items()]
                return 200, {}, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()
            assert file is not None
            if file[2] not in files:
                return 404, {"X-Error-Code": "EntryNotFound"}, b"{}"
            data = files[file[2]]
            elsewhere = hub.url.replace("127.0.0.1", "localhost")
            headers = {
                "X-Repo-Commit": COMMIT,
                "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
                "X-Linked-Size": str(len(data)),
                "Location": f"{elsewhere}/cdn/{repo}/{file[2]}",
            }
            return 302, headers, b""

        def _file(self, path: str) -> None:
            owner, repo, name = path.split("/", 2)
            data = hub.repositories[f"{owner}/{repo}"][name]
            hub.tokens_at_files.append("Authorization" in self.headers)
            begin = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or ["", "0"])[1])
            total = len(data)
            if hub.is_damaged:
                data = data[::-1]
            self.send_response(206 if begin else 200)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
            self.send_header("Content-Length", str(total - begin))
            self.end_headers()
            stop = total if hub.stalls_at is None else min(total, max(begin, hub.stalls_at))
            self.wfile.write(data[begin:stop])
            if stop < total:
                self.wfile.flush()
                hub.goes_on.wait()
                self.wfile.write(data[stop:])

        def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that goes away is nothing to print."""

    with Server(("127.0.0.1", 0), Handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.goes_on.set()
            server.shutdown()
            thread.join()
