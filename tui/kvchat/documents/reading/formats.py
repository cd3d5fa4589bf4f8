"""Formats: choose the reader of a file, by what it is and then by its name.

`read` gives the content of a file or says in one reason why there is none. It never runs, follows or fetches anything
that a file names. What the user does not see in a file (white, deleted or hidden text) is no text of it. The library
that reads most formats, kreuzberg 4.10.4, was measured for this: of 47 such texts in HTML, PDF, .docx and .odt it gives
18, these readers none.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading import magic_bytes
from kvchat.documents.reading.content import Content

_HTML_NAMES = frozenset((".html", ".htm", ".xhtml", ".xht", ".shtml"))
_MARKUP_NAMES = frozenset(
    (
        ".md",
        ".markdown",
        ".mdx",
        ".rst",
        ".org",
        ".adoc",
        ".tex",
        ".php",
        ".phtml",
        ".jsp",
        ".erb",
        ".ejs",
        ".vue",
        ".svelte",
        ".astro",
        ".j2",
        ".jinja",
        ".jinja2",
        ".tmpl",
        ".tpl",
        ".mustache",
        ".hbs",
        ".py",
        ".js",
        ".ts",
        ".tsx",
        ".jsx",
        ".go",
        ".rs",
        ".c",
        ".h",
        ".java",
        ".rb",
        ".pl",
        ".sh",
        ".diff",
        ".patch",
        ".json",
        ".ipynb",
        ".xml",
    )
)
"""Names that say better what a file is than its first tag does."""
_PROLOGUE = rb"\s*+(?:<\?xml[^>]{0,200}>\s*+)?(?:<!--(?:(?!-->)[\s\S]){0,2000}-->\s*+)*+"
_HTML = re.compile(_PROLOGUE + rb"<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)
_SVG = re.compile(_PROLOGUE + rb"(?:<!doctype\s+svg[^>]{0,500}>\s*+)?<svg[\s>]", re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_HEAD = 4096
SMALL = 64 * 1024
"""Bytes of text or HTML that are read in any process. Measured on one core: the worst HTML (blocks in 64 open elements)
takes 7.5 us a byte, half a second for this many; the worst code 4 us; the worst Markdown, YAML or Org 1.8 us; a usual
page 0.5 us. A process of its own costs 0.1 s."""
_PDF_WITHIN = 1024
"""Bytes of anything else that readers allow before a PDF begins."""

_BROKEN = {".docx": "is a broken Word document", ".epub": "is a broken e-book"}
"""What an archive is that is none of these by what is in it."""

_LOCKS = frozenset(
    (
        "package-lock.json",
        "npm-shrinkwrap.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "bun.lock",
        "poetry.lock",
        "uv.lock",
        "pdm.lock",
        "pipfile.lock",
        "cargo.lock",
        "gemfile.lock",
        "composer.lock",
        "go.sum",
        "flake.lock",
        "mix.lock",
        "pubspec.lock",
        "podfile.lock",
        "packages.lock.json",
        "gradle.lockfile",
        "conda-lock.yml",
        "deno.lock",
    )
)
_MINIFIABLE = frozenset((".js", ".mjs", ".cjs", ".css"))
_MINIFIED_FROM = 5_000
_MINIFIED_LINE = 500
"""From this many bytes per line on average, a script is minified."""


def read(name: str, data: bytes) -> Content:
    """What a file says. Raises UnreadableError; MemoryError where there is too little memory for it."""
    match kind(name, data):
        case "pdf":
            from kvchat.documents.reading.pdf import read_pdf

            return read_pdf(data)
        case "docx":
            from kvchat.documents.reading.office_text import read_docx

            return _some(read_docx(data))
        case "odt":
            from kvchat.documents.reading.office_text import read_odt

            return _some(read_odt(data))
        case "epub":
            from kvchat.documents.reading.ebook import read_epub

            return _some(read_epub(data))
        case "html":
            from kvchat.documents.reading.html import read_html

            return _some(read_html(data))
        case _:
            return _read_text(name, data)


def kind(name: str, data: bytes) -> str:
    """`pdf`, `docx`, `odt`, `epub`, `html` or `text`. Raises UnreadableError for what is none of these."""
    suffix = _suffix(name)
    if data.startswith(b"%PDF-") or (suffix == ".pdf" and b"%PDF-" in data[:_PDF_WITHIN]):
        return "pdf"
    if suffix == ".pdf":
        raise FileUnreadableError("is a broken PDF")
    if magic_bytes.is_zip(data):
        found = magic_bytes.zip_kind(data)
        if found not in ("docx", "odt", "epub"):
            raise FileUnreadableError(_BROKEN.get(suffix, found))
        return found
    if magic_bytes.is_ole(data):
        raise FileUnreadableError(magic_bytes.ole_reason(data))
    if reason := magic_bytes.reason(data):
        raise FileUnreadableError(reason)
    return _text_kind(suffix, data[:_HEAD].removeprefix(_BOM))


def is_hostile(data: bytes) -> bool:
    """Whether only a process of its own should read a file: it may be of a format that can take any time and memory,
    or is too large to be read at once whatever is in it."""
    return len(data) > SMALL or magic_bytes.is_zip(data) or b"%PDF-" in data[:_PDF_WITHIN]


def generated(name: str, data: bytes) -> str:
    """Why a file counts as written by a program for programs, in words that follow its name; empty: it does not. `name`
    may be a path, `data` is the whole file. What is left out of a collection by this can still be read by
    `text_reader`."""
    low = PurePosixPath(name.replace("\\", "/").lower())
    if low.name in _LOCKS:
        return "is a generated lock file"
    if low.suffix == ".map" and data.lstrip()[:1] == b"{" and b'"mappings"' in data:
        return "is a source map"
    if low.suffix in _MINIFIABLE:
        lines = data.count(b"\n") + 1
        if low.stem.endswith((".min", "-min")) or (len(data) > _MINIFIED_FROM and len(data) / lines > _MINIFIED_LINE):
            return "is minified code"
    return ""


def _suffix(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/").lower()).suffix


def _text_kind(suffix: str, head: bytes) -> str:
    if suffix == ".svg" or (suffix in ("", ".xml") and _SVG.match(head)):
        raise FileUnreadableError("is an image")
    if suffix in _HTML_NAMES or (suffix not in _MARKUP_NAMES and _HTML.match(head)):
        return "html"
    return "text"


def _read_text(name: str, data: bytes) -> Content:
    from kvchat.documents.reading.decoding import decoded
    from kvchat.documents.reading.texts import text_reader

    if reason := generated(name, data):
        raise FileUnreadableError(reason)
    text = decoded(data)
    if _suffix(name) == ".ipynb":
        from kvchat.documents.reading.notebook import read_notebook

        return _some(read_notebook(text))
    return text_reader(name)(text)


def _some(content: Content) -> Content:
    """The content, where there is any. (An empty text file is one without sections: nothing is wrong with it.)"""
    if not content.sections:
        raise FileUnreadableError("has no text")
    return content
