"""What can be offered to a model, and what a conversation begins with.

Few, flat tools: small models fail on more (TOOLS 4.7). A group is a name for several.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.prompt.tools import ToolDefinition


def _object(properties: dict[str, object], *required: str) -> dict[str, object]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required)}


READ_FILE = ToolDefinition(
    "read_file",
    "Read a text file of the user's working folder, or list a folder in it.",
    _object(
        {
            "path": {"type": "string", "description": "Relative to the working folder; . is the folder itself."},
            "first_line": {"type": "integer", "description": "Begin at this line, from 1."},
        },
        "path",
    ),
)
SEARCH_DOCUMENTS = ToolDefinition(
    "search_documents",
    "Search the user's own documents. Gives numbered passages; cite them as [1].",
    _object({"query": {"type": "string", "description": "A few words to look for."}}, "query"),
)
WEB_SEARCH = ToolDefinition(
    "web_search",
    "Search the web. Gives numbered results with addresses; fetch_url reads one.",
    _object({"query": {"type": "string", "description": "A few words to look for."}}, "query"),
)
FETCH_URL = ToolDefinition(
    "fetch_url",
    "Read a page of the web, or a PDF, as text.",
    _object({"url": {"type": "string", "description": "Its address, with https://"}}, "url"),
)
RUN_PYTHON = ToolDefinition(
    "run_python",
    "Run Python to compute something. Gives what it prints and the value of its last line. No files, no network, and "
    "of the standard library little more than math, re, json and datetime.",
    _object({"code": {"type": "string", "description": "The lines to run."}}, "code"),
)
DEFINITIONS = {one.name: one for one in (READ_FILE, SEARCH_DOCUMENTS, WEB_SEARCH, FETCH_URL, RUN_PYTHON)}
GROUPS = {
    "files": (READ_FILE,),
    "documents": (SEARCH_DOCUMENTS,),
    "web": (WEB_SEARCH, FETCH_URL),
    "python": (RUN_PYTHON,),
}


def own_tools(name: str) -> Sequence[ToolDefinition]:
    """Kvchat's own of this name or group; none: it is no name of one."""
    given = name.strip().lower()
    return (DEFINITIONS[given],) if given in DEFINITIONS else GROUPS.get(given, ())
