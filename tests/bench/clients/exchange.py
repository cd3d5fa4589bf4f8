"""One request for an answer and what came back, in any of the three APIs of llama-server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Exchange:
    """A POST that went through the proxy."""

    number: int
    path: str
    agent: str
    body: bytes
    began: float
    ended: float = 0.0
    raw: bytearray = field(default_factory=bytearray)
    """The response as it came, head and all."""
    overlap: set[int] = field(default_factory=set)
    """Numbers of the requests in flight at the same time."""
    aborted: bool = False

    def record(self) -> dict[str, Any]:
        """The line that is kept of it. `cached` and `evaluated` are the server's counts of the prompt, None where it
        told none (the client hung up)."""
        head, _, body = bytes(self.raw).partition(b"\r\n\r\n")
        events = list(_events(head, body))
        cached, evaluated, generated = counts(events)
        try:
            request = json.loads(self.body or b"{}")
        except ValueError:
            request = {}
        status = int(head.split(b" ", 2)[1]) if head.count(b" ") > 1 else None
        return {
            "number": self.number,
            "path": self.path.split("?")[0],
            "agent": self.agent,
            "began": self.began,
            "ended": self.ended,
            "overlap": sorted(self.overlap),
            "aborted": self.aborted,
            "status": status,
            "error": "" if status == 200 else body[:300].decode("utf-8", "replace"),
            "cached": cached,
            "evaluated": evaluated,
            "generated": generated,
            "reply": "".join(map(_said, events)),
            "request": request,
        }


def _events(head: bytes, body: bytes) -> Iterable[dict[str, Any]]:
    """The events of a stream, or the one object of a response that is none."""
    streamed = False
    for line in body.replace(b"\r", b"").split(b"\n"):
        if line.startswith(b"data: {"):
            streamed = True
            try:
                yield json.loads(line[6:])
            except ValueError:
                continue  # cut where the client hung up
    if not streamed:
        try:
            found = json.loads(_joined(body) if b"chunked" in head.lower() else body)
        except ValueError:
            return
        if isinstance(found, dict):
            yield found


def _joined(body: bytes) -> bytes:
    """A chunked body without its chunks."""
    joined = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        if not length:
            break
        joined, body = joined + body[:length], body[length + 2 :]
    return joined


def counts(events: Iterable[Mapping[str, Any]]) -> tuple[int | None, int | None, int | None]:
    """(cached, evaluated, generated) tokens, as the last of `events` that tells them has it."""
    timings: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    for event in events:
        for part in (event, event.get("message"), event.get("response")):
            if isinstance(part, dict):
                timings = part.get("timings") or timings
                usage.update({key: value for key, value in (part.get("usage") or {}).items() if value is not None})
    generated = timings.get("predicted_n", usage.get("completion_tokens", usage.get("output_tokens")))
    if "cache_read_input_tokens" in usage:  # /v1/messages
        return usage["cache_read_input_tokens"], usage["input_tokens"], generated
    if "input_tokens" in usage:  # /v1/responses
        cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
        return cached, usage["input_tokens"] - cached, generated
    if "prompt_n" in timings:
        return timings["cache_n"], timings["prompt_n"], generated
    if "prompt_tokens" in usage:
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return cached, usage["prompt_tokens"] - cached, generated
    return None, None, generated


def _said(event: Mapping[str, Any]) -> str:
    """The text that an event adds to the answer."""
    if event.get("type") == "response.output_text.delta":
        return str(event["delta"])
    if isinstance(event.get("delta"), dict):
        return event["delta"].get("text") or ""
    text = ""
    for choice in event.get("choices") or []:
        part = choice.get("delta") or choice.get("message") or {}
        text += (part.get("reasoning_content") or "") + (part.get("content") or "") + (choice.get("text") or "")
    return text


def text_of(content: object) -> str:
    """The text of a message's content, whatever its form."""
    if isinstance(content, list):
        return "\n".join(part.get("text") or json.dumps(part) for part in content if isinstance(part, dict))
    return str(content or "")


def prompt_of(record: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """(messages, tools) as llama-server turns a recorded request into them: OpenAI's form whatever the API.

    Messages are a string or a list of token ids where the request is for a plain completion.
    """
    request, path = record["request"], record["path"]
    if path.endswith("/messages"):
        return _from_messages(request)
    if path.endswith("/responses"):
        return _from_responses(request)
    return request.get("messages", request.get("prompt")), request.get("tools") or []


def _function(name: str, arguments: str, number: str) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def _from_messages(request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    messages: list[dict[str, Any]] = []
    if system := request.get("system"):
        parts = system if isinstance(system, list) else [{"text": system}]
        messages.append({"role": "system", "content": "".join(part.get("text", "") for part in parts)})
    for message in request.get("messages", []):
        content = message["content"]
        if not isinstance(content, list):
            messages.append({"role": message["role"], "content": content})
            continue
        calls = [
            _function(part["name"], json.dumps(part["input"]), part["id"])
            for part in content
            if part.get("type") == "tool_use"
        ]
        text = "".join(part.get("text", "") for part in content if part.get("type") == "text")
        results = [part for part in content if part.get("type") == "tool_result"]
        if text or calls or not results:
            messages.append({"role": message["role"], "content": text} | ({"tool_calls": calls} if calls else {}))
        messages += [
            {"role": "tool", "tool_call_id": part["tool_use_id"], "content": text_of(part.get("content"))}
            for part in results
        ]
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": tool["input_schema"],
            },
        }
        for tool in request.get("tools") or []
        if "input_schema" in tool
    ]
    return messages, tools


def _from_responses(request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    messages: list[dict[str, Any]] = []
    if request.get("instructions"):
        messages.append({"role": "system", "content": request["instructions"]})
    items = request.get("input")
    for item in items if isinstance(items, list) else [{"role": "user", "content": items}]:
        match item.get("type"):
            case "function_call":
                call = _function(str(item["name"]), str(item["arguments"]), str(item["call_id"]))
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            case "function_call_output":
                result = {"tool_call_id": item["call_id"], "content": text_of(item["output"])}
                messages.append({"role": "tool"} | result)
            case _ if item.get("role"):
                role = "system" if item["role"] == "developer" else item["role"]
                messages.append({"role": role, "content": text_of(item.get("content"))})
    tools = [
        {
            "type": "function",
            "function": {key: tool[key] for key in ("name", "description", "parameters", "strict") if key in tool},
        }
        for tool in request.get("tools") or []
        if tool.get("type") == "function"
    ]
    return messages, tools
