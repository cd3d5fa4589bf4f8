"""The paste guard, in front of Textual's real parser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser

from kvchat.ui.terminal import paste_guard
from kvchat.ui.terminal.paste_guard import END, START, PasteGuard

Parse = Callable[..., list[str]]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Parse:
    """What Textual makes of the reads with the guard installed: keys by name, pastes as `paste:TEXT`."""
    monkeypatch.setattr(XTermParser, "feed", XTermParser.feed)
    paste_guard.install()

    def run(*reads: str) -> list[str]:
        parser = XTermParser()
        said = [event for read in reads for event in parser.feed(read)]
        return [
            event.key if isinstance(event, events.Key) else f"paste:{event.text}"
            for event in said
            if isinstance(event, events.Key | events.Paste)
        ]

    return run


def test_the_guard_fits_this_textual() -> None:
    assert paste_guard.check() == ""


def test_without_the_guard_textual_presses_keys_for_an_escape_in_a_paste() -> None:
    """When this fails Textual has mended it, and the guard may go."""
    feed = getattr(XTermParser.feed, "plain", XTermParser.feed)
    pressed = [e for e in feed(XTermParser(), f"{START}a\x1b[31mb\rc{END}") if isinstance(e, events.Key)]
    assert pressed


def test_a_paste_with_escapes_and_newlines_is_one_paste(parse: Parse) -> None:
    assert parse(f"{START}ls\r\x1b[31mred\x1b[0m\r\x1bOPend{END}") == ["paste:ls\r[31mred[0m\rOPend"]


def test_a_paste_in_pieces_is_one_paste(parse: Parse) -> None:
    assert parse("\x1b[20", "0~a\x1b", "[2", "01~") == ["paste:a"]


def test_an_end_marker_inside_the_pasted_text_does_not_end_the_paste(parse: Parse) -> None:
    assert parse(f"{START}echo{END}\rrm\r{END}") == ["paste:echo\rrm\r"]


def test_two_pastes_in_one_read_and_the_keys_between_them(parse: Parse) -> None:
    assert parse(f"{START}a{END}b{START}c{END}\r") == ["paste:a", "b", "paste:c", "enter"]


def test_keys_work_again_after_a_paste(parse: Parse) -> None:
    assert parse(f"{START}a\x1b{END}", "\x1b[A", "x") == ["paste:a", "up", "x"]


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b\r", "alt+enter"),
        ("\x1b\n", "alt+enter"),
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1b[27;2;13~", "shift+enter"),
        ("\x1b[13;2u", "shift+enter"),
        ("\x1b[27;5;13~", "ctrl+enter"),
        ("\r", "enter"),
        ("\n", "ctrl+j"),
    ],
)
def test_every_form_of_a_modified_enter_is_told_apart(parse: Parse, sent: str, key: str) -> None:
    assert parse(sent) == [key]


def test_installing_twice_guards_once(parse: Parse) -> None:
    once = XTermParser.feed
    paste_guard.install()
    assert XTermParser.feed is once


def test_installing_into_a_changed_textual_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paste_guard, "BRACKETED_PASTE_END", "\x1b[999~")
    with pytest.raises(RuntimeError, match="paste markers"):
        paste_guard.install()


@given(st.text(st.sampled_from("ab\x1b[012~\r\n")), st.lists(st.integers(0, 60), max_size=4))
def test_however_a_paste_is_cut_nothing_in_it_is_a_key(text: str, cuts: list[int]) -> None:
    text = text.replace(START, "").replace(END, "")
    whole = f"{START}{text}{END}"
    guard, out, at = PasteGuard(), "", 0
    for cut in [*sorted(c for c in cuts if c < len(whole)), len(whole)]:
        out += guard.feed(whole[at:cut]) if cut > at else ""
        at = cut
    assert out.startswith(START) and out.endswith(END)
    inside = out[len(START) : -len(END)]
    assert inside == text.replace("\x1b", "")


@pytest.mark.parametrize(
    "sent",
    [
        "\x1b[97;1:3u",
        "\x1b[1:2u",
        "\x1b[1114112;1u",
        "\x1b[99999999999999999999;1u",
        "\x1b[97;1;1114112u",
        "\x1b[48;0;0;0;0t\x1b[<0;1;1M",
    ],
)
def test_a_report_with_odd_figures_is_nothing(parse: Parse, sent: str) -> None:
    assert parse(sent, "x") == ["x"]


@given(st.lists(st.text(st.sampled_from("\x1b[]0123456789;:<?>uMmtRIO~ab\x00\ufffd漢"), min_size=1), max_size=6))
def test_whatever_is_sent_the_next_key_is_a_key(reads: list[str]) -> None:
    paste_guard.install()
    parser = XTermParser()
    for read in [*reads, END, *["\x1b[27u"] * 2]:
        list(parser.feed(read))
    assert [event.key for event in parser.feed("x") if isinstance(event, events.Key)] == ["x"]
