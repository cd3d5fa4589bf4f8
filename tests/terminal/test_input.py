"""What a terminal sends, as keys and pastes: nothing that is no key is typed or acts, wherever it is cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message

from corpus import corpus
from kvchat.ui.terminal.input import (
    BEGINNING_S,
    BURST_S,
    END,
    ESCAPE_S,
    PASTE_S,
    REST_S,
    START,
    Background,
    TerminalInput,
)
from terminal_replies import REPLIES


class Terminal:
    """A terminal's input, at a time that stands still."""

    def __init__(self) -> None:
        self.now = 0.0
        self.input = TerminalInput(clock=lambda: self.now)

    def sends(self, *reads: str, rest: float = 0.0) -> list[str]:
        """What these reads give, each followed by so many seconds, and the last by as many as anything waits."""
        said: list[Message] = []
        for read in reads:
            said += self.input.feed(read)
            said += self.rests(rest)
        return named([*said, *self.rests(REST_S)])

    def rests(self, seconds: float) -> list[Message]:
        self.now += seconds
        return [*self.input.tick()]


def named(said: Iterable[Message]) -> list[str]:
    """Keys by name, what is typed in quotes, pastes as `paste:TEXT`."""
    return [
        f"paste:{event.text}"
        if isinstance(event, events.Paste)
        else repr(event.character)
        if event.is_printable
        else event.key
        for event in said
        if isinstance(event, events.Key | events.Paste)
    ]


def sent(*reads: str, rest: float = 0.0) -> list[str]:
    return Terminal().sends(*reads, rest=rest)


# What is no key.


@corpus("name", REPLIES)
def test_a_reply_is_nothing_whole_cut_or_doubled(name: str) -> None:
    reply = REPLIES[name]
    assert sent(reply, "x") == ["'x'"]
    assert sent(reply * 2 + "x") == ["'x'"]
    assert sent("a" + reply + "b") == ["'a'", "'b'"]
    for at in range(1, len(reply)):
        assert sent(reply[:at], reply[at:] + "x", rest=ESCAPE_S / 2) == ["'x'"], at
        if at > 1:
            assert sent(reply[:at], reply[at:] + "x", rest=BEGINNING_S / 2) == ["'x'"], at
    assert sent(*reply, "x", rest=ESCAPE_S / 2) == ["'x'"]


@pytest.mark.parametrize("end", ["\x1b\\", "\x07", "\x9c"])
def test_the_colour_behind_the_text_is_told(end: str) -> None:
    told = [one for one in TerminalInput().feed(f"\x1b]11;rgb:ffff/ffff/ffff{end}") if isinstance(one, Background)]
    assert [one.colour for one in told] == ["rgb:ffff/ffff/ffff"]


def test_a_colour_without_its_end_takes_nothing_along() -> None:
    assert sent("\x1b]11;rgb:0000/0000/0000", "hello") == ["'h'", "'e'", "'l'", "'l'", "'o'"]


def test_a_reply_that_breaks_off_takes_no_key_along() -> None:
    assert sent("\x1b[<35;10;\x1b[A") == ["up"]
    assert sent("\x1b]11;rgb:00\x1b[A") == ["up"]
    assert sent("\x1bP1$r\x1b[Ax") == ["up", "'x'"]
    assert sent("\x1b[?62;2\rx", rest=REST_S) == ["paste:\rx"]


def test_a_reply_of_a_megabyte_is_read_at_once() -> None:
    reply = "\x1b]52;c;" + "aGVs" * 300_000 + "\x07x"
    assert sent(*(reply[at : at + 4096] for at in range(0, len(reply), 4096))) == ["'x'"]


@given(
    st.lists(st.text(st.sampled_from("\x1b[]0123456789;:<?>uMmtRIO~ab\x00\ufffd漢PX\\\x07"), min_size=1), max_size=6)
)
def test_whatever_is_sent_the_next_key_is_a_key(reads: list[str]) -> None:
    terminal = Terminal()
    terminal.sends(*reads, END)
    assert terminal.sends("x") == ["'x'"]


# Keys.


@corpus(
    ("data", "key"),
    [
        ("\x1b\r", "alt+enter"),
        ("\x1b\n", "alt+enter"),
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1b[27;2;13~", "shift+enter"),
        ("\x1b[13;2u", "shift+enter"),
        ("\x1b[27;5;13~", "ctrl+enter"),
        ("\r", "enter"),
        ("\r\n", "enter"),
        ("\n", "ctrl+j"),
        ("\x1b[27;5;97~", "ctrl+a"),
        ("\x1b[27;2;65~", "'A'"),
        ("\x1b[65;2u", "'A'"),
        ("\x1b[97u", "'a'"),
        ("\x1b[97;2u", "'A'"),
        ("\x1b[49:33;2u", "'!'"),
        ("\x1b[97:65:97;2:1;65u", "'A'"),
        ("\x1b[97;1:1u", "'a'"),
        ("\x1b[97;1:2u", "'a'"),
        ("\x1b[97;65u", "'A'"),
        ("\x1b[97;5:1u", "ctrl+a"),
        ("\x1b[97;133u", "ctrl+a"),
        ("\x1b[1;1:1A", "up"),
        ("\x1b[A", "up"),
        ("\x1bOA", "up"),
        ("\x1bO5P", "ctrl+f1"),
        ("\x1bO1;5P", "ctrl+f1"),
        ("\x1b[[A", "f1"),
        ("\x1b[3$", "shift+delete"),
        ("\x1b\x1b[A", "alt+up"),
        ("\x1b[25~", "f13"),
        ("\x1b\x7f", "ctrl+w"),
        ("\x1b[0;;229u", "'å'"),
    ],
)
def test_every_form_of_a_key_is_that_key(data: str, key: str) -> None:
    assert sent(data) == [key]
    if data != "\r\n":
        assert sent(*data, rest=ESCAPE_S / 2) == (["escape", "up"] if data.startswith("\x1b\x1b") else [key])


@corpus(
    "data",
    [
        "\x1b[97;1:3u",
        "\x1b[1;1:3A",
        "\x1b[1:2u",
        "\x1b[u",
        "\x1b[5R",
        "\x1b[99~",
        "\x1b[57500u",
        "\x1b[1114112;1u",
        "\x1b[99999999999999999999;1u",
        "\x1b[97;1;1114112u",
        "\x1b[48;0;0;0;0t\x1b[<0;1;1M",
    ],
)
def test_a_release_and_odd_figures_are_nothing(data: str) -> None:
    assert sent(data, "x") == ["'x'"]


@corpus(
    ("data", "key"),
    [
        ("\x1bx", "alt+x"),
        ("\x1bP", "alt+shift+p"),
        ("\x1b[", "alt+left_square_bracket"),
        ("\x1b]", "alt+right_square_bracket"),
        ("\x1b1", "alt+1"),
        ("\x1b.", "alt+full_stop"),
        ("\x1bü", "alt+ü"),
        ("\x1bf", "alt+f"),
        ("\x1b\x11", "alt+ctrl+q"),
        ("\x1b[120;3u", "alt+x"),
        ("\x1b[120;3;120u", "alt+x"),
        ("\x1b[27;3;120~", "alt+x"),
    ],
)
def test_alt_and_a_key_is_a_key_that_types_nothing(data: str, key: str) -> None:
    assert sent(data) == [key]
    assert sent(data + "a") == [key, "'a'"] if len(data) > 2 or data[1] not in "[]P" else True


@corpus(
    ("data", "key"),
    [
        ("\x1b[1075::117;5u", "ctrl+u"),  # Cyrillic
        ("\x1b[1081::113;5u", "ctrl+q"),
        ("\x1b[1103::122;3u", "alt+z"),
        ("\x1b[1098::93;5u", "ctrl+right_square_bracket"),
        ("\x1b[1075;5u", "ctrl+u"),  # where the terminal does not tell the base layout
        ("\x1b[27;5;1075~", "ctrl+u"),
        ("\x1b[1110;5u", "ctrl+s"),
        ("\x1bв", "alt+d"),
        ("\x1b[59::113;5u", "ctrl+q"),  # Greek
        ("\x1b[960::112;5u", "ctrl+p"),
        ("\x1b[960;5u", "ctrl+p"),
        ("\x1b[47::113;5u", "ctrl+q"),  # Hebrew
        ("\x1b[1504::98;5u", "ctrl+b"),
        ("\x1b[1588::97;5u", "ctrl+a"),  # Arabic
        ("\x1b[12609::97;5u", "ctrl+a"),  # Korean
        ("\x1b[1074:1042:100;6u", "ctrl+shift+d"),
        ("\x1b[97::113;5u", "ctrl+a"),  # AZERTY: a letter is itself
        ("\x1b[44::109;5u", "ctrl+comma"),
        ("\x1b[39::113;5u", "ctrl+apostrophe"),  # Dvorak
        ("\x1b[59::122;5u", "ctrl+semicolon"),
        ("\x1b[246::59;5u", "ctrl+ö"),  # QWERTZ
        ("\x1b[1075::117;1;1075u", "'г'"),
        ("\x1b[1075:1043:117;2;1043u", "'Г'"),
        ("\x1b[113;7;64u", "'@'"),  # AltGr
        ("\x1b[101;7;8364u", "'€'"),
    ],
)
def test_ctrl_and_a_letter_is_that_key_on_every_layout(data: str, key: str) -> None:
    assert sent(data) == [key]


def test_each_press_of_a_key_is_an_event_of_its_own() -> None:
    terminal = TerminalInput()
    for data in ("\x1b[D", "\x1b[3~", "\x1b[97;5u"):
        (first,), (second,) = ([*terminal.feed(data)] for _ in range(2))
        assert first is not second


def test_what_a_mac_types_with_option_is_typed() -> None:
    assert sent("\x1b[120;3;8776u") == ["'≈'"]


def test_the_escape_key_waits_a_moment_only() -> None:
    terminal = Terminal()
    assert named(terminal.input.feed("\x1b")) == []
    assert terminal.input.wait == pytest.approx(ESCAPE_S)
    assert named(terminal.rests(ESCAPE_S)) == ["escape"]
    assert sent("\x1b\x1b") == ["escape", "escape"]
    assert sent("\x1b", "\x1b[A", rest=ESCAPE_S / 2) == ["escape", "up"]


# Pastes.


def test_without_this_textual_presses_keys_for_an_escape_in_a_paste() -> None:
    """When this fails Textual has mended it."""
    assert [e for e in XTermParser().feed(f"{START}a\x1b[31mb\rc{END}") if isinstance(e, events.Key)]


def test_a_paste_with_escapes_and_newlines_is_one_paste() -> None:
    assert sent(f"{START}ls\r\x1b[31mred\x1b[0m\r\x1bOPend{END}") == ["paste:ls\r[31mred[0m\rOPend"]


def test_a_paste_in_pieces_is_one_paste() -> None:
    assert sent("\x1b[20", "0~a\x1b", "[2", "01~") == ["paste:a"]


def test_a_paste_whose_end_is_lost_does_not_take_the_keys_for_ever() -> None:
    terminal = Terminal()
    assert named([*terminal.input.feed(f"{START}a\rb")]) == []
    assert named(terminal.rests(PASTE_S)) == ["paste:a\rb"]
    assert terminal.sends("x", "\r") == ["'x'", "enter"]


def test_an_end_marker_inside_the_pasted_text_does_not_end_the_paste() -> None:
    assert sent(f"{START}echo{END}\rrm\r{END}") == ["paste:echo\rrm\r"]


def test_two_pastes_in_one_read_and_the_keys_between_them() -> None:
    assert sent(f"{START}a{END}b{START}c{END}\r") == ["paste:a", "'b'", "paste:c", "enter"]


def test_keys_work_again_after_a_paste() -> None:
    assert sent(f"{START}a\x1b{END}", "\x1b[A", "x") == ["paste:a", "up", "'x'"]


@given(st.text(st.sampled_from("ab\x1b[012~\r\n")), st.lists(st.integers(0, 60), max_size=4))
def test_however_a_paste_is_cut_nothing_in_it_is_a_key(text: str, cuts: list[int]) -> None:
    text = text.replace(START, "").replace(END, "")
    whole = f"{START}{text}{END}"
    places = [0, *sorted({cut for cut in cuts if 0 < cut < len(whole)}), len(whole)]
    assert sent(*(whole[a:b] for a, b in pairwise(places)), rest=ESCAPE_S / 2) == ["paste:" + text.replace("\x1b", "")]


@corpus(
    ("reads", "given"),
    [
        (["def f():\r    pass\r"], ["paste:def f():\r    pass\r"]),
        (["one\r\ntwo\r\n"], ["paste:one\r\ntwo\r\n"]),
        (["one\ntwo\n"], ["paste:one\ntwo\n"]),
        (["one\r", "two\r"], ["paste:one\rtwo\r"]),
        (["a\r\n"], ["paste:a\r\n"]),
        (["name\tvalue"], ["paste:name\tvalue"]),
        (["one\rtwo\x1b[A"], ["paste:one\rtwo", "up"]),
        (["hi\r"], ["'h'", "'i'", "enter"]),
        (["\r"], ["enter"]),
        (["\r\r"], ["enter", "enter"]),
        (["hi\t"], ["'h'", "'i'", "tab"]),
        (["hi\r\x0c"], ["'h'", "'i'", "enter", "ctrl+l"]),
    ],
)
def test_lines_in_one_read_are_a_paste_and_an_enter_comes_alone(reads: list[str], given: list[str]) -> None:
    assert sent(*reads, rest=BURST_S / 2) == given


def test_an_enter_is_one_when_nothing_follows_at_once() -> None:
    assert sent("one\r", "two\r", rest=BURST_S) == ["'o'", "'n'", "'e'", "enter", "'t'", "'w'", "'o'", "enter"]


def test_what_is_typed_before_the_first_frame_is_typed() -> None:
    terminal = Terminal()
    terminal.input.typed_ahead = True
    assert terminal.sends("hi\ryo") == ["'h'", "'i'", "enter", "'y'", "'o'"]


@corpus(
    "character",
    [
        "\U0001f469\u200d\U0001f469\u200d\U0001f467",  # a family
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",  # the flag of England
        "\U0001f1eb\U0001f1f7",
        "e\u0301",
        "\u0915\u094d\u0937\u093f",
        "\u0e01\u0e33",
        "\u1112\u1161\u11ab",
        "\u200c",  # between the letters of Persian words
        "\u3000",  # the space of a Japanese keyboard
        "\u00a0",
        "\U0001fae9",  # newer than the tables of some Pythons
        "\uf8ff",
    ],
)
def test_what_is_one_character_to_its_reader_is_typed_whole(character: str) -> None:
    keys = [key for key in TerminalInput().feed(f"a{character}b") if isinstance(key, events.Key)]
    assert all(key.is_printable for key in keys)
    assert "".join(str(key.character) for key in keys) == f"a{character}b"
    assert any(character in str(key.character) for key in keys)
