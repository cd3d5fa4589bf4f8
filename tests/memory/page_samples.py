"""Pages and entries as they come about: written by kvchat, typed by people, changed by editors."""

from __future__ import annotations

from hypothesis import strategies as st

from kvchat.memory.entry import BY_HAND, Entry, Kind
from kvchat.memory.pages.comment import rendered
from kvchat.memory.pages.page import MemoryPage

PAGE = "topics/home-lab.md"
METRIC = Entry(
    "m1a2b3c4d",
    Kind.PREFERENCE,
    "Prefers metric units.",
    PAGE,
    1_795_270_982.0,
    confidence=0.9,
    conversation="7f3a91",
    nodes=("1c", "1d"),
    by="qwen3-8b",
)
IDS = [f"m{letter * 7}{digit}" for letter in "abc" for digit in "12"]
NASTY = (
    "-->",
    "<!--",
    "<!-- m1a2b3c4d -->",
    "\n",
    "\n\n",
    "- ",
    "* ",
    "1. ",
    "# ",
    "> ",
    "```",
    "~~~",
    "---",
    "===",
    "[ ] ",
    "[x](http://example.org)",
    "![i](http://example.org/i.png)",
    "[[note]]",
    "<b>",
    "</ul>",
    "<script>",
    "%%",
    "$$",
    "|",
    "\\",
    "\\\\",
    "`",
    "&#x1B;",
    "&lt;",
    "\x1b[31m",
    "\u202e",
    "\u2066",
    "\u200b",
    "\ud800",
    "\r",
    "\r\n",
    "\x00",
    "\x85",
    "\u2028",
    "\x0b",
    "\t",
    " ",
    "\u00a0",
    "\ufeff",
    ".",
    ")",
    "12",
    "tea",
    "備份",
)


texts = st.one_of(
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=6).map("".join),
    st.text(min_size=1, max_size=30),
    st.sampled_from(["tea", "Prefers metric units.", "Kids:\n- Anna"]),
)
"""Any text that is not empty: models write what they like."""

words = st.text(st.characters(codec="utf-8"), max_size=8)
entries = st.builds(
    Entry,
    st.sampled_from(IDS),
    st.sampled_from(Kind),
    texts,
    st.just(PAGE),
    st.integers(0, 4_000_000_000).map(float),
    confidence=st.none() | st.integers(0, 100).map(lambda n: n / 100),
    conversation=words,
    nodes=st.lists(words.filter(bool), max_size=3).map(tuple),
    by=st.sampled_from(["you", "hand", "qwen3-8b", "some model:Q4_K_M", "-->", "<!-- x", "通义", ""]),
    edited=st.booleans(),
)
"""Entries as a page can hold them: whole seconds, hundredths."""

_prose = st.sampled_from(
    [
        "- tea",
        "* coffee <!-- my own note -->",
        "+ milk  ",
        "1. first",
        "12) second",
        "-",
        "- [ ] buy flour",
        "- [x] sold the car",
        "- ",
        "- - -",
        "***",
        "---",
        "- ```",
        "- # loud",
        "## Work",
        "# Top",
        "Prose.",
        "going on",
        "===",
        "> quoted",
        "> - in a quote",
        "| a | b |",
        "-text",
        "- Kids:",
        "- Anna, 7",
        "- tea",
        "\\- no item",
        "- \\[x\\] C:\\Users",
        "- a <!-- mbroken",
        "<!-- hidden -->",
        "",
        "",
        "",
        "   ",
    ]
)
_fences = st.sampled_from(["```", "~~~", "```python", "````", "<!--", "-->", "- x --> y"])
_comments = st.sampled_from(
    [
        f"<!-- {id} {rest}"
        for id in IDS
        for rest in (
            "-->",
            "on:2026-11-21 by:x kind:skill c:0.5 h:123456 -->",
            "on:2026-11-",
            "kind:",
            "on:2026-11-21-->",
            "",
        )
    ]
)
_lines = st.one_of(
    _prose,
    _prose,
    _fences,
    st.builds(lambda text, comment: f"- {text} {comment}", st.sampled_from(["tea", "milk", ""]), _comments),
    st.builds(lambda entry: f"- {entry.text} {rendered(entry)}", entries.filter(lambda entry: entry.text.isalnum())),
    _comments,
)
_indents = st.sampled_from(["", "", "", "", "", " ", "  ", "   ", "    ", "\t", "      ", "\t\t", "\t  "])
_ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])


@st.composite
def pages(draw: st.DrawFn) -> str:
    """The text of a page as people leave it."""
    top = draw(
        st.sampled_from(
            ["", "", "", "\ufeff", "---\ntitle: Lab\ntags: [a, b]\n---\n", '---\r\nkind: "skill"\r\n---\r\n']
        )
    )
    end = draw(_ends)
    mixed = draw(st.booleans())
    lines = draw(st.lists(st.tuples(_indents, _lines, _ends), max_size=14))
    text = top + "".join(indent + line + (other if mixed else end) for indent, line, other in lines)
    return text.rstrip("\r\n") if draw(st.booleans()) else text


def known(page: MemoryPage) -> dict[str, Entry]:
    return {line.entry.id: line.entry for line in page.entries}


def with_entry(page: MemoryPage, entry: Entry) -> MemoryPage:
    return page.edited({entry.id: entry})


def without_entry(page: MemoryPage, id: str) -> MemoryPage:
    return page.edited({id: None})


def by_hand(text: str, id: str) -> Entry:
    """An entry that the person wrote into the file."""
    return Entry(id, Kind.FACT, text, PAGE, 0.0, by=BY_HAND)
