"""Memory in words, the same in the app and in plain mode."""

from __future__ import annotations

from collections.abc import Mapping

WHY_OFF: Mapping[str, str] = {
    "": "Memory is on in this conversation.",
    "incognito": "An incognito run remembers nothing.",
    "settings": "Memory is switched off in the settings: memory.enabled = false.",
    "conversation": "Memory is off in this conversation.",
    "internet": "This conversation goes to a service on the internet; memory.on_cloud = true allows memory there.",
}
"""Whether a conversation has memory, by why not."""
