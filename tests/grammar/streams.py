"""A grammar of streamed answers: how servers, and what stands before them, write a known text, thought and calls.

`stream(seed)` writes a truth in one of the ways that are known of servers (frames, fields, orders, repetitions, calls
in every shape), and `damaged(stream, seed)` cuts or spoils what was written. The truth is the oracle.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Fields = dict[str, Any]


@dataclass(frozen=True)
class Truth:
    """What the model said."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Fields], ...] = ()
    """Names and arguments, in order."""


@dataclass(frozen=True)
class Stream:
    """What the server sent."""

    truth: Truth
    body: bytes
    label: str = "text/event-stream"
    ways: tuple[str, ...] = ()
    """The productions that made it, for the words of a failure."""
    is_whole: bool = True


# -- what is said -----------------------------------------------------------------------------------------------------

WORDS = (
    "The lamp", " turns", " once in ten", " seconds.", "\n\n", "Größe: 3 µm", " 灯台", " 👩‍🚀", "```py\nx = {}\n```\n", "<b>", "{",
    "}", '"', "\\n", " [1]", "null", " a < b", "\t",
)  # fmt: skip
THOUGHTS = ("I ponder", " the lamp.", "\n", " {so}", " «so»", " read_file?")
VALUES: tuple[Any, ...] = (
    "a.txt", "src/ui", "", "}{", '{"path": "x"}', 'say "so"', "two\nlines", "C:\\dir", "灯台 👩‍🚀", "```", "null", 0, 7, -1.5, True,
    None, [], ["a", "b"], [{"deep": {"er": [1, 2]}}], {"on": True}, {},
)  # fmt: skip
NAMES = ("read_file", "fs__list_directory", "fetch_url", "search")
NO_ARGUMENTS = "now"
"""A tool that takes none; the others get one at least."""


def truth(dice: random.Random) -> Truth:
    text = "".join(dice.choices(WORDS, k=dice.choice([0, 1, 3, 8]))).strip()
    reasoning = "".join(dice.choices(THOUGHTS, k=dice.choice([0, 0, 2, 5]))).strip()
    calls: list[tuple[str, Fields]] = []
    for _ in range(dice.choice([0, 1, 1, 1, 2, 3])):
        name = dice.choice((*NAMES, NO_ARGUMENTS))
        keys = dice.sample(("path", "query", "first_line", "options"), k=dice.randint(1, 3))
        call = name, {} if name == NO_ARGUMENTS else {key: dice.choice(VALUES) for key in keys}
        if call not in calls:
            calls.append(call)
    return Truth(text or ("" if calls else "Hello."), reasoning, tuple(calls))


def cut(dice: random.Random, text: str) -> list[str]:
    """A text in pieces."""
    most = dice.choice([1, 3, 7, 20, len(text) or 1])
    pieces, at = [], 0
    while at < len(text):
        size = dice.randint(1, most)
        pieces.append(text[at : at + size])
        at += size
    return pieces


# -- calls ------------------------------------------------------------------------------------------------------------

INDEXES = "own", "zero", "missing", "growing", "from one", "text"
IDS = "first", "each", "missing", "null", "empty", "late", "fresh", "same"
NAMED = "first", "each", "pieces", "behind", "emptied"
ARGUMENTS = (
    "whole", "pieces", "pieces, then whole", "growing", "growing objects", "{} first", "null first", "object", "JSON text",
    "fence",
)  # fmt: skip
PLACES = (
    "delta",
    "one event",
    "last part",
    "message",
    "message beside",
    "message growing",
    "function_call",
    "both fields",
)


@dataclass(frozen=True)
class Style:
    """How calls are written."""

    index: str = "own"
    id: str = "first"
    name: str = "first"
    arguments: str = "pieces"
    place: str = "delta"
    mixed: bool = False
    """The fragments of the calls come in turn."""

    def tells(self, calls: Sequence[tuple[str, Fields]]) -> bool:
        """Whether what is written so means these calls and no others: nobody could read the rest."""
        numbered = self.index in ("own", "from one", "text")
        known = self.id in ("first", "each")
        if self.place in ("function_call", "both fields") and len(calls) != 1:
            return False
        if self.place == "function_call" and self.index != "own":
            return False
        if self.place not in ("delta", "one event") and self.mixed:
            return False
        if self.mixed and self.name == "behind":
            return False
        if self.name == "each" and self.arguments == "growing objects":
            return self.id == "each"
        if self.mixed:
            return (numbered and self.id != "fresh" and self.id != "same") or (
                self.id == "each" and self.index == "zero"
            )
        if self.name == "behind":
            return numbered or (self.id == "each" and self.index != "growing")
        if self.name == "pieces":
            return (numbered or self.index == "zero" or self.id == "each") and self.id != "fresh"
        if self.name == "each":
            if self.id == "fresh" and self.arguments not in ("whole", "object", "JSON text"):
                return False  # another name and id with each piece
            if self.arguments in ("whole", "pieces", "object"):
                return numbered or self.index == "zero" or self.id == "each"
            return numbered or self.id == "each"
        if self.id == "fresh" and self.arguments in ("growing objects", "{} first"):
            return numbered
        if self.arguments in ("growing objects", "{} first", "null first"):
            return numbered or self.index == "zero" or known
        return True


def style(dice: random.Random, calls: Sequence[tuple[str, Fields]]) -> Style:
    while True:
        usual = Style()
        found = Style(
            dice.choice(INDEXES),
            dice.choice(IDS),
            dice.choice(NAMED),
            dice.choice(ARGUMENTS),
            dice.choice(("delta", *PLACES)),
            dice.random() < 0.15,
        )
        for name in dice.sample(("index", "id", "name", "arguments", "place"), k=dice.randint(0, 4)):
            found = replace(found, **{name: getattr(usual, name)})
        if found.tells(calls):
            return found


def spelled(dice: random.Random, given: Fields) -> str:
    """Arguments as JSON, in one of its spellings."""
    separators = dice.choice([None, (",", ":"), (", ", ":  ")])
    return json.dumps(
        given, ensure_ascii=dice.random() < 0.5, separators=separators, indent=dice.choice([None, None, 2])
    )


def values(dice: random.Random, style: str, given: Fields) -> list[Any]:
    """What the fragments of a call hold as its arguments, one after the other."""
    text = spelled(dice, given)
    match style:
        case "whole":
            return [text]
        case "pieces":
            return dice.choice([[""], []]) + cut(dice, text)
        case "pieces, then whole":
            pieces = cut(dice, text)
            return [*(pieces if len(pieces) > 1 else [text[:3], text[3:]]), text]
        case "growing":
            ends = sorted({dice.randint(1, len(text)) for _ in range(4)} | {len(text)})
            return [text[:end] for end in ends] + [text] * dice.randint(0, 1)
        case "growing objects":
            return [dict(list(given.items())[:count]) for count in range(len(given) + 1)]
        case "{} first":
            return [dice.choice(["{}", {}]), *cut(dice, text)]
        case "null first":
            return [dice.choice(["null", None]), *cut(dice, text)]
        case "object":
            return [given]
        case "JSON text":
            twice = json.dumps(text)
            return dice.choice([[twice], cut(dice, twice)])
        case "fence":
            fenced = f"```{dice.choice(['json', ''])}\n{text}\n```"
            return dice.choice([[fenced], cut(dice, fenced)])
    raise ValueError(style)


def names(dice: random.Random, style: str, name: str, count: int) -> list[tuple[str | None, bool]]:
    """The names in the fragments of a call, and whether the arguments' next piece is there too."""
    match style:
        case "each":
            return [(name, True)] * count
        case "pieces":
            half = len(name) // 2
            return [(name[:half], False), (name[half:], False), *[(None, True)] * count]
        case "behind":
            return [*[(None, True)] * count, (name, False)]
        case "emptied":
            return [(name, True), *[("", True)] * (count - 1)]
    return [(name, True), *[(None, True)] * (count - 1)]


class Writing:
    """Numbers and ids in the fragments of an answer's calls."""

    def __init__(self, dice: random.Random, style: Style) -> None:
        self._dice, self._style, self._count = dice, style, 0

    def fragments(self, at: int, name: str, given: Fields) -> list[Fields]:
        dice, style = self._dice, self._style
        pieces = values(dice, style.arguments, given)
        made = []
        left = iter(pieces)
        for one, takes in names(dice, style.name, name, len(pieces)):
            function: Fields = {} if one is None else {"name": one}
            if takes:
                function["arguments"] = next(left)
            made.append({"function": function})
        id = "call_0" if style.id == "same" else f"call_{at}_{dice.randrange(10**6)}"
        for number, fragment in enumerate(made):
            self._number(fragment, at)
            last = number == len(made) - 1
            match style.id:
                case "each" | "same":
                    fragment["id"] = id
                case "first" if number == 0:
                    fragment |= {"id": id, "type": "function"}
                case "late" if last:
                    fragment["id"] = id
                case "null":
                    fragment["id"] = None
                case "empty":
                    fragment["id"] = ""
                case "fresh":
                    fragment["id"] = f"chatcmpl-tool-{dice.randrange(10**9)}"
        return made

    def _number(self, fragment: Fields, at: int) -> None:
        match self._style.index:
            case "own":
                fragment["index"] = at
            case "zero":
                fragment["index"] = 0
            case "from one":
                fragment["index"] = at + 1
            case "text":
                fragment["index"] = str(at)
            case "growing":
                fragment["index"] = self._count
        self._count += 1


def in_turn(dice: random.Random, lists: Sequence[Sequence[Fields]]) -> Iterator[Fields]:
    """What is in several lists, mixed; the firsts in order."""
    left = [list(one) for one in lists]
    for one in left:
        yield one.pop(0)
    while any(left):
        yield dice.choice([one for one in left if one]).pop(0)


# -- the answer -------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """An answer as it is written: the deltas, what the last part has, and what a message next to it says."""

    deltas: list[Fields] = field(default_factory=list)
    last: Fields = field(default_factory=dict)
    messages: list[Fields] = field(default_factory=list)
    """Each in place of a delta, behind them."""
    ways: list[str] = field(default_factory=list)


def whole_calls(dice: random.Random, truth: Truth) -> list[Fields]:
    """Calls as a message that is no delta holds them."""
    made: list[Fields] = []
    for at, (name, given) in enumerate(truth.calls):
        arguments: Any = given if dice.random() < 0.3 else json.dumps(given)
        made.append({"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}})
    return made


def write_calls(dice: random.Random, truth: Truth, answer: Answer) -> None:
    if not truth.calls:
        if dice.random() < 0.2:
            answer.deltas.append({"tool_calls": dice.choice([[], None])})
        return
    how = style(dice, truth.calls)
    answer.ways += [f"calls: {how}"]
    writing = Writing(dice, how)
    lists = [writing.fragments(at, name, given) for at, (name, given) in enumerate(truth.calls)]
    fragments = list(in_turn(dice, lists)) if how.mixed else [one for each in lists for one in each]
    match how.place:
        case "function_call":
            answer.deltas += [{"function_call": one["function"]} for one in fragments]
        case "both fields":
            answer.deltas += [{"tool_calls": [one], "function_call": one["function"]} for one in fragments]
        case "one event":
            answer.deltas.append({"tool_calls": fragments})
        case "last part":
            answer.deltas += [{"tool_calls": [one]} for one in fragments[:-1]]
            answer.last = {"tool_calls": fragments[-1:]}
        case "message":
            answer.messages = [{"role": "assistant", "content": truth.text, "tool_calls": whole_calls(dice, truth)}]
        case "message beside":
            answer.deltas += [{"tool_calls": [one]} for one in fragments]
            answer.messages = [{"role": "assistant", "content": truth.text, "tool_calls": whole_calls(dice, truth)}]
        case "message growing":
            calls = whole_calls(dice, truth)
            answer.messages = [
                {"role": "assistant", "content": truth.text, "tool_calls": calls[: at + 1]} for at in range(len(calls))
            ]
        case _:
            answer.deltas += [{"tool_calls": [one]} for one in fragments]


def write_words(dice: random.Random, truth: Truth, answer: Answer) -> None:
    if dice.random() < 0.5:
        answer.deltas.append({"role": "assistant", "content": dice.choice([None, ""])})
    reasoned = dice.choice(("reasoning_content", "reasoning", "thinking", "both", "parts"))
    if truth.reasoning:
        answer.ways.append(f"reasoning: {reasoned}")
    for piece in cut(dice, truth.reasoning):
        match reasoned:
            case "both":
                answer.deltas.append({"reasoning_content": piece, "reasoning": piece})
            case "parts":
                answer.deltas.append({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]})
            case _:
                answer.deltas.append({reasoned: piece, **({"content": None} if dice.random() < 0.5 else {})})
    in_parts = dice.random() < 0.15
    pieces = cut(dice, truth.text)
    for piece in pieces:
        answer.deltas.append({"content": [{"type": "text", "text": piece}] if in_parts else piece})
    if len(pieces) > 1 and not in_parts and dice.random() < 0.1:
        answer.ways.append("the text whole at the end")
        answer.last = {"content": truth.text}


def shuffled(dice: random.Random, value: Any) -> Any:
    """A value with the fields of its objects in any order; not those of arguments, which are the model's."""
    if isinstance(value, list):
        return [shuffled(dice, one) for one in value]
    if not isinstance(value, dict):
        return value
    items = [(key, one if key == "arguments" else shuffled(dice, one)) for key, one in value.items()]
    return dict(dice.sample(items, len(items)))


def chunks(dice: random.Random, answer: Answer, *, has_calls: bool) -> list[Fields]:
    """The parts of a stream."""
    finish = (
        dice.choice(("tool_calls", "stop", "TOOL_CALLS", "function_call"))
        if has_calls
        else dice.choice(("stop", "STOP"))
    )
    made: list[Fields] = [{"delta": delta, "finish_reason": None} for delta in answer.deltas]
    made += [{"message": message, "finish_reason": None} for message in answer.messages]
    if answer.last or not made or dice.random() < 0.7:
        made.append({"delta": answer.last, "finish_reason": None})
    made[-1]["finish_reason"] = finish
    parts = []
    around = dice.choice(({}, {"object": "chat.completion.chunk", "model": "toy", "created": 1}))
    for one in made:
        if one["finish_reason"] is None and dice.random() < 0.3:
            del one["finish_reason"]
        parts.append({"choices": [{"index": 0, **one, **dice.choice(({}, {"logprobs": None}))}], **around})
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    match dice.randrange(4):
        case 0:
            parts.append({"choices": [], "usage": usage, **around})
        case 1:
            parts[-1]["usage"] = usage
        case 2:
            parts = [{**part, "usage": None} for part in parts]
    return [shuffled(dice, part) for part in parts]


def frames(dice: random.Random, parts: Sequence[Fields]) -> bytes:
    """The parts as events."""
    end = dice.choice((b"\n", b"\n", b"\r\n", b"\r"))
    begins = dice.choice((b"data: ", b"data:", b"event: message" + end + b"data: ", b"id: 1" + end + b"data: "))
    life = dice.choice((b"", b"", b": ping" + end + end, b":" + end))
    made = []
    for part in parts:
        ascii = dice.random() < 0.5
        made.append(begins + json.dumps(part, ensure_ascii=ascii).encode() + end * 2)
    body = b"".join(dice.choice((life, b"")) + one for one in made)
    return (
        dice.choice((b"", b"", b"\xef\xbb\xbf"))
        + body
        + dice.choice((b"data: [DONE]" + end * 2, b"data:[DONE]" + end * 2, b""))
    )


def document(dice: random.Random, truth: Truth) -> bytes:
    """The answer in one piece, as servers give it that stream nothing."""
    message: Fields = {"role": "assistant", "content": truth.text or dice.choice(["", None])}
    if truth.reasoning:
        message[dice.choice(("reasoning_content", "reasoning"))] = truth.reasoning
    if len(truth.calls) == 1 and dice.random() < 0.2:
        name, given = truth.calls[0]
        message["function_call"] = {"name": name, "arguments": json.dumps(given)}
    elif truth.calls:
        message["tool_calls"] = whole_calls(dice, truth)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if truth.calls else "stop"}
    return json.dumps(shuffled(dice, {"object": "chat.completion", "choices": [choice]})).encode()


def stream(seed: int) -> Stream:
    """The stream of a seed."""
    dice = random.Random(seed)
    said = truth(dice)
    if dice.random() < 0.05:
        return Stream(said, document(dice, said), "application/json", ("document",))
    answer = Answer()
    write_words(dice, said, answer)
    words = len(answer.deltas)
    write_calls(dice, said, answer)
    if answer.messages and answer.messages[-1]["content"] == "":
        for message in answer.messages:
            message["content"] = dice.choice(["", None])
    if said.calls and words and not answer.messages and dice.random() < 0.1:
        answer.ways.append("calls first")
        answer.deltas = answer.deltas[words:] + answer.deltas[:words]
    return Stream(said, frames(dice, chunks(dice, answer, has_calls=bool(said.calls))), ways=tuple(answer.ways))


def damaged(whole: Stream, seed: int) -> Stream:
    """A stream that is cut somewhere, or in which bytes are lost, doubled or foreign."""
    dice = random.Random(-seed - 1)
    body, at = whole.body, dice.randrange(len(whole.body))
    size = dice.choice([1, 2, 7, 40, 400])
    match dice.randrange(4):
        case 0:
            body, way = body[:at], "cut"
        case 1:
            body, way = body[:at] + body[at + size :], "lost"
        case 2:
            body, way = body[: at + size] + body[at:], "doubled"
        case _:
            foreign = bytes(dice.choices(b'\0\r\n:{}[]",\xff\xe2dat0', k=size))
            body, way = body[:at] + foreign + body[at:], "foreign"
    return Stream(whole.truth, body, whole.label, (*whole.ways, way), is_whole=False)
