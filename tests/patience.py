"""How long kvchat waits for what may be slow, made long: on a busy machine everything is. What is done without an
answer is tried by tests that set their own limits."""

from __future__ import annotations

import importlib

SECONDS = {
    "kvchat.backends.base": {"GET_S": 60.0, "PROBE_S": 30.0},
    "kvchat.backends.dialects.llamacpp": {"PROBE_S": 30.0},
    "kvchat.backends.tokens": {"WAIT_S": 10.0},
    "kvchat.chat.cache.prices": {"PRICE_S": 20.0},
    "kvchat.chat.cache.tracker": {"LOOK_S": 10.0},
    "kvchat.chat.background.vectors": {"QUESTION_S": 6.0},
    "kvchat.chat.cache.server_cache": {"LOOK_S": 10.0, "READ_S": 10.0},
    "kvchat.chat.cache.routes": {"DETOUR_S": 40.0, "PLAN_S": 20.0},
    "kvchat.chat.cache.states.state_saver": {"SPARE_S": 40.0},
    "kvchat.chat.background.memory_service": {"RECALL_S": 10.0, "FIRST_RECALL_S": 60.0},
}


def use() -> None:
    for name, limits in SECONDS.items():
        module = importlib.import_module(name)
        for limit, seconds in limits.items():
            assert hasattr(module, limit), f"{name} has no {limit}"
            setattr(module, limit, seconds)
