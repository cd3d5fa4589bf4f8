"""What to change, in words with the exact flag or setting of the server in use.

The rule: no flag of another server; where nothing is known to help, no advice. What a kind of server can be told
stands in its module (`backends/dialects`), as values; here are the words around them.
"""

from __future__ import annotations

from kvchat.backends.dialect import ServerInfo
from kvchat.backends.kinds import kind_of, title_of
from kvchat.cache.causes import remedies
from kvchat.cache.causes.remedies import ENGINE_FLAGS, Change, Flags, Way
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.text.findings import remedy_sentence

ROOMY = 16384
"""Tokens of a window that a long conversation fits in."""
SESSION_HEADER = "X-Session-ID"
SNAPSHOTS = "Keep kvchat's data on a faster disk (--data-dir DIR), or set engine.snapshots to false."
"""Only the built-in engine saves slots."""


def flags_of(info: ServerInfo) -> Flags:
    return ENGINE_FLAGS if info.embedded else kind_of(info.kind).flags


def _program(info: ServerInfo) -> str:
    return flags_of(info).program or title_of(info.kind)


def _change(info: ServerInfo, change: Change, size: int = 0, more: str = "") -> str:
    """A change as a sentence; `more`: a remark behind the flag."""
    flag, where = change.flag.format(size=size, whole=size * (info.slots or 1)), change.where or _program(info)
    match change.way:
        case Way.SET:
            return f"Set {flag} in {where}."
        case Way.RAISE:
            return f"Raise {flag} in {where}."
        case Way.UPDATE:
            return f"Update {where}: {flag}."
    return f"Start {where} with {flag}{more}."


def _inside(sentence: str) -> str:
    """A sentence as it goes inside another."""
    return f"{sentence[0].lower()}{sentence[1:]}"


def keep_beside(info: ServerInfo) -> str:
    """So that a conversation outlives a request of another kind."""
    flags = flags_of(info)
    if info.embedded:
        return "Set engine.slots to 2."
    if flags.host_cache:
        parked = remedy_sentence(remedies.more_slots(flags, Shape(ram_bytes=0)))
        return f"{parked} Or give it a slot more: {flags.slots.format(slots=(info.slots or 1) + 1)}."
    if flags.beside is not None:
        return _change(info, flags.beside)
    if flags.cache_room:
        return f"Give {title_of(info.kind)} more cache: a larger {flags.cache_room}."
    if flags.is_proxy:
        return f"Run the doctor on the server behind {title_of(info.kind)}: its own settings decide."
    return "Give the server room for more than one conversation."


def larger_window(info: ServerInfo, trained: int | None) -> str:
    """A window that long conversations fit in, as large as the model was trained for."""
    size, flags = min(trained or ROOMY, ROOMY), flags_of(info)
    if info.embedded:
        return f"Set engine.context_size to {size}."
    if flags.window is None:
        return f"Give the server a window of {size:,} tokens."
    shared = f" (for {info.slots} slots together)" if "{whole}" in flags.window.flag and (info.slots or 1) > 1 else ""
    sentence = _change(info, flags.window, size, shared)
    if flags.asked_window:
        return (f"Set server.context_size to {size}, which kvchat asks {title_of(info.kind)} for "
                f"({flags.asked_window}), or {_inside(sentence)}")
    return sentence


def caching_on(info: ServerInfo) -> str:
    flags = flags_of(info)
    if flags.caching is not None:
        return _change(info, flags.caching)
    return remedy_sentence(remedies.caching_off(info.kind, flags))


def affinity(info: ServerInfo) -> str:
    """So that a conversation stays on the server that holds it."""
    flags = flags_of(info)
    if flags.affinity:
        return (f"Switch {title_of(info.kind)}'s session affinity on ({flags.affinity}); kvchat sends "
                f"{flags.affinity_header}.")
    return (f"Let the router go by the header {SESSION_HEADER} that kvchat sends: nginx: hash $http_x_session_id "
            f"consistent; HAProxy: balance hdr({SESSION_HEADER}); vllm-router: --policy consistent_hash; "
            "sglang-router: --policy manual (it goes by X-SMG-Routing-Key).")


def _template(info: ServerInfo, which: str) -> str:
    """That another template can be given; empty where it cannot."""
    flag = flags_of(info).template
    return f"Start {_program(info)} with {flag}, a copy of the template {which}" if flag else ""


def without_date(info: ServerInfo, date_option: bool | None) -> str:
    flags = flags_of(info)
    if date_option:
        flag = f" ({_program(info)}: {flags.fix_date})" if flags.fix_date else ""
        return f"Fix the date with date_string in the conversation's template options{flag}."
    if template := _template(info, "without the date"):
        return f"{template}{f'; {flags.without_date}' if flags.without_date else ''}."
    return flags.without_date


def keep_reasoning(info: ServerInfo, when_asked: bool) -> str:
    flags = flags_of(info)
    if when_asked:
        own = flags.keep_reasoning
        flag = f"; for other programs start {_program(info)} with {own}" if own else ""
        return f"kvchat asks for it in new conversations (preserve_reasoning){flag}."
    template = _template(info, "that keeps it")
    plain = remedy_sentence(remedies.keep_reasoning(False))
    return f"{template}. {plain}" if template else plain


def system_in_place(info: ServerInfo) -> str:
    template = _template(info, "that writes the system message first")
    return f"Let the system message go in the first question.{f' Or {_inside(template)}.' if template else ''}"


def pinning(info: ServerInfo) -> str:
    flag = flags_of(info).pinning
    return f"If a program pins (id_slot), start {_program(info)} with {flag}." if flag else ""


def stays_loaded(info: ServerInfo) -> str:
    flags = flags_of(info)
    own = f' Or set server.keep_alive to "{flags.keep_alive}".' if flags.keep_alive else ""
    return remedy_sentence(remedies.unloaded(info.kind, flags)) + own
