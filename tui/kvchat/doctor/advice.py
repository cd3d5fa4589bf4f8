"""What to change, with the exact flag or setting of the server in use.

It never names a flag of another server; where nothing is known to help, there is no advice. The flags and settings of a
kind of server are values in its row (`kvchat.backends.kinds`).
"""

from __future__ import annotations

from kvchat.backends.dialect import PRESERVED, ServerInfo
from kvchat.backends.kinds import kind_of, title_of
from kvchat.cache import ENGINE_FLAGS, Remedy, RemedyChange, RemedyWay
from kvchat.text.doctor import Advice
from kvchat.values import Statement, said

Advised = tuple[Statement, ...]
_CHANGES = {
    RemedyWay.START: Advice.START,
    RemedyWay.SET: Advice.SET,
    RemedyWay.RAISE: Advice.RAISE,
    RemedyWay.UPDATE: Advice.NEWER,
}
ROOMY = 16384
"""Tokens of a window that a long conversation fits in."""
SESSION_HEADER = "X-Session-ID"


class Advisor:
    """What helps on one server; each method gives the statements of one advice, none where nothing helps."""

    def __init__(self, info: ServerInfo, unified: bool | None = None) -> None:
        """`unified`: whether one KV cache serves all slots; None: not known."""
        self._info = info
        self._unified = unified
        self.flags = ENGINE_FLAGS if info.embedded else kind_of(info.kind).flags
        self.title = title_of(info.kind)
        self._program = self.flags.program or self.title

    def _change(self, change: RemedyChange, size: int = 0) -> Statement:
        """A flag for all slots counts once what they share; where that is not known, both are named."""
        slots = (self._info.slots or 1) if "{whole}" in change.flag else 1
        shared = slots > 1 and self._unified is not False
        apart = slots > 1 and self._unified is not True
        return said(
            _CHANGES[change.way],
            flag=change.flag.format(size=size, whole=size if shared else size * slots),
            where=change.where or self._program,
            slots=slots if slots > 1 else None,
            shared=(shared and not apart) or None,
            apart=change.flag.format(size=size, whole=size * slots) if shared and apart else None,
        )

    def start(self, advice: Advice, flag: str, **more: str) -> Advised:
        """To start the program with a flag; nothing where the kind has none."""
        return (said(advice, program=self._program, flag=flag, **more),) if flag else ()

    def keep_more(self) -> Advised:
        """So that a conversation outlives a request of another kind."""
        flags = self.flags
        if self._info.embedded:
            return (said(Advice.SET, flag="engine.slots to 2"),)
        if flags.host_cache:
            more = said(Advice.SLOT_MORE, flag=flags.slots.format(slots=(self._info.slots or 1) + 1))
            return said(Remedy.HOST_CACHE, flag=flags.host_cache), more
        if flags.more_room is not None:
            return (self._change(flags.more_room),)
        if flags.cache_room:
            return (said(Advice.CACHE_ROOM, title=self.title, flag=flags.cache_room),)
        return (said(Advice.BEHIND, title=self.title) if flags.is_proxy else said(Advice.MORE_ROOM),)

    def larger_window(self, trained: int | None) -> Advised:
        """A window that long conversations fit in, as large as the model was trained for."""
        size, flags = min(trained or ROOMY, ROOMY), self.flags
        if self._info.embedded:
            return (said(Advice.SET, flag=f"engine.context_size to {size}"),)
        if flags.window is None:
            return (said(Advice.WINDOW, size=size),)
        change = self._change(flags.window, size)
        if flags.asked_window:
            return said(Advice.ASKED_WINDOW, size=size, title=self.title, flag=flags.asked_window), change
        return (change,)

    def caching_on(self) -> Advised:
        """How to switch the prompt cache on, as the kind's flags have it; where it has none, what else helps."""
        caching = self.flags.caching
        return (self.flags.caches if caching is None else self._change(caching),)

    def not_reported(self) -> Advised:
        """How to have cached tokens reported."""
        return _known(self.flags.reports)

    def affinity(self) -> Advised:
        """So that a conversation stays on the server that holds it."""
        flags = self.flags
        if flags.affinity:
            return (said(Advice.AFFINITY, title=self.title, flag=flags.affinity, header=flags.affinity_header),)
        return (said(Advice.AFFINITY, header=SESSION_HEADER),)

    def _template(self, which: str, more: str = "") -> Advised:
        return self.start(Advice.OTHER_TEMPLATE, self.flags.template, which=which, more=more)

    def without_date(self, date_option: bool | None) -> Advised:
        flags = self.flags
        if date_option:
            return (said(Advice.DATE_OPTION, program=self._program, flag=flags.fix_date),)
        words = (said(Advice.WORDS, words=flags.without_date),) if flags.without_date else ()
        return self._template("date", flags.without_date) or words

    def keep_reasoning(self, when_asked: bool) -> Advised:
        if not when_asked:
            return *self._template("reasoning"), said(Remedy.WARM_UP_REASONING)
        option, _ = self._info.reasoning_option or PRESERVED
        return (said(Advice.PRESERVED, option=option, program=self._program, flag=self.flags.keep_reasoning),)

    def system_in_place(self) -> Advised:
        template = self._template("system")
        return said(Advice.FIRST_QUESTION), *((said(Advice.OR), *template) if template else ())

    def stays_loaded(self, asleep: bool) -> Advised:
        """`asleep`: whether it is time that unloads the model, and not another model."""
        room = self._info.room_for_models
        if room is not None and not asleep:
            return self.start(Advice.START_PROGRAM, self.flags.more_models.format(models=room + 1))
        value = self.flags.keep_alive
        own = (said(Advice.KEEP_ALIVE, value=value),) if value else ()
        return self.flags.stays_loaded(), *own


def _known(remedy: Statement | None) -> Advised:
    return (remedy,) if remedy is not None else ()
