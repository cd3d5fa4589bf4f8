"""How often a test tries what comes out another way each time. `tests/gates.py` asks for more than CI can wait for, as
KVCHAT_TRIES="store_kills=2000 sse_streams=5000000"."""

from __future__ import annotations

import os

ASKED = dict(one.split("=", 1) for one in os.environ.get("KVCHAT_TRIES", "").split())


def tries(name: str, usual: int) -> int:
    return int(ASKED.get(name, usual))
