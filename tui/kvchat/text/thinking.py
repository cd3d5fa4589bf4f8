"""A model's thinking in words: what can be asked for, and what a model lacks."""

from __future__ import annotations

EFFORTS = ("low", "medium", "high")
THINKING = {"on": "Thinking on", "off": "Thinking off", "auto": "Thinking as the server has it",
            **{effort: f"Thinking at {effort} effort" for effort in EFFORTS}}
"""By the word that asks for it."""
USAGE = "/thinking takes on, off, auto, low, medium or high"


def no_thinking(word: str, *, takes_effort: bool, switches: bool) -> str:
    """What a model lacks that was asked to think, and what it has instead."""
    if word in EFFORTS:
        return "This model has no thinking effort." + (" It thinks, or not: /thinking on or off." if switches else "")
    return "This model has no thinking switch." + (" It takes /thinking low, medium or high." if takes_effort else "")


def thinking_words(word: str, *, known: bool) -> str:
    """What is set now. `known`: whether the model has the switch."""
    return THINKING[word] if known or word == "auto" else f"{THINKING[word]}, if this model has the switch"
