"""Words for tools: what is asked before a call, and a call in one line."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from kvchat.cache import Price
from kvchat.prompt.offered_tools import GROUPS
from kvchat.prompt.tools import Decision, ToolCall, ToolQuestion
from kvchat.sanitize import exact, exact_lines, one_line
from kvchat.text.format import about, short_count

DECISIONS = {
    Decision.ONCE: "this once",
    Decision.CONVERSATION: "in this conversation",
    Decision.ALWAYS: "always",
    Decision.NO: "no",
}
LETTERS = {"y": Decision.ONCE, "c": Decision.CONVERSATION, "a": Decision.ALWAYS}
"""The letters that answer the question in a line, in addition to `n`."""
TOOL_GROUPS = {
    "files": "read files of the folder kvchat runs in",
    "documents": "search your collections",
    "web": "search the web, and read pages of it",
    "python": "run Python, without files or a network",
}
"""What the groups do."""
_GROUP_OF = {tool.name: group for group, tools in GROUPS.items() for tool in tools}
SHOWN = 600
"""Characters that a question can hold in a line, and of what goes out in an address."""
ABOUT = 200
"""Characters that are shown of what a tool says it does."""
_ACTS = {
    "read_file": "read",
    "search_documents": "search your documents for",
    "web_search": "search the web for",
    "fetch_url": "fetch",
}


def shown_call(call: ToolCall) -> str:
    """A call in one line, as the transcript shows it: `read_file: notes.txt`."""
    given = _given(call)
    line = exact(f"{call.name}: {given}"[:800] if given else call.name)
    return line if len(line) <= 400 else f"{line[:399]}…"


def _given(call: ToolCall) -> str:
    """The arguments of a call: the first as it is, further ones with their names."""
    given = call.given()
    if given is None:
        return call.arguments
    return ", ".join(
        _text(value) if at == 0 else f"{name} {_text(value)}" for at, (name, value) in enumerate(given.items())
    )


def yes_or_no(line: str) -> bool | None:
    """What a line of the user's answers where only yes and no are offered; Enter alone is a no. None: no answer."""
    return {"y": True, "yes": True, "n": False, "no": False, "": False}.get(line.strip().lower())


def decided(line: str, choices: Collection[Decision]) -> Decision | None:
    """What a line of the user's answers, as `yes_or_no`. None: it is none of the `choices`."""
    decision = LETTERS.get(line.strip().lower())
    if decision is None and (says_yes := yes_or_no(line)) is not None:
        decision = Decision.ONCE if says_yes else Decision.NO
    return decision if decision in choices else None


def letters(choices: Collection[Decision]) -> str:
    """What can be answered: `y this once, n no`."""
    return ", ".join(f"{letter} {DECISIONS[one]}" for letter, one in LETTERS.items() if one in choices) + ", n no"


STARTS = "Start this program?"


def program_lines(name: str, shown: str) -> list[str]:
    """What is shown before the program of an MCP server is started for the first time."""
    return [
        exact(shown),
        f"It is the MCP server {name}. It runs as you do, with your files and your network, until kvchat ends. You are "
        "asked again if its command line changes.",
    ]


def unusable_words(tools: Sequence[tuple[str, str]]) -> str:
    """That tools of a server cannot be offered, by name and why."""
    first = "; ".join(f"{name or 'a tool'}: {why}" for name, why in tools[:NAMED])
    more = "; …" if len(tools) > NAMED else ""
    return f"{len(tools)} {'tool' if len(tools) == 1 else 'tools'} cannot be offered ({first}{more})."


def too_many_words(server: str, left_out: Sequence[str], most: int) -> str:
    """That a server lists more tools than are taken."""
    names = one_line(", ".join(left_out[:NAMED]), 200) + (", …" if len(left_out) > NAMED else "")
    return (
        f"{server} lists {most + len(left_out):,} tools, and kvchat takes {most}, by name. {len(left_out):,} left out: "
        f"{names}."
    )


NAMED = 5
"""Tools that are named of those that are left out."""
ASKS = "Asking {names} for tools …"
FORGOTTEN = "What you had allowed for always, and in conversations, is asked for again."


WAITS = "“{title}” waits for your word on a call."


def tokens_about(price: Price) -> str:
    """`~560 tokens`; empty: not known, or none."""
    return f"~{short_count(price.tokens)} tokens" if price.tokens else ""


def tools_in_brief(names: Collection[str], price: Price) -> str:
    """Tools of a conversation, by groups and servers, and their cost: `Tools: files, web · ~560 tokens, ~2 s`."""
    groups = {name.partition("__")[0] if "__" in name else _GROUP_OF.get(name, name): None for name in names}
    named = one_line(", ".join(groups), 60) if len(groups) <= NAMED else f"{len(groups)} groups"
    cost = ", ".join(filter(None, (tokens_about(price), about(price.seconds))))
    return f"Tools: {' · '.join(filter(None, (named, cost)))}"


def tools_sentence(names: Collection[str], price: Price) -> str:
    """The same, in a sentence."""
    if not names:
        return "The model has no tools in this conversation."
    return f"{tools_in_brief(names, price)}. Each call is asked for first."


def answer_words(decision: Decision, question: ToolQuestion) -> str:
    """An answer to the question before a call."""
    scope = exact(question.permission.scope)
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
    """All that goes out with a call, a line each, as it is shown before the question; none where one line of it can say
    that."""
    given = question.given
    if question.call.name == "run_python":
        return exact_lines(str(given.get("code", "")).strip("\n"))
    if _in_a_line(question) is not None:
        return []
    lines = []
    for name, value in given.items():
        first, *rest = exact_lines(_text(value))
        lines += [f"{exact(name)}:", *(f"  {line}" for line in (first, *rest))] if rest else [f"{exact(name)}: {first}"]
    return lines


def question_lines(question: ToolQuestion, choices: Collection[Decision]) -> list[str]:
    """The lines before the question about a call: what the tool says of itself, where a yes can last, and all that
    goes out."""
    return [*(about_lines(question) if Decision.ALWAYS in choices else ()), *code_lines(question)]


def about_lines(question: ToolQuestion) -> list[str]:
    """What the tool of a server says it does, in a line, for a yes that is to last; none: it says nothing."""
    about = one_line(exact(" ".join(question.permission.about.split())), ABOUT)
    return [f"It says of itself: {about}"] if about else []


def ask_words(question: ToolQuestion) -> str:
    """What is asked before a call, behind `code_lines`."""
    name = question.call.name
    if name == "run_python":
        return "Let the model run this Python? It reaches no file and no network."
    what = _in_a_line(question)
    goes_to = f" This goes to {exact(question.permission.goes_to)}." if question.permission.goes_to else ""
    if what == "":
        return f"Let the model call {name}?{goes_to}"
    return f"Let the model {_ACTS.get(name, f'call {name} with')} {'this' if what is None else what}?{goes_to}"


def _in_a_line(question: ToolQuestion) -> str | None:
    """What goes out with a call, where a short line can say it; None: it cannot."""
    if shown := question.permission.shown:
        return exact(shown)
    if not question.given:
        return ""
    text = _text(*question.given.values()) if len(question.given) == 1 else "\n"
    return exact(text) if text.strip() and "\n" not in text and len(text) <= SHOWN else None


def _text(value: object) -> str:
    """An argument as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
