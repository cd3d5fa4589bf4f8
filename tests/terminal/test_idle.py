"""The reader sleeps while nobody types, and is woken by the end."""

from __future__ import annotations

import selectors

from kvchat.ui.terminal.driver import _Ending


def test_the_end_wakes_who_waits_for_a_key() -> None:
    ending = _Ending()
    with selectors.SelectSelector() as selector:
        selector.register(ending, selectors.EVENT_READ)
        for _ in range(2):  # the terminal may be given away, and taken again
            assert not selector.select(0) and not ending.is_set()
            ending.set()
            assert selector.select(None) and ending.is_set()
            ending.clear()
