"""What the server prefilled for a client, against what was new.

new            A1: the whole prompt; B1: its message, and what its prompt is longer than A1's; later: the prompt less the
               last prompt of that conversation and its answer
evaluated      tokens that the server prefilled, by its own count
side request   a request for an answer that is no turn of the script: titles, memories, warm-up
amplification  all that was evaluated over all that was new; `later` without the first prompt in both: a head of 12,000
               tokens hides every later loss
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exchange import prompt_of, text_of

PROMPTED = re.compile(r"(completions?|/messages|/responses)$")
SHOWN = 60
"""Characters of a changed text that are kept, on either side."""
COLUMNS = "turn | at s | path | prompt | cached | evaluated | new | messages | tools | beside | last message"


@dataclass(frozen=True, slots=True)
class Mark:
    """A message of the script, and when it went."""

    turn: str
    message: str
    at: float


@dataclass(slots=True, eq=False)
class Request:
    """A request for an answer, as the server took it."""

    record: dict[str, Any]
    messages: Any
    tools: list[dict[str, Any]]
    text: str
    """The prompt as the template prints it; "" where it came as token ids."""
    ids: list[int]
    prompt: int
    """Tokens, by the server's count where it told one."""
    evaluated: int
    turn: str = ""
    """Of the script; "" for a side request."""
    new: int = 0

    @property
    def began(self) -> float:
        return float(self.record["began"])

    @property
    def head(self) -> str:
        """What the prompt begins with: requests of one kind share it."""
        return text_of(self.messages[0].get("content"))[:100] if self._has_messages else ""

    @property
    def question(self) -> str:
        """The newest message of the user."""
        if not self._has_messages:
            return ""
        return next((text_of(m["content"]) for m in reversed(self.messages) if m["role"] == "user"), "")

    @property
    def last(self) -> str:
        if not self._has_messages:
            return ""
        return text_of(self.messages[-1].get("content"))[-70:].replace("\n", " ").replace("|", "/")

    @property
    def _has_messages(self) -> bool:
        return isinstance(self.messages, list) and bool(self.messages) and isinstance(self.messages[0], dict)


class Server:
    """The server of the run, for its template and its tokenizer."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    def tokens(self, text: str) -> list[int]:
        found: list[int] = self._post("/tokenize", {"content": text, "add_special": True, "parse_special": True})[
            "tokens"
        ]
        return found

    def prompt(self, messages: Any, tools: list[dict[str, Any]]) -> str:
        body = {"messages": messages} | ({"tools": tools} if tools else {})
        return str(self._post("/apply-template", body)["prompt"])


def _requests(records: Iterable[dict[str, Any]], server: Server) -> list[Request]:
    """The answered requests of `records`, in the order in which they began."""
    found: list[Request] = []
    answered = (r for r in records if PROMPTED.search(r["path"]) and r["status"] == 200)
    for record in sorted(answered, key=lambda record: record["began"]):
        messages, tools = prompt_of(record)
        if isinstance(messages, list) and messages and isinstance(messages[0], int):
            text, ids = "", messages
        else:
            text = messages if isinstance(messages, str) else server.prompt(messages, tools)
            ids = server.tokens(text)
        evaluated, prompt = record["evaluated"], len(ids)
        if evaluated is None:  # the client hung up: at least what no earlier prompt has
            evaluated = prompt - max((_common(other.ids, ids) for other in found), default=0)
        else:
            prompt = (record["cached"] or 0) + evaluated
        found.append(Request(record, messages, tools, text, ids, prompt, evaluated))
    return found


def _common(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


@dataclass(slots=True)
class Turns:
    """Finds the requests of each turn, and what was new in them."""

    server: Server
    requests: list[Request]
    marks: list[Mark]
    last: dict[str, Request] = field(default_factory=dict)
    """The last request of each conversation."""
    missing: list[str] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        ends = [mark.at for mark in self.marks[1:]] + [float("inf")]
        for mark, end in zip(self.marks, ends, strict=True):
            steps = self._steps(mark, end)
            if not steps:
                self.missing.append(mark.turn)
            for request in steps:
                request.turn = mark.turn
                request.new = self._new(request, mark, is_first=request is steps[0])
                self._compare(request, mark)
                self.last[mark.turn[0]] = request

    def _steps(self, mark: Mark, end: float) -> list[Request]:
        """The requests that answer a message: one, and one more for each round of tool calls."""
        window = [r for r in self.requests if mark.at - 0.5 <= r.began < end and not r.turn]
        asked = [r for r in window if mark.message in r.question]
        asked = asked or [r for r in window if mark.message in r.text[-30_000:]]
        if not asked:
            return []
        longest = max(asked, key=lambda request: (len(request.text), -request.began))
        return [r for r in asked if r.head == longest.head and bool(r.tools) == bool(longest.tools)]

    def _new(self, request: Request, mark: Mark, *, is_first: bool) -> int:
        least = len(self.server.tokens(mark.message)) if is_first else 0
        if previous := self.last.get(mark.turn[0]):
            return max(request.prompt - previous.prompt - self._answer(previous), least)
        if self.last:
            first = next(r for r in self.requests if r.turn == self.marks[0].turn)
            return max(request.prompt - first.prompt + len(self.server.tokens(self.marks[0].message)), least)
        return request.prompt

    def _answer(self, request: Request) -> int:
        """Tokens of the answer to `request`, without its end."""
        reply = request.record["reply"]
        return len(self.server.tokens(reply)) if reply else max((request.record["generated"] or 1) - 1, 0)

    def _compare(self, request: Request, mark: Mark) -> None:
        """Note where the prompt does not go on from the last one of its conversation, or, in a new one, does not begin
        as the first one did before its first message."""
        previous = self.last.get(mark.turn[0])
        if previous:
            before = previous.text + previous.record["reply"]
            end = len(before)
        elif self.last:
            before = next(r for r in self.requests if r.turn == self.marks[0].turn).text
            end = before.find(self.marks[0].message)
            end = len(before) if end < 0 else end
        else:
            return
        at = _common(before, request.text)
        if at < end - 3:
            roles = re.findall(r"<\|im_start\|>(\w+)", request.text[: at + 1])
            self.changes.append(
                {
                    "turn": mark.turn,
                    "character": at,
                    "of": len(before),
                    "message": f"{len(roles) - 1}, {roles[-1] if roles else '-'}",
                    "behind": before[max(0, at - SHOWN) : at],
                    "was": before[at : at + SHOWN],
                    "is": request.text[at : at + SHOWN],
                }
            )


def analyse(records: list[dict[str, Any]], marks: list[Mark], url: str, table: Path) -> dict[str, Any]:
    """The figures of a run; each request is a line of `table`."""
    requests = _requests(records, Server(url))
    turns = Turns(Server(url), requests, marks)
    of_turns = [request for request in requests if request.turn]
    side = [request for request in requests if not request.turn]
    failed = [record for record in records if PROMPTED.search(record["path"]) and record["status"] != 200]

    def total(of: Callable[[Request], int], among: Iterable[Request]) -> int:
        return sum(map(of, among))

    def turn(name: str) -> list[int]:
        """(evaluated, new) of a turn."""
        steps = [request for request in of_turns if request.turn == name]
        return [total(lambda r: r.evaluated, steps), total(lambda r: r.new, steps)]

    first = of_turns[0].prompt if of_turns else 0
    new = total(lambda r: r.new, of_turns)
    evaluated, beside = total(lambda r: r.evaluated, of_turns), total(lambda r: r.evaluated, side)
    _write_turns(table, requests, turns.changes)
    return {
        "turns": len({request.turn for request in of_turns}),
        "requests": len(of_turns),
        "first_prompt": first,
        "new": new,
        "evaluated": evaluated,
        "side_requests": len(side),
        "side_evaluated": beside,
        "amplification": round((evaluated + beside) / max(new, 1), 2),
        "later": round((evaluated + beside - first) / max(new - first, 1), 1),
        "excess": evaluated + beside - new,
        "other": turn("B1"),
        "back": turn("A6"),
        "restart": turn("A7"),
        "missing": turns.missing,
        "failed": len(failed),
        "errors": sorted({record["error"][:200] for record in failed}),
        "hung_up": sum(request.record["evaluated"] is None for request in requests),
        "inexact": sum(request.prompt != len(request.ids) for request in requests),
        "paths": sorted({request.record["path"] for request in requests}),
        "changes": turns.changes,
    }


def _write_turns(file: Path, requests: list[Request], changes: list[dict[str, Any]]) -> None:
    lines = [f"| {COLUMNS} |", "|" + "---|" * (COLUMNS.count("|") + 1)]
    for request in requests:
        record = request.record
        cells = (
            request.turn or "side",
            f"{request.began - requests[0].began:.1f}",
            record["path"],
            f"{request.prompt}{'' if request.prompt == len(request.ids) else '~'}",
            record["cached"],
            request.evaluated,
            request.new if request.turn else "",
            len(request.messages) if isinstance(request.messages, list) else 1,
            len(request.tools),
            ",".join(map(str, record["overlap"])),
            request.last,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for change in changes:
        lines.append(
            f"\n{change['turn']}: differs from the last prompt at character {change['character']:,} of {change['of']:,} "
            f"(message {change['message']}): ...{change['behind']!r} then {change['was']!r} became {change['is']!r}"
        )
    file.write_text("\n".join(lines) + "\n")
