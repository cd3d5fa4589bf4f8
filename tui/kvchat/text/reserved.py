"""Why a parameter cannot be set, in words."""

from __future__ import annotations

from kvchat.prompt.request import Reserved, reserved

_WORDS = {
    Reserved.OWN: "kvchat sends this field itself",
    Reserved.STREAM: "kvchat reads one streamed answer",
    Reserved.PROMPT: "it would change the prompt, and all of it would be prefilled again",
    Reserved.TEMPLATE: "it is an option of the model's template, and would change the prompt",
    Reserved.CACHE: "it decides which cache the conversation finds",
    Reserved.CONTEXT_SIZE: "the server's setting context_size says this",
    Reserved.KEEP_ALIVE: "the server's setting keep_alive says this",
    Reserved.OPTIONS: "its fields are set one by one, without options around them",
}


def reserved_words(name: str) -> str | None:
    """Why parameters cannot set the field `name`; None where they can."""
    why = reserved(name)
    return None if why is None else f"cannot be set: {_WORDS[why]}"
