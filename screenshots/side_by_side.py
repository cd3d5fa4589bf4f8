"""The first picture of the README: the same conversation in a client that has the clock in its system prompt, and in
kvchat. An animated SVG of what both terminals showed, at the times when they showed it.

    uv run screenshots/side_by_side.py --record    # plays the conversation twice, writes the JSON, draws
    uv run screenshots/side_by_side.py             # draws again what was recorded

Both runs have a fresh built-in engine of the same options and the small model of the `demo` group, one run after the
other. kvchat is the real app. The other client is `ClockClient` below: it sends what any client sends, all messages of
the conversation, and begins its system prompt with the date and time, as many templates, presets and agents do. Its
clock goes on a minute a turn, as it would with a person who reads the answers. Replies are the model's own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
from rich.segment import Segment
from rich.style import Style

from kvchat.backends.engine.models import default_model
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.process import Engine
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.config.themes import load_theme
from kvchat.paths import find
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from kvchat.ui.app import KvchatApp

HERE = Path(__file__).resolve().parent
RECORDING, PICTURE = HERE / "side_by_side.json", HERE / "side_by_side.svg"
COLUMNS, ROWS = 60, 21
MAX_TOKENS = 40
THREADS = 1
"""Of the engine: two would spin waiting for each other where something else runs."""
QUESTIONS = (
    "What is the capital of Norway?",
    "And the capital of Portugal?",
    "And the capital of Japan?",
    "And the capital of Kenya?",
)
CITIES = (
    "Oslo",
    "Lisbon",
    "Tokyo",
    "Nairobi",
    "Quito",
    "Hanoi",
    "Vienna",
    "Ottawa",
    "Rabat",
    "Riga",
    "Lima",
    "Accra",
    "Dublin",
    "Athens",
    "Havana",
    "Warsaw",
    "Bern",
    "Manila",
)
INSTRUCTIONS = "You are a friendly guide for travellers. Answer in one short sentence.\n" + "\n".join(
    f"Line {n}: the office in {city} opens at {7 + n % 4} and closes at {16 + n % 5}; ask for desk {n * 7 % 40}, where "
    f"tickets cost {n * 3 + 2} coins, and bring your passport, a pen, two photographs and some patience with you."
    for n, city in enumerate(CITIES, 1)
)
PAUSE = 1.2
"""Seconds between an answer and the next question, in both."""
FRAME = 0.05
"""Seconds between two looks at a terminal."""

Row = list[list[Any]]
"""Pieces of a terminal's row: [column, text, colour, background, bold]; `None` is the terminal's own colour."""


@dataclass
class Recording:
    """What one terminal showed, and the turns played in it. Times are seconds since the first question was sent."""

    name: str
    began: float = 0.0
    frames: list[tuple[float, dict[int, Row]]] = field(default_factory=list)
    """(time, the rows that changed)."""
    turns: list[dict[str, float]] = field(default_factory=list)
    """asked, first (token), ended; cached, prefilled in tokens."""
    seen: dict[int, Row] = field(default_factory=dict, repr=False)

    @property
    def now(self) -> float:
        return round(time.monotonic() - self.began, 3)

    def look(self, rows: list[Row]) -> None:
        """Note the rows that are not as they were."""
        new = {at: row for at, row in enumerate(rows) if self.seen.get(at) != row}
        if new:
            self.seen.update(new)
            self.frames.append((max(0.0, self.now) if self.began else 0.0, new))

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "turns": self.turns, "frames": self.frames}


def row_of(segments: list[Segment]) -> Row:
    """The pieces of a row of the terminal."""
    pieces: Row = []
    column = 0
    for style, group in groupby(segments, key=lambda segment: segment.style or Style()):
        text = "".join(segment.text for segment in group)
        colour, background = (c and c.get_truecolor().hex for c in (style.color, style.bgcolor))
        if style.reverse:
            colour, background = background, colour
        if text.strip() or background:
            pieces.append([column, text, colour, background, int(bool(style.bold))])
        column += len(text)
    return pieces


class ClockClient:
    """A client with the clock in its system prompt, and its terminal."""

    def __init__(self, engine: Engine, recording: Recording) -> None:
        self.recording = recording
        assert engine.endpoint is not None
        self._http = httpx.AsyncClient(
            base_url=engine.endpoint.base_url,
            timeout=None,
            headers={"Authorization": f"Bearer {engine.endpoint.api_key}"},
        )
        self._clock = datetime(2026, 6, 9, 9, 16)
        self._messages: list[dict[str, str]] = []
        self._rows: list[list[tuple[str, str]]] = []
        """The conversation: pieces (text, tone) of each row."""

    @property
    def system(self) -> str:
        return f"It is {self._clock:%A, %d %B %Y, %H:%M}.\n{INSTRUCTIONS}"

    async def ask(self, question: str) -> None:
        """One turn: the request that any client sends. llama.cpp is asked to tell its progress, for the picture."""
        self._clock += timedelta(minutes=1)
        self._messages.append({"role": "user", "content": question})
        self._rows += [[("You", "bold")], [(question, "")], [], [("SmolLM2", "bold")], []]
        turn = {"asked": self.recording.now}
        body = {
            "messages": [{"role": "system", "content": self.system}, *self._messages],
            "stream": True,
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            "return_progress": True,
        }
        reply, done = "", (0, 0)
        timings: dict[str, int] = {}
        waiting = asyncio.create_task(self._waiting(turn["asked"], lambda: done))
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                if "prompt_progress" in chunk:
                    done = (chunk["prompt_progress"]["processed"], chunk["prompt_progress"]["total"])
                timings = chunk.get("timings") or timings
                if text := (chunk["choices"] or [{"delta": {}}])[0]["delta"].get("content"):
                    waiting.cancel()
                    turn.setdefault("first", self.recording.now)
                    reply += text
                    self._rows[-1] = [(reply.strip(), "")]
                    self.show()
        turn |= {"ended": self.recording.now, "cached": timings["cache_n"], "prefilled": timings["prompt_n"]}
        share = turn["cached"] / (turn["cached"] + turn["prefilled"])
        figures = f"{share:.0%} cached · {turn['first'] - turn['asked']:.1f} s".replace("%", " %")
        self._rows[-2] = [(f"{'SmolLM2':{COLUMNS - 2 - len(figures)}}", "bold"), (figures, "muted")]
        self._rows.append([])
        self._messages.append({"role": "assistant", "content": reply})
        self.recording.turns.append(turn)
        self.show()

    async def _waiting(self, asked: float, done: Callable[[], tuple[int, int]]) -> None:
        while True:
            processed, total = done()
            bar = "▒" * round(20 * processed / total) if total else ""
            far = f" {processed:,}/{total:,}" if total else ""
            seconds = f" · {self.recording.now - asked:.0f} s"
            self._rows[-1] = [(f"prefill ▕{bar:20}▏", "wasted"), (far + seconds, "muted")]
            self.show()
            await asyncio.sleep(0.25)

    def show(self, draft: str = "") -> None:
        """The screen: the end of the conversation, the head of the system prompt, the composer."""
        colours = palette()
        head = [
            [("chat", "bold"), ("   SmolLM2 · system prompt with the clock", "muted")],
            [
                (f"system: It is {self._clock:%A, %d %B %Y}, ", "muted"),
                (f"{self._clock:%H:%M}", "wasted"),
                (". You are a fr…", "muted"),
            ],
            [],
        ]
        foot = [[("─" * (COLUMNS - 2), "rule")], [("› ", "accent"), (draft or "Message", "" if draft else "muted")]]
        room = ROWS - len(head) - len(foot)
        body = self._rows[-room:]
        rows = []
        for pieces in [*head, *body, *[[]] * (room - len(body)), *foot]:
            rows.append(
                row_of(
                    [
                        Segment(" "),
                        *(Segment(text, Style(color=colours[tone], bold=tone == "bold")) for text, tone in pieces),
                    ]
                )
            )
        self.recording.look(rows)

    async def aclose(self) -> None:
        await self._http.aclose()


def palette() -> dict[str, str]:
    theme, _ = load_theme(HERE.parent / "themes" / "kvchat-night.toml")
    assert theme and theme.foreground and theme.accent and theme.background
    v = theme.variables
    return {
        "": theme.foreground,
        "bold": theme.foreground,
        "muted": v["text-muted"],
        "wasted": v["cache-wasted"],
        "accent": theme.accent,
        "rule": v["rule"],
        "cached": v["cache-cached"],
        "evaluated": v["cache-evaluated"],
        "background": theme.background,
    }


async def record_clock_client(model: Path) -> Recording:
    recording = Recording("A client with the clock in its system prompt")
    engine = Engine()
    await engine.start(EngineOptions(model, threads=THREADS))
    client = ClockClient(engine, recording)
    client.show()
    try:
        recording.began = time.monotonic()
        for question in QUESTIONS:
            client.show(question)
            await asyncio.sleep(PAUSE if recording.turns else 0)
            await client.ask(question)
        await asyncio.sleep(PAUSE)
    finally:
        await client.aclose()
        await engine.stop()
    return recording


async def record_kvchat(folder: Path) -> Recording:
    recording = Recording("kvchat")
    settings = changed(Settings(parameters=Parameters(temperature=0.0, max_tokens=MAX_TOKENS)), "theme", "kvchat-night")
    settings = changed(settings, "engine.threads", THREADS)
    service = ChatService(Store.open(folder), settings, snapshots=folder / "snapshots")
    service.warm_up.enabled = service.servers.connects_ahead = True
    app = KvchatApp(service, find(str(folder), str(folder / "config.toml")))
    async with app.run_test(size=(COLUMNS, ROWS)) as pilot:
        while service.servers.connection.phase != "ready":
            await pilot.pause(0.05)
        await pilot.press("ctrl+n")
        chat = app.chat
        chat.composer.cursor_blink = False
        conversation = chat.workspace.conversation
        watch = asyncio.create_task(watching(app, recording))
        await service.branches.set_instructions(conversation.id, INSTRUCTIONS)
        for question in QUESTIONS:
            chat.composer.replace_text(question)
            await pilot.pause()
            await asyncio.sleep(PAUSE if recording.turns else 0)
            recording.began = recording.began or time.monotonic()
            turn, turns = {"asked": recording.now}, conversation.record.turns
            await pilot.press("enter")
            while conversation.record.turns == turns or service.conversations.streaming():
                await pilot.pause(0.005)
            figures = conversation.path()[-1].figures
            assert figures and figures.prompt_tokens is not None and figures.cached_tokens is not None
            assert figures.ttft_ms is not None
            turn |= {
                "first": round(turn["asked"] + figures.ttft_ms / 1000, 3),
                "ended": recording.now,
                "cached": figures.cached_tokens,
                "prefilled": figures.prompt_tokens - figures.cached_tokens,
            }
            recording.turns.append(turn)
        await asyncio.sleep(PAUSE)
        watch.cancel()
    return recording


async def watching(app: KvchatApp, recording: Recording) -> None:
    while True:
        recording.look([row_of(list(strip.simplify())) for strip in app.chat._compositor.render_strips()])
        await asyncio.sleep(FRAME)


def record() -> None:
    model = default_model()
    assert model is not None, "the model comes with the `demo` group: uv sync"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        runs = [asyncio.run(record_clock_client(model)), asyncio.run(record_kvchat(Path(folder) / "data"))]
        os.chdir(HERE)
    head = {"model": model.stem, "engine": "llama.cpp (xllamacpp)", "threads": THREADS, "size": [COLUMNS, ROWS]}
    RECORDING.write_text(
        json.dumps({**head, "runs": [run.as_json() for run in runs]}, ensure_ascii=False, separators=(",", ":")) + "\n",
        encoding="utf-8",
    )


# -- drawing

SPEED = 2
"""How many recorded seconds pass in a second of the picture."""
HOLD = 10
"""Recorded seconds that the end stays."""
CELL, LINE, SIZE = 7.2, 16, 12
"""Pixels: a column, a row, the font."""
EDGE, GAP, TOP = 14, 24, 66


class Shows:
    """CSS for what is visible only from one time to another of a loop. Times are shares of the loop."""

    def __init__(self, loop: float) -> None:
        self.loop = loop
        self._classes: dict[tuple[str, str], str] = {}

    def between(self, begin: float, end: float | None) -> str:
        """The class of what is there from `begin` to `end`, in recorded seconds; None: to the end of the loop."""
        first, last = (f"{100 * at / self.loop:.3f}".rstrip("0").rstrip(".") for at in (begin, end or self.loop))
        return self._classes.setdefault((first, last), f"s{len(self._classes)}") + (" end" if end is None else "")

    @property
    def css(self) -> str:
        lines = []
        for (first, last), name in self._classes.items():
            steps = ["0%{visibility:hidden}"] if first != "0" else []
            steps.append(f"{first}%{{visibility:visible}}")
            steps += [f"{last}%{{visibility:hidden}}"] if last != "100" else []
            lines.append(f".{name}{{animation-name:{name}}}@keyframes {name}{{{''.join(steps)}}}")
        return "".join(lines)


def intervals(frames: list[Any]) -> Iterator[tuple[int, Row, float, float | None]]:
    """Each state of a row with the times from and to which it stood there."""
    since: dict[int, tuple[float, Row]] = {}
    for at, rows in frames:
        for key, row in rows.items():
            if key in since and since[key][0] < at:
                yield int(key), since[key][1], since[key][0], at
            since[key] = (at, row)
    for key, (begin, row) in since.items():
        yield int(key), row, begin, None


def drawn_row(row: Row, left: float, top: float, colours: dict[str, str]) -> str:
    parts = []
    for column, text, colour, background, bold in row:
        x, width = left + column * CELL, len(text) * CELL
        if background and background != colours["background"]:
            parts.append(f'<rect x="{x:.1f}" y="{top:g}" width="{width:.1f}" height="{LINE}" fill="{background}"/>')
        inner = text.strip()
        if inner:
            x += (len(text) - len(text.lstrip())) * CELL
            fill = f' fill="{colour}"' if colour and colour != colours[""] else ""
            weight = ' class="b"' if bold else ""
            parts.append(
                f'<text x="{x:.1f}" y="{top + 12:g}" textLength="{len(inner) * CELL:.1f}"{fill}{weight}>'
                f"{escape(inner, quote=False)}</text>"
            )
    return "".join(parts)


def drawn(recording: dict[str, Any]) -> str:
    """The picture of a recording."""
    colours = palette()
    runs = recording["runs"]
    columns, rows = recording["size"]
    longest = max(run["turns"][-1]["ended"] for run in runs)
    loop = longest + HOLD
    shows = Shows(loop)
    width, height = columns * CELL, rows * LINE
    whole = (2 * EDGE + 2 * width + GAP + 16, TOP + height + 128)
    body = []
    for place, run in enumerate(runs):
        left, wasted = EDGE + 8 + place * (width + GAP), place == 0
        tone = colours["wasted" if wasted else "cached"]
        body.append(f'<text x="{left:g}" y="{TOP - 16}" class="b" fill="{tone}">{escape(run["name"])}</text>')
        body.append(
            f'<rect x="{left - 8:.1f}" y="{TOP - 8}" width="{width + 16:.1f}" height="{height + 16}" rx="6" '
            f'fill="{colours["background"]}" stroke="{colours["rule"]}"/>'
        )
        for key, row, begin, end in intervals(run["frames"]):
            if begin < loop and (content := drawn_row(row, left, TOP + key * LINE, colours)):
                body.append(f'<g class="s {shows.between(begin, end)}">{content}</g>')
        body.append(timeline(run, left, TOP + height + 30, width, longest, colours, shows, wasted=wasted))
    title = (
        f"The same conversation, twice · {recording['model'].partition('-Instruct')[0]} on llama.cpp, "
        f"{recording['threads']} thread · played at {SPEED}×"
    )
    css = (
        f"text{{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:{SIZE}px;"
        f"white-space:pre}}.b{{font-weight:bold}}.m{{fill:{colours['muted']}}}"
        f".s,.g{{animation-duration:{loop / SPEED:.2f}s;animation-iteration-count:infinite}}"
        ".s{visibility:hidden;animation-timing-function:step-end}.end{visibility:visible}"
        ".g{transform-box:fill-box;animation-name:g;animation-timing-function:linear}"
        f"@keyframes g{{0%{{transform:scaleX(0)}}{100 * longest / loop:.3f}%{{transform:scaleX(1)}}}}"
        "@media (prefers-reduced-motion:reduce){.s,.g{animation:none}}"
    )
    ink, corner = colours[""], clock(whole[0] - EDGE - 8, longest, shows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole[0]:g} {whole[1]:g}" width="{whole[0]:g}" '
        f'height="{whole[1]:g}" fill="{ink}" role="img">'
        f"<title>{escape(title)}</title><style>{css}{shows.css}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="#0c0e14"/>'
        f'<text x="{EDGE + 8}" y="24" class="m">{escape(title)}</text>{"".join(body)}'
        f"{legend(EDGE + 8, whole[1] - 14, colours)}{corner}</svg>\n"
    )


def legend(left: float, top: float, colours: dict[str, str]) -> str:
    parts = []
    for tone, words in (("evaluated", "prefill"), ("wasted", "prefilled again"), ("cached", "the answer")):
        parts.append(
            f'<rect x="{left:g}" y="{top - 10:g}" width="12" height="12" fill="{colours[tone]}"/>'
            f'<text x="{left + 18:g}" y="{top:g}" class="m">{words}</text>'
        )
        left += 18 + (len(words) + 3) * CELL
    return "".join(parts)


def clock(right: float, longest: float, shows: Shows) -> str:
    """The seconds since both began, at the picture's corner."""
    return "".join(
        f'<text x="{right:g}" y="24" text-anchor="end" class="b s {shows.between(at, end)}">{at} s</text>'
        for at in range(int(longest) + 1)
        for end in [at + 1 if at + 1 <= longest else None]
    )


def timeline(
    run: dict[str, Any],
    left: float,
    top: float,
    width: float,
    longest: float,
    colours: dict[str, str],
    shows: Shows,
    *,
    wasted: bool,
) -> str:
    """The bar under a terminal: the time until the first token of each turn, the answers, and the sums."""
    scale = width / longest
    name = f"t{int(left)}"
    place = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="14"'
    parts = [
        f'<clipPath id="{name}"><rect class="g" {place}/></clipPath>',
        f'<rect {place} fill="{colours["rule"]}" opacity=".5"/>',
        f'<g clip-path="url(#{name})">',
    ]
    for at, turn in enumerate(run["turns"]):
        tone = colours["wasted" if wasted and at else "evaluated"]
        asked, first, ended = turn["asked"], turn["first"], turn["ended"]
        for begin, end, fill in ((asked, first, tone), (first, ended, colours["cached"])):
            parts.append(
                f'<rect x="{left + begin * scale:.1f}" y="{top}" width="{max(1, (end - begin) * scale):.1f}" '
                f'height="14" fill="{fill}"/>'
            )
    parts.append("</g>")
    waits = [turn["first"] - turn["asked"] for turn in run["turns"]]
    steps = [0.0, *(turn["first"] for turn in run["turns"])]
    for at, begin in enumerate(steps):
        told = " + ".join(f"{wait:.1f}" for wait in waits[:at])
        total = f" = {sum(waits[:at]):.1f} s" if at > 1 else " s" if at else ""
        prefilled = " + ".join(f"{turn['prefilled']:,}" for turn in run["turns"][:at])
        end = steps[at + 1] if at + 1 < len(steps) else None
        parts.append(
            f'<g class="s {shows.between(begin, end)}">'
            f'<text x="{left:.1f}" y="{top + 34}">waited for the first token: {told}{total}</text>'
            f'<text x="{left:.1f}" y="{top + 54}" class="m">tokens prefilled: {prefilled}</text></g>'
        )
    return "".join(parts)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--record", action="store_true", help="play the conversation anew, in both clients")
    if options.parse_args().record:
        record()
    PICTURE.write_text(drawn(json.loads(RECORDING.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
