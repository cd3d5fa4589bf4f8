"""`run_python`: what it gives, what it cannot reach, and that it ends."""

from __future__ import annotations

import time

import pytest

from kvchat.chat.tools import python
from kvchat.chat.tools.python import RunPython

pytest.importorskip("pydantic_monty")
pytestmark = pytest.mark.process


async def ran(code: str) -> str:
    [block] = await RunPython().run(None, {"code": code})  # type: ignore[arg-type]
    return block.text


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("import math\nprint(math.sqrt(16))\n6 * 7", "4.0\n42"),
        ("x = 1", "It printed nothing."),
        ("'a' + 1", "TypeError: "),
        ("1 +", "Expected an expression"),
        ("print('before')\n1 / 0", "before\nZeroDivisionError: division by zero"),
    ],
)
async def test_it_gives_what_is_printed_the_last_value_and_how_it_failed(code: str, given: str) -> None:
    assert given in await ran(code)


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import pathlib\npathlib.Path('/etc/passwd').read_text()",
        "import os\nos.environ['HOME']",
        "import os\nos.listdir('/')",
        "import os\nos.system('id')",
        "import socket",
        "import urllib.request",
        "import subprocess",
        "__import__('os')",
    ],
)
async def test_it_reaches_nothing(code: str) -> None:
    assert "Error: " in await ran(code)


@pytest.mark.parametrize(
    "code",
    ["while True: pass", "x = 'a' * 10**9", "[i for i in range(10**9)]", "def f(): return f()\nf()", "10**(10**9)"],
)
async def test_it_ends(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "SECONDS", 1.0)
    began = time.monotonic()
    assert "Error: " in await ran(code)
    assert time.monotonic() - began < 60
