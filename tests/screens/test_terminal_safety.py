"""Nothing that came from outside reaches the terminal as a command, and markup in it is only text.

The whole app runs on a pseudo-terminal with hostile text in every place that can hold some; every byte it writes must
be of the few kinds that it writes by itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from app_kit import Clock, Drive, Driven

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import SavedPrompt
from kvchat.sanitize import clean, one_line
from kvchat.store import Store
from terminal_output import Piece, Terminal, pieces
from toyserver import ToyServer, Visit, error, reply, tokens
from tries import tries

HOSTILE = {
    entry["name"]: entry["text"]
    for entry in json.loads((Path(__file__).parents[1] / "fixtures" / "hostile_text.json").read_text())
    if entry["name"] not in ("zwj_flood", "combining_flood", "lone_surrogate")
} | {
    "sgr": "\x1b[38;5;201mcoloured\x1b[0m",
    "link": "\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\",
    "markup": "[/b] [red]red[/] [@click=app.quit]quit[/] [@click=app.bell()]bell[/] [",
    "markdown": "[text](javascript:alert(1)) [text](file:///etc/passwd) ![i](http://evil.test/\x1b]0;x\x07)",
    "fence": "```\x1b]0;x\x07[red]\nin \x1b[2Jcode [/]\n```",
    "table": "| \x1b[2Ja | [b] |\n|---|---|\n| \x9b2J | \x07 |",
}
MARKUP = HOSTILE["markup"]
LINES = [" ".join(text.split("\n")) for text in HOSTILE.values()]
WORD = "lighthouse"
"""Stands beside each hostile text, so that a search finds it."""
TEXT = "\n\n".join(f"{WORD} {name}: {text}" for name, text in HOSTILE.items())
LONG_LINE = f"{WORD} " + " ".join(LINES)

MODES = {"25", "1000", "1002", "1003", "1004", "1006", "1015", "1016", "1049", "2004", "2026", "2048", "7"}
SGR = re.compile(r"(?:(?:[0-9]|2[1-9]|3[0-7]|39|4[0-7]|49|53|55|9[0-7]|10[0-7]|[34]8;2;\d+;\d+;\d+)(?:;|(?=m)))*m")
PROGRESS = re.compile(r"4;[013];\d+")
POINTERS = {"default", "pointer", "text"}
CURSOR = re.compile(r"\d*[ABCDG]|\d*(?:;\d*)?H")


def allowed(piece: Piece, windows: set[str]) -> bool:
    """Whether the app writes this by itself. `windows` are the titles it gives to its window."""
    body = piece.body
    match piece.kind:
        case "text":
            return clean(body) == body
        case "c0":
            return body in "\r\n"
        case "csi":
            if SGR.fullmatch(body) or CURSOR.fullmatch(body):
                return True
            mode = re.fullmatch(r"\?(\d+)(?:[hl]|\$p)", body)
            # The keyboard protocol is asked for at the start and given back at the end; the title kept and given back.
            return bool(mode and mode[1] in MODES) or body in (">29u", "<u", "22;0t", "23;0t")
        case "osc":
            number, _, rest = body.partition(";")
            return (
                (number == "2" and rest in windows)
                or (number == "22" and rest in POINTERS)
                or (number == "9" and bool(PROGRESS.fullmatch(rest)))
                or body == "11;?"
            )
        case _:
            return False


def server_of(server: ToyServer) -> None:
    """Give the server a hostile name and hostile answers."""
    name = LINES[0] + MARKUP + "\x1b[2J"
    server.on(
        "/v1/models",
        reply(
            200,
            {
                "object": "list",
                "data": [
                    {"id": text, "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}}
                    for text in [name, *LINES]
                ],
            },
        ),
    )
    server.on(
        "/props",
        reply(
            200,
            {
                "default_generation_settings": {"n_ctx": 4096},
                "total_slots": 1,
                "model_alias": name,
                "build_info": LINES[1] + MARKUP,
                "chat_template_caps": {},
            },
            server="llama.cpp",
        ),
    )
    server.on_chat(
        tokens(
            *(TEXT[at : at + 97] for at in range(0, len(TEXT), 97)), reasoning=[TEXT[::2], TEXT], model=name, prompt=900
        )
    )


async def fill(data: Path, server: ToyServer) -> set[str]:
    """A store with hostile text in all of its places; the titles of its conversations."""
    server_of(server)
    service = ChatService(Store.open(data), changed(Settings(), "server.base_url", server.url), clock=Clock())
    for line in LINES:
        made = await service.new_conversations.create(reuse=False)
        await service.conversations.rename(made.id, f"{WORD} {line}")
        await service.options.save_prompt(SavedPrompt(line[:50], line))
    plain = tokens("short", model="toy")
    main = await service.new_conversations.create(TEXT, reuse=False)
    await service.turns.send(main.id, Question(TEXT, tuple([ContextBlock("file", line, TEXT) for line in LINES[:3]])))
    await service.conversations.wait(main.id)
    server.on_chat(error(500, LONG_LINE), plain)
    for text in (LONG_LINE, MARKUP):
        await service.turns.send(main.id, Question(text))
        await service.conversations.wait(main.id)
    await service.conversations.rename(main.id, LONG_LINE)
    await service.conversations.set_draft(main.id, LONG_LINE)
    titles = {known.title for known in service.conversations.all()}
    await service.aclose()
    server_of(server)
    return titles


def kvchat_on_a_terminal(place: Path, server: ToyServer, *arguments: str, rows: int = 40) -> Terminal:
    env = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "NO_COLOR")}
    env |= {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "KVCHAT_DATA_DIR": str(place / "data"),
        "KVCHAT_CONFIG": str(place / "config.toml"),
    }
    (place / "config.toml").write_text("notify = false\n")  # its own bell would hide a foreign one
    return Terminal(["-m", "kvchat.cli", *arguments, "--base-url", server.url], env, rows=rows)


def own_pieces(terminal: Terminal, titles: set[str]) -> list[Piece]:
    """All that was written, in which every piece is the app's own."""
    found = list(pieces(terminal.output))
    windows = {"", "kvchat"} | {f"{one_line(title, 60)} · kvchat" for title in titles}
    foreign = {piece for piece in set(found) if not allowed(piece, windows)}
    assert not foreign, sorted(foreign)[:20]
    return found


@pytest.mark.process
async def test_every_byte_that_reaches_the_terminal_is_the_apps_own(tmp_path: Path, server: ToyServer) -> None:
    titles = await fill(tmp_path / "data", server)
    with kvchat_on_a_terminal(tmp_path, server, "-c") as terminal:
        await walk_through(terminal, server)
        await terminal.press("\x11")  # ctrl+q
        assert await terminal.ended() == 0
        titles |= {known.title for known in Store.open(tmp_path / "data").conversations()}
    found = own_pieces(terminal, titles)
    drawn = "".join(piece.body for piece in found if piece.kind == "text")
    assert "␛]52;c;S1ZNQVJL" in drawn
    assert "[@click=app.quit]quit" in drawn
    assert "Traceback" not in drawn


ESCAPE, ENTER, TAB, CTRL_C, CTRL_F, CTRL_N, CTRL_R = "\x1b[27u", "\r", "\t", "\x03", "\x06", "\x0e", "\x12"
PASTE_END = "\x1b[201~"
UP, HOME, END, PAGE_UP, PAGE_DOWN, F9 = "\x1b[A", "\x1b[H", "\x1b[F", "\x1b[5~", "\x1b[6~", "\x1b[20~"
SCREENS = (
    ("\x1b[24~", "Rename conversation"),
    ("\x13", "Conversations"),
    ("\x1bOQ", "Totals and server"),
    ("\x1bOS", "Markdown"),
    ("\x0f", "temperature"),
    ("\x0c", "Model and server"),
    ("\x1bOP", "Help"),
    ("\x10", "find an action"),
)
"""F12, ctrl+s, F2, F4, ctrl+o, ctrl+l, F1, ctrl+p, each with words of the screen it opens."""


def paste(text: str) -> str:
    """What a terminal sends when text is pasted that it does not clean."""
    return f"\x1b[200~{text}{PASTE_END}"


async def walk_through(terminal: Terminal, server: ToyServer) -> None:
    """Look at everything there is to see, and let everything happen that shows something."""
    await terminal.shows("this machine")
    await terminal.shows("newline")
    # The conversation, every message unfolded, from the end to the beginning.
    await terminal.press(TAB, *[ENTER, UP] * 6, *[PAGE_UP] * 25, HOME, ENTER)
    for key, words in SCREENS:
        await terminal.shows(words, key)
        await terminal.press(PAGE_DOWN, PAGE_DOWN, END)
        await terminal.shows("newline", ESCAPE)
    await terminal.shows("words to look for", CTRL_R)
    await terminal.shows("messages", WORD)
    await terminal.press(PAGE_DOWN)
    await terminal.shows("newline", ESCAPE)
    # From the conversation: the branches; its system prompt, with the library.
    for command, words in (("tree", "the branch in use"), ("system", "Library")):
        await terminal.shows("Message", ESCAPE, "x", CTRL_C)
        await terminal.shows(words, f"/{command} ", ENTER)
        await terminal.press(PAGE_DOWN)
        await terminal.shows("newline", ESCAPE)
    # A paste that would leave the paste, one that becomes a chip, and the answer as it streams.
    server.on_chat(
        tokens(
            *(TEXT[at : at + 61] for at in range(0, len(TEXT), 61)), "\n\nThat was all.", reasoning=[TEXT], model=MARKUP
        )
    )
    await terminal.shows("[pasted 1: ", paste(LONG_LINE), paste(TEXT.replace(PASTE_END, "") * 3))
    posts = server.posts
    await terminal.shows("That was all.", ENTER)
    assert server.posts == posts + 1
    # A failure in a conversation that is left; then the others, by key.
    go_on = asyncio.Event()

    async def failing(visit: Visit) -> None:
        await go_on.wait()
        await error(500, LONG_LINE)(visit)

    server.on_chat(failing)
    posts = server.posts
    await terminal.press(MARKUP, ENTER)
    await server.until(lambda: server.posts > posts)
    await terminal.shows("ready", CTRL_N)
    go_on.set()
    await terminal.shows("failed (500)")
    await terminal.press(*[F9] * 6)
    await terminal.shows("find", CTRL_F)


# -- strings that nobody has thought of


STRINGS, AT_ONCE = tries("hostile_strings", 300), 50
NUMBER = "4242"
"""Stands in each sequence of these strings, and in none of the app's own."""
SEQUENCES = [re.sub(r"\d+", NUMBER, text) for text in HOSTILE.values()]
CONTROLS = (
    "\x1b \x9b \x9d \x90 \x9c \x85 \x07 \x08 \x0e \0 \x7f \r \u202e \u2066 \u200f \u061c \u2028 \u200b \U000e0041"
)
HALVES = f"\x1b[{NUMBER} \x1b[?{NUMBER} \x9b{NUMBER} \x1b]{NUMBER}; \x9d{NUMBER}; \x1bP{NUMBER} \x1b\\ m J h H ; !p [ ]"
WORDS = "word é 日本 👍🏽 ** ` - | <b> $x$ https://e.test/ [red] [/] # >"
FRAGMENTS = [*CONTROLS.split(" "), *HALVES.split(" "), *WORDS.split(" "), " ", "\n", "\n\n"]
BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def of_fragments(dice: random.Random) -> str:
    """A string of fragments, with a piece of a known sequence between them."""
    parts = [dice.choice(FRAGMENTS) for _ in range(dice.randint(3, 12))]
    sequence = dice.choice(SEQUENCES)
    start, end = sorted(dice.randrange(len(sequence) + 1) for _ in "ab")
    parts.insert(dice.randrange(len(parts)), sequence[start:end])
    return "".join(parts)


@pytest.mark.process
async def test_no_string_in_an_answer_becomes_a_command(tmp_path: Path) -> None:
    dice = random.Random(1)
    async with ToyServer(context_size=1 << 22) as server:
        with kvchat_on_a_terminal(tmp_path, server, rows=300) as terminal:  # an answer is drawn whole
            await terminal.shows("this machine")
            await terminal.shows("newline")
            for start in range(0, STRINGS, AT_ONCE):
                text = "".join(f"{of_fragments(dice)}\n\n‹{at}›\n\n" for at in range(start, start + AT_ONCE))
                edges = sorted({0, len(text), *(dice.randrange(len(text)) for _ in range(len(text) // 20))})
                server.on_chat(tokens(*(text[at:end] for at, end in pairwise(edges))))
                await terminal.shows(f"‹{start + AT_ONCE - 1}›", "more", ENTER)
                await terminal.shows(f"‹{start}›")
            await terminal.press("\x11")  # ctrl+q
            assert await terminal.ended() == 0
    titles = {known.title for known in Store.open(tmp_path / "data").conversations()}
    found = own_pieces(terminal, titles)
    assert not [piece for piece in found if piece.kind != "text" and NUMBER in piece.body]
    drawn = "".join(piece.body for piece in found if piece.kind == "text")
    bidi = BIDI.findall(drawn)
    assert not bidi
    assert f"␛[{NUMBER}" in drawn and f"\ufffd{NUMBER}" in drawn and "␇" in drawn


# -- the same text on a screen without a terminal: what it means to Textual


async def look_everywhere(app: Driven) -> AsyncIterator[str]:
    """Every screen in turn; yields its name."""
    yield "the conversation"
    for at in range(len(app.path)):
        await app.select(at)
        await app.press("enter")
        yield "a message"
    for id in ("list", "rename", "inspector", "export", "parameters", "model", "tree", "system", "palette", "help"):
        await app.run(id)
        await app.until(lambda: app.app.screen is not app.chat)
        await app.rest()
        yield id
        await app.press("escape")
        await app.closes()
    await app.press("ctrl+r")
    await app.opens("SearchScreen")
    await app.type(WORD)
    await app.until(lambda: "message" in app.text)
    yield "search"
    await app.press("escape")


@pytest.mark.slow
async def test_markup_and_links_in_outside_text_are_only_text(drive: Drive, server: ToyServer, tmp_path: Path) -> None:
    await fill(tmp_path / "data", server)
    async with drive(continue_=True, size=(120, 40)) as app:
        app.app._disable_notifications = False
        for text in (MARKUP, LONG_LINE):
            app.chat.workspace.say(text, "error")
        await app.rest()
        async for place in look_everywhere(app):
            for strip in app.app.screen._compositor.render_strips():
                for segment in strip:
                    assert clean(segment.text) == segment.text, place
                    style = segment.style
                    actions = [value for name, value in (style.meta if style else {}).items() if name[:1] == "@"]
                    assert not [value for value in actions if "quit" in str(value) or "bell" in str(value)], place
                    assert not (style and style.link and not style.link.startswith(("http://", "https://"))), place
        assert app.app.return_value is None
