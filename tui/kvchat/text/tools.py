"""Words for tools: what is asked before a call, and a call in one line."""

from __future__ import annotations

from collections.abc import Collection

from kvchat.prompt.tools import Decision, ToolCall, ToolQuestion
from kvchat.sanitize import one_line

DECISIONS = {
    Decision.ONCE: "this once",
    Decision.CONVERSATION: "in this conversation",
    Decision.ALWAYS: "always",
    Decision.NO: "no",
}
LETTERS = {"y": Decision.ONCE, "c": Decision.CONVERSATION, "a": Decision.ALWAYS}
"""What answers the question where it is asked in a line; all else is no."""
TOOL_GROUPS = {
    "files": "read files of the folder that kvchat was started in",
    "documents": "search your collections",
    "web": "search the web, and read pages of it",
    "python": "compute by Python that has neither files nor a network",
}
"""What the groups do."""
SHOWN = 600
"""Characters of a call that a question shows."""
SHOWN_LINES = 16
"""Of code, before it is run."""
_ACTS = {
    "read_file": "read",
    "search_documents": "search your documents for",
    "web_search": "search the web for",
    "fetch_url": "fetch",
}


def shown_call(call: ToolCall) -> str:
    """A call in one line, as it is asked for and shown: `read_file: notes.txt`."""
    return one_line(f"{call.name}: {_given(call)}", 400)


def _given(call: ToolCall) -> str:
    """The arguments of a call: the first as it is, further ones with their names."""
    given = call.given()
    if given is None:
        return call.arguments
    return ", ".join(str(value) if at == 0 else f"{name} {value}" for at, (name, value) in enumerate(given.items()))


def decided(line: str) -> Decision:
    """What a line of the user's answers."""
    return LETTERS.get(line.strip().lower(), Decision.NO)


def letters(choices: Collection[Decision]) -> str:
    """What can be answered: `y this once, n no`."""
    return ", ".join(f"{letter} {DECISIONS[one]}" for letter, one in LETTERS.items() if one in choices) + ", n no"


STARTS = "Start this program?"


def program_lines(name: str, shown: str) -> list[str]:
    """What is shown before the program of an MCP server is started for the first time."""
    return [
        shown,
        f"It is the MCP server {name}. It runs as you do, with your files and your network, until kvchat ends. You are "
        "asked again if its command line changes.",
    ]


ASKS = "Asking {names} for tools …"
FORGOTTEN = "What you had allowed for always, and in conversations, is asked for again."


WAITS = "“{title}” waits for your word on a call."


def tools_sentence(names: Collection[str]) -> str:
    """Which tools a conversation has."""
    if not names:
        return "The model has no tools in this conversation."
    return f"The model may call {', '.join(names)} in this conversation; each call is asked for first."


def answer_words(decision: Decision, question: ToolQuestion) -> str:
    """An answer to the question before a call."""
    scope = question.permission.scope
    match decision:
        case Decision.ONCE:
            return "This once"
        case Decision.CONVERSATION:
            return "Whenever it asks for this in this conversation"
        case Decision.ALWAYS:
            return (
                f"Always, {'from' if question.permission.tool == 'fetch_url' else 'in'} {scope}" if scope else "Always"
            )
    return "No, and go on without it"


def code_lines(question: ToolQuestion) -> list[str]:
    """The lines that a call runs, as they are shown before the question; none for other calls."""
    code = (question.call.given() or {}).get("code") if question.call.name == "run_python" else None
    lines = str(code or "").strip("\n").splitlines()
    return [*lines[:SHOWN_LINES], *([f"… {len(lines) - SHOWN_LINES:,} more lines"] if len(lines) > SHOWN_LINES else [])]


def ask_words(question: ToolQuestion) -> str:
    """What is asked before a call."""
    act = _ACTS.get(question.call.name, f"call {question.call.name} with")
    if question.call.name == "run_python":
        return "Let the model run this Python? It reaches no file and no network."
    goes_to = f" This goes to {question.permission.goes_to}." if question.permission.goes_to else ""
    return f"Let the model {act} {one_line(_given(question.call), 2 * SHOWN)}?{goes_to}"
