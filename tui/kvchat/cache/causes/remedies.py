"""What helps against a cause, with the exact flag or setting of the server in use.

There is none where nothing helps, and never a flag of another server.
"""

from __future__ import annotations

from enum import StrEnum, auto

from msgspec import Struct

from kvchat.cache.causes.cause import Remedy
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.values import Statement, said


class RemedyWay(StrEnum):
    """How something is changed at a server."""

    START = auto()
    """It is started with a flag."""
    SET = auto()
    """A setting gets this value."""
    RAISE = auto()
    UPDATE = auto()
    """A newer version needs no flag."""


class RemedyChange(Struct, frozen=True):
    """A flag or a setting, ready to be typed, and where it is changed."""

    flag: str
    """`{size}`: a number of tokens; `{whole}`: those of all slots."""
    where: str = ""
    """The program that is started, the file or the screen; empty: the kind's own program."""
    way: RemedyWay = RemedyWay.START


class Flags(Struct, frozen=True):
    """The flags and settings of one kind of server that are worth naming. Empty or None: it has none."""

    program: str = ""
    """What is started with flags; empty: as the kind is called."""
    window: RemedyChange | None = None
    """For a larger window."""
    more_room: RemedyChange | None = None
    """For room next to a conversation, so that it outlives a request of another kind."""
    caching: RemedyChange | None = None
    """For a cache that is off."""
    no_caching: str = ""
    """A sentence, where a flag switches its cache off."""
    asked_to_cache: bool = False
    """Whether every request asks for caching, so that only a proxy can have switched it off."""
    idle: str = ""
    """A sentence: how a model stays loaded."""
    keep_alive: str = ""
    """A value of kvchat's own setting `server.keep_alive`, where the kind takes that with a request."""
    report: str = ""
    """A sentence: how it reports cached tokens."""
    host_cache: str = ""
    """For idle conversations that are kept in the server's memory."""
    slots: str = ""
    """For more slots; `{slots}` is their number."""
    more_models: str = ""
    """For more models that are loaded at a time; `{models}` is their number."""
    cache_room: str = ""
    """For more cache memory; `{mib}` is its size."""
    no_shift: str = ""
    """Against old text that is dropped."""
    whole_window: str = ""
    checkpoints: str = ""
    """`{count}` is their number."""
    slot_folder: str = ""
    """For slots that are saved to files, and come back."""
    pinning: str = ""
    """For slots that can be named without a loss."""
    template: str = ""
    """For another chat template, from a file."""
    without_date: str = ""
    """A sentence more, or another one where there is no `template`: what else keeps the date out of the prompt."""
    fix_date: str = ""
    """For a date that the template is given."""
    keep_reasoning: str = ""
    """For a template that can keep reasoning, if asked to."""
    affinity: str = ""
    """The setting of a router by which a conversation stays on one server."""
    affinity_header: str = ""
    """The header that it goes by."""
    asked_window: str = ""
    """The field of every request that carries kvchat's own setting `server.context_size`."""
    is_proxy: bool = False
    """Whether the flags that count are those of the server behind it."""

    @property
    def caches(self) -> Statement:
        """What switches its cache on, or finds out what switched it off."""
        if self.asked_to_cache:
            return said(Remedy.LOOK_FOR_PROXY)
        if self.caching is not None and self.caching.way is RemedyWay.START:
            return said(Remedy.SWITCH_CACHING_ON, flag=self.caching.flag, program=self.caching.where)
        return said(Remedy.SWITCH_CACHING_ON, words=self.no_caching or None)

    @property
    def reports(self) -> Statement | None:
        """What makes it report cached tokens; None where the user can do nothing about it."""
        return said(Remedy.REPORT, words=self.report) if self.report else None

    def stays_loaded(self, room: int | None = None) -> Statement:
        """What keeps a model loaded. `room`: how many models the server keeps loaded, where one more takes the place of
        another."""
        if room and self.more_models:
            return said(Remedy.MORE_MODELS, flag=self.more_models.format(models=room + 1))
        return said(Remedy.STAYS_LOADED) if self is ENGINE_FLAGS else said(Remedy.SLEEP_LATER, words=self.idle or None)


ENGINE_FLAGS = Flags(window=RemedyChange("engine.context_size = {size}"), slots="engine.slots to {slots}")
"""The built-in engine has settings instead."""


def restarted(embedded: bool, flags: Flags, saves: bool | None = None) -> Statement | None:
    """What kvchat saved of the slots outlives a restart. `saves`: whether the server saves them already."""
    if embedded:
        return said(Remedy.KEEP_SNAPSHOTS)
    if saves:
        return said(Remedy.SAVES_IN_APP)
    return said(Remedy.SAVE_SLOTS, flag=flags.slot_folder) if flags.slot_folder else None


def keep_window(flags: Flags) -> Statement:
    """Against a window that is changed: it is a setting of kvchat's own where that says it to the server."""
    embedded = "engine.context_size" if flags is ENGINE_FLAGS else None
    return said(Remedy.KEEP_WINDOW, setting=embedded or ("server.context_size" if flags.asked_window else None))


def larger_window(flags: Flags, tokens: int | None) -> Statement:
    """A window for at least `tokens`, rounded up to a power of two."""
    size, change = 1 << max(12, (tokens or 0).bit_length()), flags.window
    named = change is not None and change.way is RemedyWay.START
    return said(Remedy.LARGER_WINDOW, flag=change.flag.format(size=size, whole=size) if change and named else None)


def no_shift(flags: Flags, tokens: int | None) -> Statement:
    return said(Remedy.NO_SHIFT, flag=flags.no_shift) if flags.no_shift else larger_window(flags, tokens)


def keep_reasoning(can_keep: bool | None, option: tuple[str, bool] | None = None) -> Statement:
    """`can_keep`: whether the template has an option for it, `option` with its value; None: not known."""
    if can_keep is False:
        return said(Remedy.WARM_UP_REASONING)
    name, value = option or ("preserve_reasoning", True)
    return said(Remedy.KEEP_REASONING, known=bool(can_keep), option=name, on=value)


def apart(flags: Flags, shape: Shape | None, shared: bool) -> Statement | None:
    """Against a request of ours that took the slot. `shared`: both prompts begin alike, and then the server takes the
    same slot again, however many there are."""
    return said(Remedy.KEEP_APART) if shared else more_slots(flags, shape)


def another_program(flags: Flags, shape: Shape | None, shared: bool) -> Statement | None:
    """Against a request of another program; `shared` as in `apart`."""
    return said(Remedy.OTHER_SYSTEM_PROMPT) if shared else more_slots(flags, shape)


def more_slots(flags: Flags, shape: Shape | None) -> Statement | None:
    slots = max(2, (shape.slots if shape is not None else 1) + 1)
    if shape is not None and shape.ram_bytes == 0:
        return said(Remedy.HOST_CACHE, flag=flags.host_cache) if flags.host_cache else None
    if not flags.slots:
        return None
    embedded = flags is ENGINE_FLAGS or None
    return said(Remedy.MORE_SLOTS, flag=flags.slots.format(slots=slots), embedded=embedded)


def more_cache(flags: Flags, shape: Shape | None) -> Statement | None:
    if flags is ENGINE_FLAGS:
        return None
    ram = shape.ram_bytes if shape is not None else None
    room = max(8192, (ram >> 20) * 2) if ram else 16384
    return said(Remedy.MORE_CACHE, flag=flags.cache_room.format(mib=room) or None)


def check_answer(flags: Flags) -> Statement:
    """Against states that the host cache mixes up: without one there are none."""
    return said(Remedy.CHECK_ANSWER, flag=flags.cache_room.format(mib=0) or None)


def checkpoints(flags: Flags, shape: Shape | None) -> Statement | None:
    if shape is None or not flags.checkpoints or shape.whole_window:
        return None
    if shape.rewind == "window":
        return said(Remedy.WHOLE_WINDOW, flag=flags.whole_window)
    return said(Remedy.MORE_CHECKPOINTS, flag=flags.checkpoints.format(count=max(32, shape.checkpoints * 2)))
