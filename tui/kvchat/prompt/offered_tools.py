"""What can be offered to a model, and what a conversation begins with.

Few, flat tools: small models fail on more (TOOLS 4.7). A group is a name for several.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvchat.prompt.tools import ToolDefinition, frozen_tools

READ_FILE = ToolDefinition(
    "read_file",
    "Read a text file of the user's working folder, or list a folder in it.",
    {
        "path": {"type": "string", "description": "Relative to the working folder; . is the folder itself."},
        "first_line": {"type": "integer", "description": "Begin at this line, from 1."},
    },
    ("path",),
)
SEARCH_DOCUMENTS = ToolDefinition(
    "search_documents",
    "Search the user's own documents. Gives numbered passages; cite them as [1].",
    {"query": {"type": "string", "description": "A few words to look for."}},
    ("query",),
)
WEB_SEARCH = ToolDefinition(
    "web_search",
    "Search the web. Gives numbered results with addresses; fetch_url reads one.",
    {"query": {"type": "string", "description": "A few words to look for."}},
    ("query",),
)
FETCH_URL = ToolDefinition(
    "fetch_url",
    "Read a page of the web, or a PDF, as text.",
    {"url": {"type": "string", "description": "Its address, with https://"}},
    ("url",),
)
RUN_PYTHON = ToolDefinition(
    "run_python",
    "Run Python to compute something. Gives what it prints and the value of its last line. No files, no network, and "
    "of the standard library little more than math, re, json and datetime.",
    {"code": {"type": "string", "description": "The lines to run."}},
    ("code",),
)
DEFINITIONS = {one.name: one for one in (READ_FILE, SEARCH_DOCUMENTS, WEB_SEARCH, FETCH_URL, RUN_PYTHON)}
GROUPS = {
    "files": (READ_FILE,),
    "documents": (SEARCH_DOCUMENTS,),
    "web": (WEB_SEARCH, FETCH_URL),
    "python": (RUN_PYTHON,),
}


def tools_named(names: Iterable[str]) -> bytes:
    """The tools of these names and groups, as a conversation has them. Raises KeyError with a name that is unknown."""
    found: dict[str, ToolDefinition] = {}
    for name in names:
        given = name.strip().lower()
        chosen = GROUPS[given] if given in GROUPS else (DEFINITIONS[given],)
        found |= {one.name: one for one in chosen}
    return frozen_tools(found.values())


def unknown_tool(name: str) -> str | None:
    """The check of a name in the settings: what is wrong with it."""
    known = [*GROUPS, *DEFINITIONS]
    return None if name.strip().lower() in known else f"must be of {', '.join(known)}"
