"""Ways in which servers, and what stands before them, write the same answer: as a stream of events and as a document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvchat.prompt.message import State

SAID, THOUGHT = "Hello there.", "I ponder."


@dataclass(frozen=True)
class Way:
    """One way. `deltas`: what the parts of a stream hold, `message`: what a document does."""

    deltas: Sequence[dict[str, Any]]
    message: dict[str, Any]
    text: str = SAID
    thought: str = ""
    state: State = State.DONE
    note: str = ""
    """Words of what is said of it."""
    choice: dict[str, Any] = field(default_factory=dict)
    """What each choice has beside."""
    around: dict[str, Any] = field(default_factory=dict)
    """What each part and the document have beside."""
    finish: Any = "stop"
    going_on: Any = None
    """The `finish_reason` of a part that is not the last."""
    whole: Sequence[dict[str, Any]] = ()
    """Ready parts in place of the deltas; `n` answers have them as they are."""
    life: bytes = b""
    """What comes between the events, and before the document."""
    blank: bytes = b"\n\n"
    """What parts two events."""
    tail: bytes = b"data: [DONE]\n\n"
    label: tuple[str, str] = ("text/event-stream", "application/json")
    status: str = "200 OK"
    coding: str = ""
    lined: bool = False
    """The document is written on many lines."""

    def parts(self, answers: int = 1) -> list[dict[str, Any]]:
        if self.whole:
            return [*self.whole]
        made = []
        for at, delta in enumerate(self.deltas):
            finish = self.finish if at == len(self.deltas) - 1 else self.going_on
            for index in range(answers):
                choice = {"index": index, "delta": delta, "finish_reason": finish, **self.choice}
                if answers > 1:
                    choice["index"] = index
                made.append({"object": "chat.completion.chunk", "model": "toy", "choices": [choice], **self.around})
        return made

    def stream(self, answers: int = 1) -> bytes:
        events = [
            b"data: " + json.dumps(part, ensure_ascii=False).encode() + self.blank for part in self.parts(answers)
        ]
        return self.life.join([b"", *events]) + self.tail

    def document(self, answers: int = 1) -> bytes:
        choices = [
            {"index": index, "message": self.message, "finish_reason": self.finish, **self.choice}
            for index in range(answers)
        ]
        if answers > 1:
            choices = [{**choice, "index": index} for index, choice in enumerate(choices)]
        found = {"object": "chat.completion", "model": "toy", "choices": choices, **self.around}
        return json.dumps(found, ensure_ascii=False, indent=2 if self.lined else None).encode()

    def http(self, *, streamed: bool, answers: int = 1) -> bytes:
        """All that a server sends."""
        body = self.stream(answers) if streamed else self.document(answers)
        head = [f"HTTP/1.1 {self.status}", f"Content-Type: {self.label[not streamed]}", "Connection: close"]
        if self.coding:
            head += self.coding.split("\n")
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        return "\r\n".join([*head, "", ""]).encode() + body


def said(*pieces: str, **more: Any) -> Way:
    """A way to say pieces of text."""
    return Way([*({"content": piece} for piece in pieces), {}], {"content": "".join(pieces)}, **more)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


PLAIN = ("Hello ", "there.")
THINKING = {"type": "thinking", "thinking": [text(THOUGHT)]}


def wrapped(delta: dict[str, Any], finish: object = None, **choice: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]}


def pieces(*texts: str) -> list[dict[str, Any]]:
    """Parts that hold messages."""
    return [
        {
            "choices": [
                {"index": 0, "message": {"content": one}, "finish_reason": "stop" if at == len(texts) - 1 else None}
            ]
        }
        for at, one in enumerate(texts)
    ]


GREETING = {"content": SAID}
WAYS: dict[str, Way] = {
    "plain": said(*PLAIN),
    "role and null first": Way(
        [{"role": "assistant", "content": None}, GREETING, {"content": ""}, {}], {"role": "assistant", **GREETING}
    ),
    "no last part": Way([{"content": "Hello "}, {"content": "there."}], GREETING),
    # content in parts
    "parts of text": Way([{"content": [text("Hello ")]}, {"content": [text("there.")]}, {}], {"content": [text(SAID)]}),
    "a thinking part": Way(
        [{"content": [THINKING]}, {"content": [text("Hello ")]}, {"content": "there."}, {}],
        {"content": [THINKING, text(SAID)]},
        thought=THOUGHT,
    ),
    "thinking as text": Way(
        [{"content": [{"type": "thinking", "thinking": THOUGHT}, text(SAID)]}, {}],
        {"content": [{"type": "reasoning", "text": THOUGHT}, text(SAID)]},
        thought=THOUGHT,
    ),
    "one part alone": Way([{"content": text(SAID)}, {}], {"content": text(SAID)}),
    "output text": Way(
        [{"content": [{"type": "output_text", "text": {"value": SAID}}]}, {}], {"content": [{"text": SAID}]}
    ),
    "unknown parts": Way(
        [{"content": [{"type": "reference", "reference_ids": [1]}, None, 7]}, GREETING, {}],
        {"content": [{"type": "image_url", "image_url": {"url": "x"}}, text(SAID), {}, [], "", None]},
    ),
    "strings in a list": Way([{"content": ["Hello ", "there."]}, {}], {"content": ["Hello ", "there."]}),
    # reasoning in a field
    "reasoning_content": Way(
        [{"reasoning_content": THOUGHT}, GREETING, {}], {"reasoning_content": THOUGHT, **GREETING}, thought=THOUGHT
    ),
    "reasoning twice": Way(
        [{"reasoning": THOUGHT, "reasoning_content": THOUGHT}, GREETING, {}],
        {"reasoning": THOUGHT, "reasoning_content": THOUGHT, **GREETING},
        thought=THOUGHT,
    ),
    "reasoning in parts": Way(
        [{"reasoning_content": [text(THOUGHT)]}, GREETING, {}],
        {"reasoning": [text(THOUGHT)], **GREETING},
        thought=THOUGHT,
    ),
    # thoughts in the text
    "think": said(f"<think>\n{THOUGHT}\n</think>\n\n", SAID, thought=THOUGHT),
    "think, split": said("\n<th", "ink>\nI po", "nder.", "\n</thi", "nk>", "\n\n", *PLAIN, thought=THOUGHT),
    "only its end": said(THOUGHT[:4], THOUGHT[4:], "\n</think>", "\n\n", *PLAIN, thought=THOUGHT),
    "only its end, amid a line": said(f"{THOUGHT}[/THI", f"NK]{SAID}", thought=THOUGHT),
    "bracket": said(f"[THINK]{THOUGHT}[/THINK]{SAID}", thought=THOUGHT),
    "empty thought": said("<think>\n\n</think>\n\n", SAID),
    "two thoughts": said("<think>I</think>\n<think>ponder.</think>", SAID, thought="I</think>\n<think>ponder."),
    "channels": said(
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{SAID}",
        thought=THOUGHT,
    ),
    "tags that are spoken of": said(
        "The tag `</think>` ends it. <think> begins.", text="The tag `</think>` ends it. <think> begins."
    ),
    "tags in code": said(
        "So:\n```\n<think>\nhm\n</think>\n```\nDone.", text="So:\n```\n<think>\nhm\n</think>\n```\nDone."
    ),
    # marks at the end
    "im_end": said(f"{SAID}<|im_end|>"),
    "several marks, split": said(*PLAIN, "<|im_", "end|>\n<|endof", "text|>\n"),
    "end of turn": said(SAID, "<end_of_turn>"),
    "</s>": said(SAID, "</", "s>"),
    "a mark in the midst": said("<|im_end|> ends a turn.", text="<|im_end|> ends a turn."),
    "less than": said("1 <", " 2 [", "x]", text="1 < 2 [x]"),
    # said again
    "a message behind deltas": said(
        SAID, whole=[*map(wrapped, ({"content": "Hello "}, {"content": "there."})), *pieces(SAID)]
    ),
    "delta and message": said(
        SAID,
        choice={},
        whole=[wrapped({"content": one}, message={"content": one}) for one in PLAIN]
        + [wrapped({}, "stop", message=GREETING)],
    ),
    "the last delta again": Way([{"content": "Hello "}, {"content": "there."}, GREETING], GREETING),
    "messages that grow": said(SAID, whole=pieces("Hello", "Hello there", SAID)),
    "messages in pieces": said(SAID, whole=pieces("Hello ", "there.", "")),
    "equal pieces": said("ha", "ha", "ha", "!", whole=pieces("ha", "ha", "ha", "!"), text="hahaha!"),
    # decoration
    "index as text": said(*PLAIN, choice={"index": "0"}),
    "index from 1": said(*PLAIN, choice={"index": 1}),
    "no index": said(*PLAIN, choice={"index": None}),
    "odd index": said(*PLAIN, choice={"index": {"n": [0]}}),
    "STOP": said(*PLAIN, finish="STOP"),
    "finish true": said(*PLAIN, finish=True, going_on=False),
    "finish as object": said(*PLAIN, finish={"type": "stop"}, going_on={}),
    "finish null as text": said(*PLAIN, going_on="null"),
    "finish empty": said(*PLAIN, going_on=""),
    "stop from the first": said(*PLAIN, going_on="stop"),
    "odd names": said(*PLAIN, around={"id": 7, "model": None, "created": "now", "object": [], "usage": 5}),
    "no error": said(*PLAIN, around={"error": None}),
    "empty error": said(*PLAIN, around={"error": {}}),
    "false error": said(*PLAIN, around={"error": False, "detail": None}),
    "error without words": said(*PLAIN, around={"error": {"message": None, "code": 0}}, choice={"error": ""}),
    "odd figures": said(*PLAIN, around={"usage": {"prompt_tokens": "x"}, "timings": [], "prompt_progress": 1}),
    "odd calls": said(*PLAIN, choice={"logprobs": 0, "tool_calls": {}, "content_filter_results": {}}),
    "choices as object": said(
        SAID, whole=[{"choices": {"delta": GREETING, "finish_reason": None}}, {"choices": {"finish_reason": "stop"}}]
    ),
    "text in the choice": said(SAID, whole=[{"choices": [{"text": SAID, "finish_reason": "stop", "index": 0}]}]),
    "delta as text": said(SAID, whole=[{"choices": [{"delta": SAID, "finish_reason": "stop", "index": 0}]}]),
    # frames
    "no blank line at the end": said(*PLAIN, tail=b"data: [DONE]"),
    "one line end": said(*PLAIN, blank=b"\n", tail=b"data: [DONE]\n", lined=True),
    "CRLF": said(*PLAIN, blank=b"\r\n\r\n", tail=b"data: [DONE]\r\n\r\n", lined=True),
    "no [DONE]": said(*PLAIN, tail=b""),
    "pings": said(*PLAIN, life=b'event: ping\ndata: ping\n\nevent: ping\ndata: {"type": "ping"}\n\n: x\n\n'),
    "comments as data": said(*PLAIN, life=b"data: : OPENROUTER PROCESSING\n\ndata: \n\ndata: null\n\ndata: [1]\n\n"),
    "status events": said(*PLAIN, life=b'event: status\ndata: {"message": "looking"}\n\ndata: {"type": "status"}\n\n'),
    "other label": said(*PLAIN, label=("text/plain", "text/event-stream")),
    "labels exchanged": said(*PLAIN, label=("application/json", "text/plain"), lined=True),
    "status 201": said(*PLAIN, status="201 Created"),
    "status 202": said(*PLAIN, status="202 Accepted"),
    "chunked twice": said(*PLAIN, coding="Transfer-Encoding: chunked\nTransfer-Encoding: chunked"),
    "chunked, Chunked": said(*PLAIN, coding="Transfer-Encoding: chunked, Chunked"),
    "identity and chunked": said(*PLAIN, coding="transfer-encoding : identity, chunked\nContent-Length: 5"),
    # no whole answer
    "only reasoning": Way(
        [{"reasoning_content": THOUGHT}, {}],
        {"reasoning_content": THOUGHT, "content": None},
        text="",
        thought=THOUGHT,
        state=State.EMPTY,
        note="reasoned and gave no answer",
    ),
    "only a thought": said(
        f"<think>{THOUGHT}", text="", thought=THOUGHT, state=State.EMPTY, note="reasoned and gave no answer"
    ),
    "reasoning up to the length": Way(
        [{"reasoning": THOUGHT}, {}],
        {"reasoning": THOUGHT},
        text="",
        thought=THOUGHT,
        finish="length",
        state=State.LENGTH,
        note="reasoned and gave no answer",
    ),
    "white space": said(" \n", text=" \n", state=State.EMPTY, note="answered nothing"),
    "only a mark": said("<|im_end|>", text="", state=State.EMPTY, note="answered nothing"),
    "MAX_TOKENS": said(*PLAIN, finish="MAX_TOKENS", state=State.LENGTH, note="max tokens"),
    "filtered": said(*PLAIN, finish="content_filter", state=State.INTERRUPTED, note="filter of the server stopped"),
    "filtered at once": said("", text="", finish="SAFETY", state=State.EMPTY, note="filter of the server stopped"),
    "a refusal": Way(
        [{"refusal": "I can", "content": None}, {"refusal": "not."}, {}],
        {"content": None, "refusal": "I cannot."},
        text="",
        state=State.EMPTY,
        note="refused to answer: I cannot.",
    ),
    "a refusal in parts": Way(
        [{"content": [{"type": "refusal", "refusal": "I cannot."}]}, {}],
        {"content": [{"type": "refusal", "refusal": "I cannot."}]},
        text="",
        state=State.EMPTY,
        note="refused to answer: I cannot.",
    ),
    "aborted": said(*PLAIN, finish="abort", state=State.INTERRUPTED, note='ended the answer ("abort")'),
    "error in the choice": said(
        *PLAIN, choice={"error": {"message": "boom"}}, text="", state=State.ERROR, note="error: boom"
    ),
    "error beside null": Way(
        [{}], {}, around={"choices": None, "error": {"msg": "boom"}}, text="", state=State.ERROR, note="error: boom"
    ),
    "message": Way(
        [{}], {}, around={"choices": None, "message": "boom"}, text="", state=State.ERROR, note="error: boom"
    ),
    "overflow in detail": Way(
        [{}],
        {},
        around={"choices": [], "detail": [{"msg": "maximum context length is 100 tokens, you passed 900 tokens"}]},
        text="",
        state=State.ERROR,
        note="the prompt has 900 tokens, but the server's window holds 100",
    ),
}
KEPT = {name: way for name, way in WAYS.items() if name != "overflow in detail"}
"""Those after which the question stays in the conversation."""
