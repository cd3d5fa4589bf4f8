"""Read text with headings: reStructuredText, AsciiDoc, Org, LaTeX, manual pages and underlined plain text; and which
reader a text gets, by its file's name, and where that says nothing by how it begins.

Indented lines and lines in a block of code are no headings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from kvchat.documents.reading import code
from kvchat.documents.reading.content import Content, Mark, Outline, Unit, as_title, lines_of, sections
from kvchat.documents.reading.markdown import read_markdown

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1++\s*")
_DIRECTIVE = re.compile(
    r"(?P<indent> {0,40})\.\. (?:(?:py|c|cpp|js|rst|std):)?(?:function|class|method|classmethod|staticmethod|attribute|"
    r"data|exception|decorator|decoratormethod|property|coroutinefunction|coroutinemethod|awaitablefunction|module|"
    r"macro|type|struct|member|option|cmdoption|envvar|opcode|pdbcommand|autoclass|autofunction|automodule)::[ \t]+"
    r"(?P<name>[^\n]+)"
)
_LABEL = re.compile(r"\.\. (?:_[^:]|index::|_`)")
_ARGUMENTS = re.compile(r"\s*[(\[{].*|\s*->.*|;$")
_ROLE = re.compile(r":[\w:+.-]{1,40}:`|`{1,2}(?:__?(?!\w))?|\*\*")
_BLOCK = 1000
"""The level below all headings of the entries that directives make."""


def read_rst(text: str) -> Content:
    """The sections of a reStructuredText: headings, and what is described below a directive such as `function`."""
    lines = lines_of(text)
    outline, levels = Outline(), dict[tuple[str, bool], int]()
    headings = {first: (title, style, at) for first, title, style, at in _underlined(lines, strict=False)}
    marks, top, behind = list[Mark](), "", 0
    label: int | None = None  # where the labels right in front begin
    for at, line in enumerate(lines):
        bare = line.strip()
        if at < behind or not bare:
            continue
        if at in headings:
            title, style, behind = headings[at]
            level = levels.setdefault(style, len(levels) + 1)
            marks.append(Mark(at if label is None else label, outline.open(level, _undressed(title))))
            top, label = top or outline.titles[-1], None
            continue
        indent = len(line) - len(line.lstrip())
        ended = outline.close(_BLOCK + indent)
        if found := _DIRECTIVE.match(line):
            titles = outline.open(_BLOCK + indent, _signature(found["name"]))
            marks.append(Mark(at if label is None else label, titles))
            label = None
            continue
        if ended:
            marks.append(Mark(at, outline.titles))
        label = (at if label is None else label) if _LABEL.match(line) else None
    return Content(top, Unit.LINE, sections(lines, marks))


def read_underlined(text: str) -> Content:
    """The sections of a plain text whose headings, if it has any, are clearly underlined."""
    lines = lines_of(text)
    outline, levels = Outline(), dict[tuple[str, bool], int]()
    marks = [
        Mark(first, outline.open(levels.setdefault(style, len(levels) + 1), title))
        for first, title, style, _ in _underlined(lines, strict=True)
    ]
    return Content(marks[0].titles[-1] if marks else "", Unit.LINE, sections(lines, marks))


def _underlined(lines: Sequence[str], *, strict: bool) -> Iterator[tuple[int, str, tuple[str, bool], int]]:
    """The headings that are underlined: first line, title, style, and the line after."""
    behind = 0
    for at, line in enumerate(lines):
        if at < behind + 1 or line[0].isspace() or line[0].isalnum() or not (found := _ADORNMENT.fullmatch(line)):
            continue
        title = lines[at - 1].rstrip()
        over = lines[at - 2].rstrip() if at >= behind + 2 else ""
        overlined = over == line.rstrip() and bool(title.strip())
        first = at - 2 if overlined else at - 1
        if not overlined and title[:1].isspace():
            continue
        if _is_title(title.strip(), len(line.rstrip()), strict) and _is_isolated(lines, first, behind, strict):
            behind = at + 1
            yield first, title.strip(), (found[1], overlined), behind


def _is_title(title: str, width: int, strict: bool) -> bool:
    if not any(char.isalnum() for char in title[:200]) or len(title) > 200 or title.startswith(".. "):
        return False
    if strict:
        return width >= 3 and abs(width - len(title)) <= 2
    return width >= min(len(title), 4)


def _is_isolated(lines: Sequence[str], first: int, behind: int, strict: bool) -> bool:
    """Whether a paragraph can begin at that line."""
    if first <= behind:
        return True
    before = lines[first - 1]
    return not before.strip() or (not strict and before.startswith(".."))


def _signature(text: str) -> str:
    """The name in the signature of a directive: `JSONEncoder.default` of `JSONEncoder.default(o)`."""
    return _ARGUMENTS.sub("", text.strip()[:200]) or text


def _undressed(title: str) -> str:
    return as_title(_ROLE.sub("", title[:1000])) or title


# Markup with headings of one line each

_ASCIIDOC = re.compile(r"(={1,6}|#{1,6})[ \t]+(\S.*)")
_ORG = re.compile(r"(\*{1,20})[ \t]+(\S.*)")
_TEX = re.compile(
    r"\s{0,8}\\(part|chapter|section|subsection|subsubsection|paragraph)\*?(?:\[[^\]\n]{0,200}\])?"
    r"\{([^\n]{1,200})\}"
)
_ROFF = re.compile(r"[.'][ \t]*(SH|SS|Sh|Ss)[ \t]+(\S.*)")
_ROFF_NAME = re.compile(r"\.(?:TH|Dt)[ \t]+\"?([\w.:+-]+)")
_KEYWORD = re.compile(r"(?:TODO|DONE) (?=\S)")
_TEX_LEVELS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph")


def _by_lines(text: str, heading: Callable[[str], tuple[int, str] | None], block: re.Pattern[str] | None) -> Content:
    """The sections of a text whose headings are lines that `heading` gives level and title of; none is between two
    lines that `block` matches equally."""
    lines, outline = lines_of(text), Outline()
    marks, top, inside = list[Mark](), "", ""
    for at, line in enumerate(lines):
        if block and (edge := block.match(line)):
            inside = "" if edge[0] == inside else inside or edge[0]
        elif not inside and (found := heading(line)):
            marks.append(Mark(at, outline.open(*found)))
            top = top or outline.titles[-1]
    return Content(top, Unit.LINE, sections(lines, marks))


def read_asciidoc(text: str) -> Content:
    """The sections of an AsciiDoc text."""

    def heading(line: str) -> tuple[int, str] | None:
        found = _ASCIIDOC.match(line) if line[0] in "=#" else None
        return (len(found[1]), found[2].rstrip("=# \t")) if found else None

    content = _by_lines(text, heading, re.compile(r"(?:-{4,}|\.{4,}|={4,}|/{4,}|```)(?=\s*$)"))
    return content if content.title else read_underlined(text)


def read_org(text: str) -> Content:
    """The sections of an Org text."""

    def heading(line: str) -> tuple[int, str] | None:
        found = _ORG.match(line) if line[0] == "*" else None
        return (len(found[1]), _KEYWORD.sub("", found[2], count=1)) if found else None

    return _by_lines(text, heading, None)


def read_tex(text: str) -> Content:
    """The sections of a LaTeX text."""

    def heading(line: str) -> tuple[int, str] | None:
        found = _TEX.match(line) if "\\" in line[:9] else None
        return (_TEX_LEVELS.index(found[1]), found[2].split("}")[0]) if found else None

    return _by_lines(text, heading, None)


def read_roff(text: str) -> Content:
    """The sections of a manual page."""

    def heading(line: str) -> tuple[int, str] | None:
        found = _ROFF.match(line) if line[0] in ".'" else None
        return (2 if found[1].lower() == "ss" else 1, found[2].strip().strip('"')) if found else None

    content = _by_lines(text, heading, None)
    named = re.search(_ROFF_NAME.pattern, text[:20_000])
    return Content(named[1] if named else "", content.unit, content.sections)


Reader = Callable[[str], Content]

_MARKUP: dict[str, Reader] = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdwn", ".mdx", ".qmd", ".rmd"), read_markdown),
    **dict.fromkeys((".rst", ".rest"), read_rst),
    **dict.fromkeys((".adoc", ".asciidoc", ".asc"), read_asciidoc),
    ".org": read_org,
    **dict.fromkeys((".tex", ".sty", ".cls", ".ltx"), read_tex),
    **dict.fromkeys((".man", ".mdoc", ".roff", ".troff"), read_roff),
    **dict.fromkeys((".txt", ".text", ".log"), read_underlined),
}
_ROFF_BEGINS = re.compile(r"(?:[.']\\\"[^\n]*+\n|\s*+\n)*+\.(?:TH|Dd|SH)\b")


def text_reader(name: str) -> Reader:
    """What makes the sections of a text out of it: its line ends are newline characters (see `decoded`)."""
    path = PurePosixPath(name.replace("\\", "/").lower())
    suffixes = path.suffixes
    if suffixes[-2:] == [".rst", ".txt"]:  # as Sphinx publishes its sources
        return read_rst
    return code.reader_of(path.name) or _MARKUP.get(path.suffix) or _by_content


def _by_content(text: str) -> Content:
    """The sections of a text whose name says nothing."""
    if text.startswith("#!"):
        return code.read_code(text)
    if _ROFF_BEGINS.match(text[:4000]):
        return read_roff(text)
    return read_underlined(text)
