"""Real routers in front of replicas, as their manuals set them up to keep a session on its replica.

A router that is not installed is told by the sentence of `Router.missing`. They are looked for on the PATH, where
system programs are, and in the folders that the variable KVCHAT_ROUTERS names.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from passthrough import SessionRouter

FOLDERS_VARIABLE = "KVCHAT_ROUTERS"
SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
KEY = "sk-" + "0123456789abcdef" * 4
"""LiteLLM does not start without a key."""
START_S, END_S = 120.0, 2.0

NGINX = """\
daemon off;
pid nginx.pid;
error_log stderr warn;
events {{}}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    upstream replicas {{
        hash $http_x_session_id consistent;
        {workers}
    }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 64m;
        location / {{
            proxy_pass http://replicas;
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"""
NGINX_WORKER = "server {host} max_fails=0;"

HAPROXY = """\
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend kvchat
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance hdr(X-Session-ID)
    hash-type consistent
    {workers}
"""
HAPROXY_WORKER = "server replica{number} {host}"

LITELLM = """\
model_list:
{workers}
litellm_settings:
  drop_params: true
router_settings:
  optional_pre_call_checks: [session_affinity]
"""
LITELLM_WORKER = """\
  - model_name: local
    litellm_params: {{model: openai/local, api_base: "http://{host}/v1", api_key: none}}"""


@dataclass(frozen=True, slots=True)
class Start:
    """What a router is started with."""

    binary: str
    folder: Path
    """An empty folder of its own."""
    port: int
    workers: Sequence[str]
    """Base URLs of the replicas."""

    def written(self, name: str, text: str, worker: str, joint: str) -> str:
        """The path of a configuration with one `worker` line for each replica."""
        lines = [
            worker.format(host=url.removeprefix("http://"), number=number) for number, url in enumerate(self.workers)
        ]
        path = self.folder / name
        path.write_text(text.format(port=self.port, workers=joint.join(lines)), encoding="utf-8")
        return str(path)

    def rust(self, *arguments: str) -> list[str]:
        return [
            self.binary,
            *arguments,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--prometheus-port",
            str(free_port()),
            "--worker-urls",
            *self.workers,
        ]


def _vllm(start: Start) -> list[str]:
    return start.rust("--policy", "consistent_hash")


def _sglang(start: Start) -> list[str]:
    return start.rust("launch", "--policy", "manual")


def _haproxy(start: Start) -> list[str]:
    return [start.binary, "-f", start.written("haproxy.cfg", HAPROXY, HAPROXY_WORKER, "\n    ")]


def _nginx(start: Start) -> list[str]:
    path = start.written("nginx.conf", NGINX, NGINX_WORKER, "\n        ")
    return [start.binary, "-e", "stderr", "-p", str(start.folder), "-c", path]


def _litellm(start: Start) -> list[str]:
    path = start.written("litellm.yaml", LITELLM, LITELLM_WORKER, "\n")
    return [start.binary, "--config", path, "--host", "127.0.0.1", "--port", str(start.port)]


@dataclass(frozen=True, slots=True)
class Router:
    """A router and how it is started."""

    name: str
    """Of its program."""
    command: Callable[[Start], list[str]] | None
    """None: it is not a program, but `SessionRouter`."""
    key: str = ""
    """The API key that it asks for; empty: none."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def binary(self) -> str | None:
        named = os.environ.get(FOLDERS_VARIABLE, "")
        path = os.pathsep.join([*([named] if named else []), os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
        return shutil.which(self.name, path=path)

    @property
    def missing(self) -> str:
        """Why it cannot be started; empty where it can be."""
        if self.command is None or self.binary is not None:
            return ""
        return f"{self.name} is not installed: put it on the PATH, or name its folder by {FOLDERS_VARIABLE}"


OURS = Router("a-router-of-the-tests", None)
"""Always there: what kvchat sends is then proved on every machine."""
ROUTERS = (
    OURS,
    Router("vllm-router", _vllm),
    Router("sglang-router", _sglang),
    Router("smg", _sglang),
    Router("haproxy", _haproxy),
    Router("nginx", _nginx),
    Router("litellm", _litellm, KEY, {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def routing(router: Router, workers: Sequence[str], folder: Path) -> AsyncIterator[str]:
    """The base URL of this router before these replicas; it ends with the block."""
    if router.command is None:
        async with SessionRouter(*workers) as ours:
            yield ours.url
        return
    folder.mkdir(parents=True, exist_ok=True)
    assert router.binary is not None, router.missing
    start = Start(router.binary, folder, free_port(), workers)
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    log = folder / "log"
    with log.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            *router.command(start),
            cwd=folder,
            env=clean | dict(router.environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{start.port}"
        await _until_ready(url, router, child, log)
        yield url
    finally:
        if child.returncode is None:
            child.terminate()  # nginx ends its workers, which a kill would leave behind
            try:
                await asyncio.wait_for(child.wait(), END_S)
            except TimeoutError:
                child.kill()
                await child.wait()


async def _until_ready(url: str, router: Router, child: asyncio.subprocess.Process, log: Path) -> None:
    headers = {"authorization": f"Bearer {router.key}"} if router.key else {}
    async with asyncio.timeout(START_S), httpx.AsyncClient(headers=headers, trust_env=False) as client:
        while True:
            assert child.returncode is None, log.read_text(errors="replace")[-2000:]
            try:
                models = (await client.get(f"{url}/v1/models")).json()
                if models.get("data"):
                    return
            except (httpx.HTTPError, ValueError):
                pass
            await asyncio.sleep(0.1)
