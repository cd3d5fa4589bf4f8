"""Which reader a text gets, by its file's name, and where that says nothing by how it begins."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from kvchat.documents.reading import code, structured
from kvchat.documents.reading.content import Content
from kvchat.documents.reading.markdown import read_markdown

Reader = Callable[[str], Content]

_MARKUP: dict[str, Reader] = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdwn", ".mdx", ".qmd", ".rmd"), read_markdown),
    **dict.fromkeys((".rst", ".rest"), structured.read_rst),
    **dict.fromkeys((".adoc", ".asciidoc", ".asc"), structured.read_asciidoc),
    ".org": structured.read_org,
    **dict.fromkeys((".tex", ".sty", ".cls", ".ltx"), structured.read_tex),
    **dict.fromkeys((".man", ".mdoc", ".roff", ".troff"), structured.read_roff),
    **dict.fromkeys((".txt", ".text", ".log"), structured.read_underlined),
}
_ROFF = re.compile(r"(?:[.']\\\"[^\n]*+\n|\s*+\n)*+\.(?:TH|Dd|SH)\b")


def text_reader(name: str) -> Reader:
    """What makes the sections of a text out of it: its line ends are newline characters (see `decoded`)."""
    path = PurePosixPath(name.replace("\\", "/").lower())
    suffixes = path.suffixes
    if suffixes[-2:] == [".rst", ".txt"]:  # as Sphinx publishes its sources
        return structured.read_rst
    if found := _MARKUP.get(path.suffix) or code.reader_of(path.name):
        return found
    return _by_content


def _by_content(text: str) -> Content:
    """The sections of a text whose name says nothing."""
    beginning = text[:4000]
    if beginning.startswith("#!") and (reader := code.reader_of_program(_program(beginning))):
        return reader(text)
    if _ROFF.match(beginning):
        return structured.read_roff(text)
    return structured.read_underlined(text)


def _program(beginning: str) -> str:
    """What the first line says that the script is run by: `python3` of `#!/usr/bin/env -S python3 -u`."""
    words = [word.rpartition("/")[2] for word in beginning[2:].partition("\n")[0].split()]
    words = [word for word in words if not word.startswith("-") and "=" not in word]
    return next(iter(words[1:] if words[:1] == ["env"] else words), "").lower()
