"""The terminal's input as messages: keys, pastes, the mouse, reports.

A sequence that is no key (an answer to whoever asked before, whole or cut by a slow line) is swallowed; a paste never
acts as keys, with paste markers or without. Textual's parser types what it does not know, leaves a paste at the first
ESC inside it, raises for figures it does not expect, and takes Alt and a letter for the letter.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from textual import _xterm_parser as textual_parser
from textual import constants, events
from textual._keyboard_protocol import FUNCTIONAL_KEYS
from textual._xterm_parser import XTermParser
from textual.keys import Keys
from textual.message import Message

from kvchat.clusters import clusters

START, END = textual_parser.BRACKETED_PASTE_START, textual_parser.BRACKETED_PASTE_END
ESC = "\x1b"

ESCAPE_S = constants.ESCAPE_DELAY
"""How long an ESC may be the beginning of something else than the key."""
BEGINNING_S = 1.0
"""How long `ESC [` or `ESC ]`, which Alt and a bracket send too, waits for the next character."""
REST_S = 3.0
"""How long the rest of a sequence may take."""
BURST_S = 0.02
"""How long a line end behind text waits for more of what may be a paste without markers."""
PASTE_S = 10.0
"""How long a paste waits for more: one whose end is lost would take every key."""
LONGEST = 1 << 16
"""Characters of a sequence of which more are not kept: none that is used is as long."""

_STRING = r"[^\x18\x1a\x1b]"
"""Characters of a string: not CAN, SUB and ESC, which end it."""
_SEQUENCE = re.compile(
    r"\x1b(?:\[(?:\[[^\x1b]|M[^\x1b]{3}|(?:3|7|8|23|24)\$|(?![\[M])[ -?]*[@-~])"  # Linux console, X10 mouse, rxvt, CSI
    r"|O[\d;]*[ @-~]"
    r"|\](?:(?!\x07)" + _STRING + r")*(?:\x07|\x1b\\)"
    r"|[PX^_]" + _STRING + r"*\x1b\\)"
)
_BEGINNING = re.compile(
    r"\x1b(?:\[(?:\[|M[^\x1b]{0,2}|[ -?]*)|O[\d;]*"
    r"|\](?:[\dlLI](?:(?!\x07)" + _STRING + r")*\x1b?)?|[PX^_](?:" + _STRING + r"+\x1b?)?)?"
)
_ANSWER = re.compile(r"\x1b(?:\[[ -?M]|O[\d;]|\][\dlLI]|P[ -?]|_G)")
"""Begins what no sequence of keys is."""
_UNENDED_COLOUR = re.compile(r"\x1b\](?:\d+;)+(?:rgba?:|#)[\da-fA-F/]*")
_BACKGROUND = re.compile(r"\x1b\]11;([^\x07\x1b]*)")
_REPORTS = (
    textual_parser._re_in_band_window_resize,
    textual_parser._re_mouse_event,
    textual_parser._re_terminal_mode_response,
    re.compile(r"\x1b\[[IO]"),
)
"""Sequences that Textual handles and that are no key."""
_POSITION = re.compile(r"\x1b\[\d+;\d+R")
_8BIT = str.maketrans({0x80 + ord(second) - 0x40: ESC + second for second in "OPX[\\]^_"})
_CONTROL = re.compile(r"([\x00-\x08\x0b\x0c\x0e-\x1f\x7f])")
_PASTED = re.compile(r"[\r\n][^\r\n]|[^\r\n]\r\n|[^\r\n\t]\t[^\r\n\t]")
"""In one read: a line end with more behind it, or a tab within text. A user's Enter comes alone."""
_LINE_END = re.compile(r"[^\r\n][\r\n]")
_UNPASTED = re.compile(f"{re.escape(END)}|[\0\x1b]")

_SS3_MODIFIED = re.compile(r"\x1bO(?:1;)?(\d+)([A-Za-z])")
_OTHER_KEY = re.compile(r"\x1b\[27;(\d+);(\d+)~")
_EXTENDED = re.compile(r"\x1b\[(\d*)(?::(\d*))?(?::(\d*))?(?:;(\d*)(?::(\d*))?)?(?:;([\d:]*))?([u~ABCDEFHPQS])")
"""Key, the same with Shift, its place on the base layout, modifiers, press or release, text (https://sw.kovidgoyal.net/kitty/keyboard-protocol/)."""
_PLACES = {
    typed: key
    for layout, keys in (
        ("йцукенгшщзхъфывапролджэячсмитьбю", "qwertyuiop[]asdfghjkl;'zxcvbnm,."),
        ("іїєўё", "s]'o`"),
        (";ςερτυθιοπασδφγηξκλζχψωβνμ", "qwertyuiopasdfghjklzxcvbnm"),
        ("/'קראטוןםפשדגכעיחלךזסבהנמצ", "qwertyuiopasdfghjklzxcvbnm"),
    )
    for typed, key in zip(layout, keys, strict=True)
}
"""The key of the base layout of what Russian, Ukrainian, Belarusian, Greek and Hebrew layouts type, where the terminal
does not tell it."""
_CONTROLS = ("Cc", "Cs")
_RELEASE = "3"
_SHIFT, _OTHERS, _CAPS = 0b1, 0b111110, 0b1000000
_PRIVATE = range(0xE000, 0xF900)
"""Numbers of keys that write nothing."""


class Background(Message):
    """The terminal said which colour it has behind its text, as X11 writes it."""

    def __init__(self, colour: str) -> None:
        super().__init__()
        self.colour = colour


class Key(events.Key):
    """A key that writes, whatever Python holds of its characters: joiners of emoji and of Persian, spaces of other
    widths, what Unicode has since. Textual finds handlers by the name of the class."""

    @property
    def is_printable(self) -> bool:
        return True


class TerminalInput(XTermParser):
    """The input of one terminal, read by read. `tick` is to be called after `wait` seconds without a read."""

    def __init__(self, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(debug)
        self.typed_ahead = False
        """Whether a read may hold what was typed over seconds: each line end is an Enter then."""
        self._clock = clock
        self._held = ""
        """A beginning of a sequence, or text that may be a paste without markers; in a paste that of its end."""
        self._until = 0.0
        self._pasted: list[str] | None = None
        """What of a paste has come; None: none is open."""

    @property
    def wait(self) -> float | None:
        """Seconds until `tick` has something to give; None: it has not."""
        return None if self._pasted is None and not self._held else max(0.0, self._until - self._clock())

    def feed(self, data: str) -> Iterator[Message]:
        """What a read gives. What may go on in the next one is held back."""
        yield from self.tick()
        if self._held == ESC and data.startswith(ESC) and self._pasted is None:  # two presses, not Alt and a key
            self._held = ""
            yield _escape()
        data, self._held = self._held + (data if self._pasted is not None else data.translate(_8BIT)), ""
        at = 0
        while at < len(data):
            if self._pasted is not None:
                at, paste = self._paste(data, at, self._pasted)
                yield from paste
            elif data[at] != ESC:
                end = data.find(ESC, at)
                end, is_last = (end, False) if end >= 0 else (len(data), True)
                yield from self._text(data[at:end], is_last)
                at = end
            elif found := _SEQUENCE.match(data, at):
                at = found.end()
                yield from self._message(found[0])
            elif _BEGINNING.fullmatch(data, at):
                self._hold(data[at:])
                return
            elif data.startswith(ESC, at + 1):
                found = _SEQUENCE.match(data, at + 1)
                keys = [*self._keys(found[0])] if found is not None else []
                at = found.end() if found is not None and keys else at + 1
                yield from map(_with_alt, keys) if keys else (_escape(),)
            else:
                begun = _BEGINNING.match(data, at)
                end = max(at + 2, begun.end() if begun is not None else 0)
                end -= data[end - 1] == ESC
                yield from self._given_up(data[at:end])
                at = end

    def tick(self) -> Iterator[Message]:
        """What was held back, once it has waited long enough."""
        if self.wait != 0.0:
            return
        held, self._held = self._held, ""
        if self._pasted is not None:
            yield from self._pasted_now(self._pasted)
        elif held == ESC:
            yield _escape()
        elif held.startswith(ESC):
            yield from self._given_up(held)
        else:
            yield from self._decided(held)

    def _hold(self, held: str) -> None:
        wait = (ESCAPE_S, BEGINNING_S, REST_S)[min(len(held), 3) - 1] if held.startswith(ESC) else BURST_S
        if held.startswith(ESC) and len(held) > LONGEST:
            held = held[:16] + held[-1]
        self._held, self._until = held, self._clock() + wait

    def _given_up(self, held: str) -> Iterator[Message]:
        """What a beginning of a sequence is that does not go on."""
        if colour := _UNENDED_COLOUR.match(held):
            yield from self._message(colour[0])
            yield from self._typed(held[colour.end() :])
        elif not _ANSWER.match(held):
            yield from self._alt(held[1])
            yield from self._typed(held[2:])

    # -- text

    def _text(self, text: str, is_last: bool) -> Iterator[Message]:
        """The keys and pastes in text without an ESC. The end of a read may go on in the next."""
        *before, last = _CONTROL.split(text)
        for part in before:
            yield from self._decided(part)
        if is_last and not self.typed_ahead and (_PASTED.search(last) or _LINE_END.search(last)):
            self._hold(last)
        else:
            yield from self._decided(last)

    def _decided(self, text: str) -> Iterator[Message]:
        if not self.typed_ahead and _PASTED.search(text):
            yield events.Paste(text)
        else:
            yield from self._typed(text.replace("\r\n", "\r"))

    def _typed(self, text: str) -> Iterator[Message]:
        """The keys of a text; what is one character to its reader is one key."""
        joined = {start: end for start, end in clusters(text) if text[start:end] != "\r\n"}
        at = 0
        while at < len(text):
            end = joined.get(at, at + 1)
            character = text[at:end]
            if end - at > 1 or (not character.isprintable() and unicodedata.category(character) not in _CONTROLS):
                yield Key(character, character)
            else:
                yield from self._keys(character)
            at = end

    def _paste(self, data: str, at: int, pasted: list[str]) -> tuple[int, list[Message]]:
        """Take what belongs to the open paste, up to the last end marker before the next start marker: the earlier ones
        were pasted."""
        following = data.find(START, at)
        end = data.rfind(END, at, following if following >= 0 else len(data))
        if end < 0:
            end = data.find(END, at)
        if end < 0:
            self._held = next((END[:n] for n in range(len(END) - 1, 0, -1) if data.endswith(END[:n], at)), "")
            pasted.append(data[at : len(data) - len(self._held)])
            self._until = self._clock() + PASTE_S
            return len(data), []
        pasted.append(data[at:end])
        return end + len(END), self._pasted_now(pasted)

    def _pasted_now(self, pasted: list[str]) -> list[Message]:
        self._pasted = None
        return [events.Paste(_UNPASTED.sub("", "".join(pasted)))]

    # -- sequences

    def _message(self, sequence: str) -> Iterator[Message]:
        """What a whole sequence means; most mean nothing here."""
        if sequence == START:
            self._pasted, self._until = [], self._clock() + PASTE_S
        elif colour := _BACKGROUND.match(sequence):
            yield Background(colour[1])
        elif any(report.fullmatch(sequence) for report in _REPORTS):
            yield from super().feed(sequence)
        elif not _POSITION.fullmatch(sequence):
            yield from self._keys(_SS3_MODIFIED.sub("\x1b[1;\\1\\2", sequence))

    def _keys(self, sequence: str) -> Iterator[events.Key]:
        return (key for key in self._sequence_to_key_events(sequence) if key.key != Keys.Ignore)

    def _alt(self, character: str) -> Iterator[events.Key]:
        """An ESC and a character."""
        if character in "\r\n":
            return iter((events.Key("alt+enter", None),))
        if character in "\t\x7f":
            return self._keys(ESC + character)
        return map(_with_alt, self._keys(character))

    def _parse_extended_key(self, sequence: str) -> list[events.Key] | None:  # type: ignore[override]
        """As Textual has it, for every form of the figures; a release is nothing. Without Ctrl, Alt and the like a key
        writes its character, whether the terminal names that or not; with one of them it does not."""
        found = _EXTENDED.fullmatch(_OTHER_KEY.sub("\x1b[\\2;\\1u", sequence))
        if found is None:
            return None
        number, shifted, base, modifiers, event, text, end = found.groups(default="")
        if event == _RELEASE:
            return []
        try:
            code, held = int(number or "1"), int(modifiers or "1") - 1
            if f"{code}{end}" not in FUNCTIONAL_KEYS:
                if end != "u" or not number or (code < 32 and not text) or code in _PRIVATE:
                    return None
                character = chr(code)
                if held & _OTHERS:
                    text = "" if text and chr(int(text.partition(":")[0])).lower() == character.lower() else text
                    number = str(ord(_on_base_layout(character, chr(int(base)) if base else "")))
                elif not text and character.isprintable():
                    text = str(ord(_with_shift(character, shifted, held)))
            return super()._parse_extended_key(f"{ESC}[{number};{modifiers};{text}".rstrip(";") + end)
        except (ValueError, OverflowError):  # no number, or no character's number
            return []

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        """As Textual has it; extended keys are read whoever has asked for them."""
        keys = self._parse_extended_key(sequence)
        if keys is None:
            return super()._sequence_to_key_events(sequence, alt)
        return [key.copy() for key in keys]  # they are kept for the next time, and an event is handled once

    def parse_mouse_code(self, code: str) -> Message | None:
        try:
            return super().parse_mouse_code(code)
        except ZeroDivisionError:  # in pixels, after a report of a size of nothing
            return None


def _escape() -> events.Key:
    return events.Key("escape", ESC)


def _with_alt(key: events.Key) -> events.Key:
    name = _on_base_layout(key.key) if len(key.key) == 1 else key.key
    name = f"shift+{name.lower()}" if len(name) == 1 and name.isupper() else name
    return events.Key(f"alt+{name}", None)


def _on_base_layout(character: str, base: str = "") -> str:
    """The key that Ctrl, Alt and the like are held with: a letter of ASCII, and of any Latin layout, is itself; of
    other scripts it is the one in its place. `base`: as the terminal tells it; empty: it does not. A sign of ASCII is
    another key only on layouts without Latin letters: Dvorak has signs in the places of letters too."""
    known = _PLACES.get(character.lower(), "")
    if character.isascii():
        return base if base and base == known else character
    if unicodedata.name(character, "LATIN").startswith("LATIN"):
        return character
    place = base or known or character
    return place.upper() if character.isupper() else place


def _with_shift(character: str, shifted: str, held: int) -> str:
    """What a key writes with Shift and Caps Lock."""
    if held & _SHIFT and shifted:
        return chr(int(shifted))
    if bool(held & _SHIFT) is not bool(held & _CAPS) and len(character.upper()) == 1:
        return character.upper()
    return character
