"""Streaming and drawing at once give the same rows."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_kit import render_markdown

from kvchat.commonmark import code_blocks
from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument
from kvchat.ui.widgets.transcript.render.rows import copied, text_of

_LINES = st.sampled_from(
    [
        "",
        "",
        "word and word",
        "# Heading",
        "#",
        "## H2 `c`",
        "- item",
        "- ",
        "-",
        "* star",
        "*",
        "+ plus",
        "1. one",
        "2. two",
        "1.",
        "10) ten",
        "  - nested",
        "   continued",
        "    indented",
        "      deep",
        "> quote",
        ">",
        "> - q",
        "```",
        "```py",
        "```py `x`",
        "~~~",
        "def f():",
        '    """doc',
        '"""',
        "| a | b |",
        "|---|:-:|",
        "| 1 | 2 | 3 |",
        "|",
        "a|b",
        "-|-",
        "--",
        "---",
        "***",
        "* * *",
        "===",
        "**bold** and *em*",
        "**open",
        "close**",
        "[x]: http://e.test",
        "[l](http://e.test)",
        "![i](u)",
        "List<int> <think>x</think>",
        "<br>",
        "a<br>b <kbd>K</kbd> <sub>2</sub>",
        "| <br/> | x<br>y |",
        "<details>",
        "<summary>more</summary>",
        "</details>",
        "[ref][x] and [x], [1]",
        "[1]: http://e.test/1 'title'",
        "note[^1]",
        "[^1]: the note",
        "これは**「重要」**です",
        "<div>",
        r"\(x\) \[y\]",
        "$$",
        "$$ a_1",
        "x $$ y",
        r"\[",
        r"\] after",
        r"$a\,b$ and $5",
        r"\(open \, one",
        "&amp; &#27;",
        "漢字かな交じり文、とても長い文章です。もっと長く。",
        "👨‍👩‍👧 ❤️ é",
        "\ttab\tin",
        "x" * 70,
        "- [ ] task",
        "- [x] done",
        "`code",
        "\u2028sep",
        "cr\r",
        "\x1b[2J",
        "1.5 is no item",
        "12",
        "123456789. long",
        "https://e.test/a_b_c",
        "a  ",
        "b\\",
    ]
)
_TEXTS = st.lists(_LINES, max_size=14).map("\n".join)


@st.composite
def _streams(draw: st.DrawFn) -> list[str]:
    """A Markdown text, and what of it was there at every step."""
    text = draw(_TEXTS)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return [text[:cut] for cut in cuts] + [text]


@settings(max_examples=400, deadline=None)
@given(_streams(), st.sampled_from([20, 44, 90]))
@example(["para\n#", "para\n#foo\n\nmore\n\nand"], 44)
@example(["- a\n\n1", "- a\n\n1. b\n2. c"], 44)
@example(["> quote\n\na|b\n|---|:-", "> quote\n\na|b\n|---|:-:|\n"], 20)
@example(
    [
        "| a | b |\n|---|---|\n| 1 |",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3\n\nend",
    ],
    44,
)
def test_streaming_draws_the_same_text_as_drawing_at_once(steps: list[str], width: int) -> None:
    streamed = MarkdownDocument(width)
    for text in steps:
        streamed.update(text)
        fresh = MarkdownDocument(width)
        fresh.update(text)
        assert text_of(streamed.rows) == text_of(fresh.rows)
        assert streamed.codes == fresh.codes
    streamed.update(steps[-1], final=True)
    assert streamed.rows == render_markdown(steps[-1], width)
    assert streamed.codes == code_blocks(steps[-1])


@settings(max_examples=150, deadline=None)
@given(_streams())
def test_rows_before_the_reported_change_are_the_same_as_before(steps: list[str]) -> None:
    document = MarkdownDocument(40)
    before: list[object] = []
    for text in steps:
        changed = document.update(text)
        assert before[:changed] == document.rows[:changed]
        before = list(document.rows)


@settings(max_examples=150, deadline=None)
@given(_TEXTS)
def test_a_copy_of_a_whole_text_has_all_its_words(text: str) -> None:
    copy = copied(render_markdown(text, 30))
    words = [word for word in text.replace("\\", "").split() if word.isalnum()]
    assert all(word in copy for word in words)
