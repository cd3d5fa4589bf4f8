"""What to change, with the exact flag or setting of the server in use; `kvchat.text.doctor` has the words.

The rule: no flag of another server; where nothing is known to help, no advice. What a kind of server can be told
stands in its module (`backends/dialects`), as values.
"""

from __future__ import annotations

from kvchat.backends.dialect import PRESERVED, ServerInfo
from kvchat.backends.kinds import kind_of, title_of
from kvchat.cache.causes import remedies
from kvchat.cache.causes.cause import Statement, said
from kvchat.cache.causes.remedies import ENGINE_FLAGS, Change, Flags, Way
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.text.doctor import Advice

Advised = tuple[Statement, ...]
_CHANGES = {Way.START: Advice.START, Way.SET: Advice.SET, Way.RAISE: Advice.RAISE, Way.UPDATE: Advice.NEWER}
ROOMY = 16384
"""Tokens of a window that a long conversation fits in."""
SESSION_HEADER = "X-Session-ID"


def flags_of(info: ServerInfo) -> Flags:
    return ENGINE_FLAGS if info.embedded else kind_of(info.kind).flags


def _program(info: ServerInfo) -> str:
    return flags_of(info).program or title_of(info.kind)


def _change(info: ServerInfo, change: Change, size: int = 0, slots: int | None = None) -> Statement:
    """`slots`: for how many the flag counts, where it is more than one."""
    flag, where = change.flag.format(size=size, whole=size * (info.slots or 1)), change.where or _program(info)
    return said(_CHANGES[change.way], flag=flag, where=where, slots=slots)


def keep_beside(info: ServerInfo) -> Advised:
    """So that a conversation outlives a request of another kind."""
    flags = flags_of(info)
    if info.embedded:
        return (said(Advice.SET, flag="engine.slots to 2"),)
    if flags.host_cache:
        more = said(Advice.SLOT_MORE, flag=flags.slots.format(slots=(info.slots or 1) + 1))
        return *_known(remedies.more_slots(flags, Shape(ram_bytes=0))), more
    if flags.beside is not None:
        return (_change(info, flags.beside),)
    if flags.cache_room:
        return (said(Advice.CACHE_ROOM, title=title_of(info.kind), flag=flags.cache_room),)
    if flags.is_proxy:
        return (said(Advice.BEHIND, title=title_of(info.kind)),)
    return (said(Advice.MORE_ROOM),)


def larger_window(info: ServerInfo, trained: int | None) -> Advised:
    """A window that long conversations fit in, as large as the model was trained for."""
    size, flags = min(trained or ROOMY, ROOMY), flags_of(info)
    if info.embedded:
        return (said(Advice.SET, flag=f"engine.context_size to {size}"),)
    if flags.window is None:
        return (said(Advice.WINDOW, size=size),)
    shared = info.slots if "{whole}" in flags.window.flag and (info.slots or 1) > 1 else None
    change = _change(info, flags.window, size, shared)
    if flags.asked_window:
        return said(Advice.ASKED_WINDOW, size=size, title=title_of(info.kind), flag=flags.asked_window), change
    return (change,)


def caching_on(info: ServerInfo) -> Advised:
    """How to switch the prompt cache on, as the kind's flags have it; where it has none, what `remedies` knows."""
    flags = flags_of(info)
    return (_change(info, flags.caching) if flags.caching is not None else remedies.caching_off(flags),)


def not_reported(info: ServerInfo) -> Advised:
    """How to have cached tokens reported; empty where the kind cannot."""
    return _known(remedies.not_reported(flags_of(info)))


def affinity(info: ServerInfo) -> Advised:
    """So that a conversation stays on the server that holds it."""
    flags = flags_of(info)
    if flags.affinity:
        return (said(Advice.AFFINITY, title=title_of(info.kind), flag=flags.affinity, header=flags.affinity_header),)
    return (said(Advice.AFFINITY, header=SESSION_HEADER),)


def _template(info: ServerInfo, which: str, more: str = "") -> Advised:
    """That another template can be given; nothing where it cannot."""
    flag = flags_of(info).template
    return (said(Advice.OTHER_TEMPLATE, program=_program(info), flag=flag, which=which, more=more),) if flag else ()


def without_date(info: ServerInfo, date_option: bool | None) -> Advised:
    flags = flags_of(info)
    if date_option:
        return (said(Advice.DATE_OPTION, program=_program(info), flag=flags.fix_date),)
    words = (said(Advice.WORDS, words=flags.without_date),) if flags.without_date else ()
    return _template(info, "date", flags.without_date) or words


def keep_reasoning(info: ServerInfo, when_asked: bool) -> Advised:
    if when_asked:
        return (
            said(
                Advice.PRESERVED,
                option=(info.reasoning_option or PRESERVED)[0],
                program=_program(info),
                flag=flags_of(info).keep_reasoning,
            ),
        )
    return *_template(info, "reasoning"), remedies.keep_reasoning(False)


def system_in_place(info: ServerInfo) -> Advised:
    template = _template(info, "system")
    return said(Advice.FIRST_QUESTION), *((said(Advice.OR), *template) if template else ())


def pinning(info: ServerInfo) -> Advised:
    flag = flags_of(info).pinning
    return (said(Advice.UNPINNED, program=_program(info), flag=flag),) if flag else ()


def slot_folder(info: ServerInfo) -> Advised:
    flag = flags_of(info).slot_folder
    return (said(Advice.SLOT_FOLDER, program=_program(info), flag=flag),) if flag else ()


def stays_loaded(info: ServerInfo) -> Advised:
    flags = flags_of(info)
    own = (said(Advice.KEEP_ALIVE, value=flags.keep_alive),) if flags.keep_alive else ()
    return remedies.unloaded(flags), *own


def _known(remedy: Statement | None) -> Advised:
    return (remedy,) if remedy is not None else ()
