"""Read Jupyter notebooks: the text and the code of their cells, without the code's output.

A position is a cell's number, from 1, as counted on the screen.
"""

from __future__ import annotations

import json
import re

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Content, Outline, Section, Unit
from kvchat.documents.reading.markdown import read_markdown

_HEADING = re.compile(r"\s*?(#{1,6})\s")


def read_notebook(text: str) -> Content:
    """The cells of a notebook. Raises UnreadableError."""
    try:
        cells = _cells(json.loads(text))
    except (ValueError, RecursionError):
        raise FileUnreadableError("is a broken notebook") from None
    outline = Outline()
    title = ""
    found: list[Section] = []
    for number, (kind, source) in enumerate(cells, 1):
        if not source.strip():
            continue
        if kind != "markdown":
            found.append(Section(outline.titles, source, number, number, code=kind == "code"))
            continue
        content = read_markdown(source)
        title = title or content.title
        for section in content.sections:
            if section.titles:
                heading = _HEADING.match(section.text)
                outline.open(len(heading[1]) if heading else len(section.titles), section.titles[-1])
            found.append(Section(outline.titles, section.text, number, number))
    return Content(title, Unit.PARAGRAPH, tuple(found), exact=False)


def _cells(notebook: object) -> list[tuple[str, str]]:
    """The kind and the source of each cell. Raises ValueError."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if cells is None and isinstance(notebook, dict) and isinstance(notebook.get("worksheets"), list):
        sheets = [sheet for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    if not isinstance(cells, list):
        raise ValueError("no cells")
    found = []
    for cell in cells:
        if not isinstance(cell, dict):
            raise ValueError("a cell is no object")
        source = cell.get("source", cell.get("input", ""))
        lines = source if isinstance(source, list) else [source]
        text = "".join(line for line in lines if isinstance(line, str))
        found.append((str(cell.get("cell_type", "")), text.encode(errors="replace").decode()))
    return found
