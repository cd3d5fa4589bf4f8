"""The HTML page holds listed elements and attributes only, fetches nothing and runs nothing, whatever is in it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from html import escape
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from transfer_samples import BEGIN, CORPUS, chat, conversation

from corpus import corpus
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.images import url_sha256
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.transfer.formats import Source, render
from kvchat.transfer.html import BAR_CELLS, STYLE, highlighted, link_allowed, to_html
from kvchat.transfer.markdown import fenced, safe_markdown

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
VOID = {"meta", "br", "hr", "img"}
ALLOWED: dict[str, set[str]] = {
    "html": {"lang"},
    "head": set(),
    "meta": {"charset", "http-equiv", "name", "content"},
    "title": set(),
    "style": set(),
    "body": set(),
    "main": set(),
    "section": {"class"},
    "header": set(),
    "article": {"class"},
    "details": {"class"},
    "summary": set(),
    "div": {"class", "dir"},
    "span": {"class"},
    "p": {"class"},
    "h1": set(),
    "h2": {"class"},
    "h3": set(),
    "h4": set(),
    "h5": set(),
    "h6": set(),
    "pre": {"class", "dir"},
    "code": {"class"},
    "a": {"href", "rel"},
    "strong": set(),
    "em": set(),
    "s": set(),
    "u": set(),
    "kbd": set(),
    "sub": set(),
    "sup": set(),
    "br": set(),
    "hr": set(),
    "ul": set(),
    "ol": {"start"},
    "li": set(),
    "blockquote": set(),
    "table": set(),
    "thead": set(),
    "tbody": set(),
    "tr": set(),
    "th": {"class"},
    "td": {"class"},
}


class Page(HTMLParser):
    """Reads a page and collects what does not belong in it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.open: list[str] = []
        self.elements: Counter[str] = Counter()
        self.links: list[str] = []
        self.policies: list[str | None] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"never closed: {name}" for name in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        if tag not in ALLOWED:
            self.wrong.append(f"element {tag}")
            return
        self.wrong += [f"attribute {tag} {name}" for name, _ in attrs if name not in ALLOWED[tag]]
        values = dict(attrs)
        if tag == "a":
            self.links.append(values.get("href") or "")
            if values.get("rel") != "noreferrer noopener":
                self.wrong.append("a link without rel")
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(values.get("content"))
        if tag == "style" and self.elements["style"] > 1:
            self.wrong.append("a second style sheet")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.wrong.append(f"{tag} closes itself")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"end of {tag}")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.wrong.append("a comment")

    def handle_pi(self, data: str) -> None:
        self.wrong.append("an instruction")

    def unknown_decl(self, data: str) -> None:
        self.wrong.append("a declaration")


def test_the_corpus_in_every_place_adds_no_element_no_attribute_and_no_odd_link(hostile: Source) -> None:
    text = render("html", [hostile], all_branches=True)
    page = Page(text)
    assert page.wrong == []
    assert all(link_allowed(link) for link in page.links)
    assert page.policies == [POLICY]
    assert text.index("Content-Security-Policy") < text.index("<title>")
    assert page.elements["article"] == 3 * len(CORPUS)
    assert "<script>alert(1)</script>" in "".join(page.words)


def test_nothing_in_the_corpus_is_left_for_a_terminal_to_obey(hostile: Source) -> None:
    text = render("html", [hostile], all_branches=True)
    text.encode("utf-8")
    assert not {char for char in text if unicodedata.category(char) == "Cc" and char not in "\n\t"}
    assert not {char for char in text if char in "\u202e\u2066\u2069\u200e\u2028\ufeff\u200b"}


def test_the_system_prompt_is_the_one_that_is_sent() -> None:
    sent = system_message("Be brief.")
    system = node(None, sent, BEGIN)
    words = " ".join("".join(Page(render("html", [conversation([system], system)])).words).split())
    assert " ".join(sent.text.split()) in words


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [item["text"] for item in CORPUS]
            + [
                "<",
                ">",
                "&",
                '"',
                "'",
                "`",
                "```",
                '```" onload=x\n',
                "~~~a<b>\n",
                "[",
                "](",
                ")",
                "![",
                "*",
                "_",
                "|",
                "|-|-|\n",
                "\n",
                "- ",
                "1. ",
                "# ",
                "> ",
                "    ",
                "http://a.test",
                "javascript:alert(1)",
                "&#106;avascript:",
                "\\",
                "<b>",
            ]
        ),
        max_size=14,
    ).map("".join)
)
def test_no_markdown_gives_an_element_or_attribute_outside_the_list(text: str) -> None:
    page = Page(to_html(text))
    assert page.wrong == []
    assert all(link_allowed(link) for link in page.links)


@pytest.mark.parametrize(
    "url", ["http://a.test", "https://a.test/b?c=d#e", "HTTPS://A.TEST", "mailto:a@b.test", "https://xn--pple-43d.com/"]
)
def test_a_plain_link_stays_a_link(url: str) -> None:
    assert len(Page(to_html(f"[a]({url})")).links) == 1


@corpus(
    "url",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html;base64,x",
        "file:///etc/passwd",
        "vbscript:x",
        "//evil.test",
        "/etc/passwd",
        "a.html",
        "#top",
        "",
        "https://google.com@evil.test",
        "http:///x",
        "https:evil.test",
        "blob:x",
        "ftp://a.test",
        "http://[",
        "&#106;avascript:alert(1)",
        "java\\nscript:alert(1)",
        "jar:http://a.test!/",
    ],
)
def test_any_other_link_is_text(url: str) -> None:
    page = Page(to_html(f"[a]({url}) <{url}>"))
    assert page.links == [] and page.wrong == []


def test_an_image_is_its_text_and_is_never_fetched() -> None:
    page = Page(to_html("![a *b*](https://evil.test/?q=1 'title')"))
    assert "".join(page.words).strip() == "![a *b*](https://evil.test/?q=1)"
    assert page.elements == {"p": 1, "code": 1}


def test_an_image_whose_name_has_quotation_marks_keeps_to_its_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALLOWED, "img", {"src", "alt", "title"})  # what was attached: nowhere else there may be one
    url, name = b"data:image/png;base64,aaaa", '" onerror="x"><b>.png'
    system = node(None, system_message(""), BEGIN)
    block = ContextBlock(IMAGE, name, "8 x 8", ref=f"#{url_sha256(url)}")
    source = conversation([system, asked := node(system, Message(Role.USER, "This?", (block,)), BEGIN)], asked)
    text = render("html", [replace(source, images={url_sha256(url): url})])
    page = Page(text)
    assert page.wrong == [] and page.elements["img"] == 1
    assert f'title="{escape(name)} 8 x 8"' in text


def test_the_page_names_no_address_and_holds_no_script() -> None:
    assert not re.search(r"url\(|@import|https?:|//|<|javascript", STYLE)
    text = render("html", [chat("Hello", "Hi")])
    assert "<script" not in text and "http" not in text.replace("http-equiv", "")


def test_a_conversation_reads_from_top_to_bottom(branched: Source) -> None:
    words = "".join(Page(render("html", [branched])).words)
    order = [
        "Lighthouse log",
        "reuse 100 %",
        "Cite the log.",
        "You",
        "Time: Saturday 2026-11-21",
        "Night 34: 101 turns.",
        "How many nights?",
        "I count the rows.",
        "Twenty-six.",
        "31 tokens",
        "version 1 of 2",
        "Which was the longest?",
        "Night 47.",
        "12 tokens · 60.0 tok/s · TTFT 0.14 s · 2,236 cached · 64 new",
    ]
    place = 0
    for part in order:
        place = words.index(part, place) + len(part)
    assert "I think it was" not in words


def test_reasoning_and_context_are_folded(branched: Source) -> None:
    text = render("html", [branched])
    assert re.search(r'<details class="reasoning">\s*<summary>Reasoning</summary>.*?I count the rows', text, re.DOTALL)
    assert re.search(r'<details class="context">\s*<summary>Context, passage: notes/lamp.md</summary>', text)


def test_every_message_is_there_once_when_all_branches_are_asked_for(branched: Source) -> None:
    words = "".join(Page(render("html", [branched], all_branches=True)).words)
    for made in branched.tree:
        if made.role is not Role.SYSTEM:
            assert words.count(made.text) == 1
    assert "Branch 2: another message 2" in words and "Stopped." in words and "1,106 wasted" in words


def test_latex_stands_as_it_came() -> None:
    assert to_html(r"so $a\\b\,c_{1}<d_{1}$ *e*") == "<p>so $a\\\\b\\,c_{1}&lt;d_{1}$ <em>e</em></p>\n"
    assert to_html("- x\n  $$\n  a \\\\\n  $$") == "<ul>\n<li>x\n<p>$$<br>\na \\\\<br>\n$$</p>\n</li>\n</ul>\n"


def test_markdown_is_rendered() -> None:
    html = to_html(
        "## Head\n\n| a | b |\n|--:|---|\n| 1 | ~~2~~ |\n\n1. *x*\n\nline\nline\n\n```python\nx = 1 # <b>\n```"
    )
    page = Page(html)
    assert page.wrong == []
    assert {"h4": 1, "table": 1, "s": 1, "ol": 1, "em": 1, "br": 1, "pre": 1}.items() <= page.elements.items()
    assert '<td class="right">1</td>' in html and '<span class="c"># &lt;b&gt;</span>' in html


@corpus("language", ["python", "diff", "html", "json", "pycon", "no-such-language", "", 'a"><b>'])
def test_coloured_code_is_the_code(language: str) -> None:
    for code in [item["text"] for item in CORPUS] + ["x = 1\n\n", "\n\n  x", "- a\n+ b", "", "a\r\nb", "\ta"]:
        page = Page(highlighted(code, language))
        assert "".join(page.words) == code and set(page.elements) <= {"span"}


@pytest.mark.parametrize("text", ["word " * 50_000, "![" * 2000 + "\n" + "[" * 2000])
def test_data_too_large_to_be_prose_stands_as_it_is(text: str) -> None:
    page = Page(to_html(text))
    assert "".join(page.words).strip() == text.strip() and page.elements == {"div": 1, "pre": 1, "code": 1}
    written = safe_markdown("<b>" + text)
    assert written == fenced("<b>" + text, "text")


def bar_of(figures: TurnFigures) -> dict[str, int]:
    nodes = [node(None, system_message(""), BEGIN)]
    nodes.append(node(nodes[0], Message(Role.USER, "q"), BEGIN))
    nodes.append(node(nodes[1], Message(Role.ASSISTANT, "a"), BEGIN, figures=figures))
    html = render("html", [conversation(nodes, nodes[2])])
    return {name: int(cells) for name, cells in re.findall(r'class="(cached|new|wasted) w(\d+)"', html)}


@pytest.mark.parametrize(
    ("figures", "parts"),
    [
        (TurnFigures(1000, 0, 5, 1000), {"new": BAR_CELLS}),
        (TurnFigures(1000, 999, 5, 1), {"cached": BAR_CELLS - 1, "new": 1}),
        (TurnFigures(1000, 500, 5, 250), {"cached": 12, "new": 6, "wasted": 6}),
        (TurnFigures(1000, None, 5, 250), {}),
        (TurnFigures(None, None, 5, None), {}),
    ],
)
def test_the_bar_shows_how_the_prompt_was_read(figures: TurnFigures, parts: dict[str, int]) -> None:
    assert bar_of(figures) == parts


@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(0, 5000))
@settings(max_examples=60, deadline=None)
def test_the_bar_is_never_longer_than_its_frame(prompt: int, cached: int, new: int) -> None:
    parts = bar_of(TurnFigures(prompt, min(cached, prompt), 1, min(new, prompt)))
    assert sum(parts.values()) == BAR_CELLS and min(parts.values()) >= 1


def test_several_conversations_share_a_page() -> None:
    page = Page(render("html", [chat("Hello", title="One"), chat("Hi", title="Two")]))
    assert page.elements["section"] == 2 and "2 conversations" in page.words and page.wrong == []
    assert "There are no messages yet." in render("html", [conversation([], None)])


def test_no_value_that_is_not_in_the_conversation_reaches_a_file(branched: Source) -> None:
    """Fields passed through to a server may be private: the readable formats leave them out."""
    for format in ("md", "html", "jsonl"):
        assert "mirostat" not in render(format, [branched], all_branches=True)
    assert json.loads(render("json", [branched]))["conversations"][0]["conversation"]["parameters"]["extra"]


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("これは**「重要」**です", "<p>これは<strong>「重要」</strong>です</p>"),
        ("旧的~~已删除。~~新的", "<p>旧的<s>已删除。</s>新的</p>"),
        ("one<br>two", "<p>one<br />two</p>"),
        ("<kbd>Ctrl</kbd> H<sub>2</sub>O <b>x</b>", "<p><kbd>Ctrl</kbd> H<sub>2</sub>O <strong>x</strong></p>"),
        ("<details>\n<summary>More</summary>", "<p><strong>More</strong></p>"),
        (
            "`<br>` <b>open <script>x</script>",
            "<p><code>&lt;br&gt;</code> &lt;b&gt;open &lt;script&gt;x&lt;/script&gt;</p>",
        ),
    ],
)
def test_what_models_write_is_in_the_page(text: str, page: str) -> None:
    assert to_html(text).strip() == page
