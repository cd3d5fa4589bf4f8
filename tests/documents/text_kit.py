"""Texts for the readers: lines that mean something in one format or another, and what they give."""

from __future__ import annotations

from hypothesis import strategies as st

from kvchat.documents.reading.content import Content
from kvchat.documents.reading.texts import text_reader

NAMES = (
    "a.md",
    "a.rst",
    "a.txt",
    "a.adoc",
    "a.org",
    "a.tex",
    "a.1",
    "a.py",
    "a.c",
    "a.cpp",
    "a.java",
    "a.ts",
    "a.go",
    "a.rs",
    "a.rb",
    "a.sh",
    "a.sql",
    "a.lua",
    "a.hs",
    "a.toml",
    "a.yaml",
    "a.json",
    "a.css",
    "Makefile",
    "noname",
)
_PIECES = (
    "",
    " ",
    "\t",
    "# One",
    "## Two *words*",
    "### Three",
    "####### no",
    "#tag",
    "Setext",
    "=====",
    "-----",
    "---",
    "+++",
    "title: A title",
    "```",
    "```python",
    "~~~~",
    "   ```",
    "    ```",
    "- ```sh",
    "<!--",
    "-->",
    "<pre>",
    "</pre>",
    "- an item",
    "  more of it",
    "1. first",
    "> quoted",
    "| a | b |",
    "a word",
    "Words, and a few more of them.",
    "Title",
    "*****",
    ".. _label:",
    ".. function:: f(x)",
    "   indented",
    ".. code::",
    "::",
    "= Title",
    "== Part",
    "----",
    "* Head",
    "** Sub",
    "\\section{Part}",
    ".SH NAME",
    ".TH X 1",
    "import this",
    "def f(x):",
    "    return x",
    "class A:",
    "    def m(self):",
    "        pass",
    "@decorator",
    "    @property",
    '    """Says."""',
    '"""',
    "'''",
    "x = '\"'",
    "# says",
    "// says",
    "/*",
    " */",
    "int main(void) {",
    "}",
    "  public void run() {",
    "export const f = (a) => {",
    "func f() {",
    "fn f() {",
    "impl A {",
    "module A",
    "end",
    "f() {",
    "CREATE TABLE t (",
    ");",
    "-- says",
    "function f()",
    "f :: Int",
    "[table]",
    "key: value",
    '  "key": 1,',
    "all: a b",
    "\u2028",
    "x\x0by",
    "\xa0",
    "é\u0301",
    "👩\u200d👧",
    "x" * 700,
    "word " * 150,
    "A sentence. " * 60,
    "y" * 2500,
    " " * 2500,
    "wort, " * 900,
    "字" * 1500,
    "e\u0301" * 900,
)
LINES = st.sampled_from(_PIECES)
TEXTS = st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(LINES, max_size=60), st.sampled_from(["", "\n", "\n\n"])
)


def read(name: str, text: str) -> Content:
    return text_reader(name)(text)


def outline(content: Content) -> list[tuple[str, int, int]]:
    """The sections: their titles, first and last line."""
    return [(" > ".join(section.titles), section.first, section.last) for section in content.sections]


def titles(name: str, text: str) -> list[str]:
    return [" > ".join(section.titles) for section in read(name, text).sections]
