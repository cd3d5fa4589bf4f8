"""Markdown as rows, compared as lists of strings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from markdown_kit import render_markdown
from rich.cells import cell_len

from corpus import corpus
from kvchat.commonmark import code_blocks
from kvchat.ui.tones import TONES
from kvchat.ui.widgets.transcript.render.code import with_key
from kvchat.ui.widgets.transcript.render.markdown import MarkdownDocument
from kvchat.ui.widgets.transcript.render.rows import copied, text_of
from kvchat.ui.widgets.transcript.render.wrap import _ONE_CELL, breaks

HOSTILE = json.loads((Path(__file__).parent.parent / "fixtures" / "hostile_text.json").read_text())
CONTEXTS = [
    "{}",
    "# {}",
    "- {}",
    "> {}",
    "`{}`",
    "```\n{}\n```",
    "```{}\nx\n```",
    "| {} | b |\n|---|---|\n| {} | c |",
    "[{}](http://e.test)",
    '[l](http://e.test "{}")',
    "![{}](u)",
    "1. a\n\n   {}",
]


def drawn(text: str, width: int = 40) -> list[str]:
    return [line.rstrip() for line in text_of(render_markdown(text, width))]


@corpus(
    ("text", "lines"),
    [
        ("# Title\n\ntext\n## Next", ["Title", "", "text", "", "Next"]),
        ("one *two* **three** ~~four~~ `five`", ["one two three four five"]),
        ("a line\nand another", ["a line", "and another"]),
        ("- a\n- b\n  - c\n    1. d\n", ["• a", "• b", "  ◦ c", "    1. d"]),
        ("1. a\n\n   more\n2. b", ["1. a", "", "   more", "2. b"]),
        ("9) nine\n10) ten", ["9) nine", "10) ten"]),
        ("- [ ] open\n- [x] done", ["☐ open", "☑ done"]),
        ("> said\n> twice\n\nend", ["▎ said", "▎ twice", "", "end"]),
        ("a\n\n---\n\nb", ["a", "", "─" * 40, "", "b"]),
        ("[text](https://e.test/x)", ["text (https://e.test/x)"]),
        ("<https://e.test/x>", ["https://e.test/x"]),
        ("[https://e.test](https://e.test)", ["https://e.test"]),
        ("![a cat](https://e.test/c.png)", ["image: a cat (https://e.test/c.png)"]),
        ("text\n```py\nx = 1\n```\nend", ["text", "", " py" + " " * 32 + "copy", " x = 1", "", "end"]),
        (
            "| a | b |\n|:-:|--:|\n| one | 2 |\n| three | 10 |",
            ["  a   │   b", "──────┼────", " one  │   2", "three │  10"],
        ),
        ("    indented\n    code", [" " * 35 + "copy", " indented", " code"]),
    ],
)
def test_a_construct_is_drawn(text: str, lines: list[str]) -> None:
    assert drawn(text) == lines


@corpus(
    "text",
    [
        "List<int>",
        "<think>secret</think>",
        r"\(x\) and \[y\]",
        "<b>never closed",
        "Use <details> here",
        "<!-- comment -->",
        "[ref]: http://e.test",
        "<div>\n\nx\n\n</div>",
        "[/foo] [bold]no markup[/]",
        "a_b_c snake_case",
        "$a_1 * b$",
        "https://e.test/a_b",
        ">" * 100 + " deep",
        "&notanentity;",
    ],
)
def test_no_text_vanishes(text: str) -> None:
    assert "".join("".join(drawn(text, 200)).split()) == "".join(text.split()).replace("\n", "")


UNSPACED = [
    "这是**注意：**正文",
    "これは**「重要」**です",
    "用**（括号）。**继续",
    "그것은 **‘강조’**입니다",
    "한국어**(괄호)**는",
    "旧的~~已删除。~~新的",
    "他说***“两者”***然后",
    "これは*「強調」*です",
    "价格**$5**元",
    "用**`code`**的",
    "见**[链接](u)**。",
    "ใช้**“คำ”**และ",
    "漢字\U000e0100**「字」**と",
]


@corpus("text", UNSPACED)
def test_emphasis_needs_no_space_where_a_script_has_none(text: str) -> None:
    assert not {"*", "~"} & set("".join(drawn(text)))
    assert copied(render_markdown(text, 60)).strip() == text


@pytest.mark.parametrize("text", ["**Note:**text", "foo**(bar)**baz", "2 ** 3 and 4 ** 5", "a_「b」_c", "词_“b”_词"])
def test_emphasis_elsewhere_is_as_ever(text: str) -> None:
    assert drawn(text) == [text]


@corpus(
    ("text", "lines"),
    [
        ("one<br>two<br/>three<BR />four", ["one", "two", "three", "four"]),
        ("a line<br>\nand another<br>", ["a line", "and another"]),
        ("- one<br>two\n- three", ["• one", "  two", "• three"]),
        ("> one<br><br>two", ["▎ one", "▎", "▎ two"]),
        ("`<br>` stays", ["<br> stays"]),
        ("| a | b |\n|---|---|\n| one<br>two | x<br/>y |", ["a   │ b", "────┼────", "one │ x", "two │ y"]),
        ("press <kbd>Ctrl</kbd>+<kbd>C</kbd>", ["press Ctrl+C"]),
        ("H<sub>2</sub>O, x<sup>n+1</sup>, x<sup>n,k</sup>, E<sub>K</sub>", ["H₂O, xⁿ⁺¹, x^(n,k), E_K"]),
        ("<b>bold <i>both</i></b> <u>u</u> <del>gone</del>", ["bold both u gone"]),
        ("<details>\n<summary>Show <b>it</b></summary>\n\nText\n\n</details>", ["▾ Show it", "", "Text", "", ""]),
        ("rain[^1] and fog[^12]\n\n[^1]: a note", ["rain¹ and fog¹²", "", "¹: a note"]),
    ],
)
def test_a_tag_of_html_that_models_write_is_drawn(text: str, lines: list[str]) -> None:
    assert drawn(text) == lines
    assert copied(render_markdown(text, 60)).strip() == text


DEFINED = "\n\n[1]: https://e.test/1\n[The Docs]: https://e.test/docs 'Title'"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("see [the *manual*][1]", "see the manual (https://e.test/1)"),
        ("see [the docs][] or [the  docs]", "see the docs (https://e.test/docs) or the  docs (https://e.test/docs)"),
        ("it rains [1]", "it rains [1]"),
        ("- [a][1]", "• a (https://e.test/1)"),
        ("| [a][1] |\n|---|", "a (https://e.test/1)"),
        ("`[a][1]` and [a][2] and x[i]", "[a][1] and [a][2] and x[i]"),
    ],
)
def test_a_link_has_the_address_that_the_text_defines(text: str, first: str) -> None:
    rows = render_markdown(text + DEFINED, 90)
    assert rows[0].text.rstrip() == first
    assert copied(rows).strip() == text + DEFINED
    assert rows[-1].text.startswith("[The Docs]: https")


def test_what_code_holds_defines_no_link() -> None:
    assert drawn("[a][1]\n\n```\n[1]: u\n```")[0] == "[a][1]"


@corpus("sign", ["<b>", "<b><i>", "<sub>x", "<br>", "<summary>", "[a][1] ", "[", "「**"])
def test_many_tags_and_links_take_no_time(sign: str) -> None:
    render_markdown(sign * (60_000 // len(sign)) + DEFINED, 60)


def test_a_surplus_cell_of_a_table_is_kept() -> None:
    assert "three" in drawn("| a | b |\n|---|---|\n| one | two | three |")[2]


def test_a_wide_table_wraps_its_cells_and_keeps_to_the_width() -> None:
    text = "| name | what |\n|---|---|\n| lamp | " + "turns and turns " * 6 + "|\n| 灯台 | 霧のち晴れ、風が強い夜だ |"
    rows = text_of(render_markdown(text, 34))
    assert all(cell_len(row) <= 34 for row in rows)
    assert " ".join("".join(row.split("│")[1] for row in rows[2:] if "│" in row).split()).count("turns") == 12


def test_a_table_with_too_many_columns_is_shown_as_written() -> None:
    text = "|" + "|".join(["abcdef"] * 20) + "|\n|" + "-|" * 20
    assert "".join(drawn(text)).replace(" ", "") == text.replace("\n", "")


def test_long_code_lines_go_on_behind_a_mark() -> None:
    body = drawn("```\n" + "x" * 70 + "\n```")[1:]
    assert body[1].startswith(" ↪ x") and sum(line.count("x") for line in body) == 70
    assert all(len(line) <= 40 for line in body)


def test_wide_characters_wrap_by_their_cells_and_stay_whole() -> None:
    text = "漢字かな交じり文、とても長い文章です。👨‍👩‍👧 family ❤️ flags 🇯🇵 " * 3
    for width in (10, 17, 30):
        rows = text_of(render_markdown(text, width))
        assert all(cell_len(row) <= width for row in rows)
        assert "".join("".join(rows).split()) == "".join(text.split())
        assert not any(row.startswith(("\u200d", "\ufe0f", "、", "。")) for row in rows)


def test_characters_counted_as_one_cell_are_one_cell() -> None:
    assert [hex(c) for c in range(0x20, 0x3000) if _ONE_CELL.fullmatch(chr(c)) and cell_len(chr(c)) != 1] == []


def test_breaks_lose_only_white_space() -> None:
    text = "some  words and averyveryverylongword in between   "
    for width in range(1, 60):
        parts = [text[start:stop] for start, stop in breaks(text, width)]
        assert "".join("".join(parts).split()) == "".join(text.split())
        assert all(len(part) <= width for part in parts)


FORMULAS = [
    r"so $a\\b\,c_{1}*2*$ and \(x \, y_1 * z_1\) end",
    "Text:\n\\[\na_1 \\\\\n- b_1 \\, c\n\\]\nmore",
    "$$\na\n= b\n# c\n> d\n$$",
    "- item\n  $$\n  a \\\\ b\n  $$\n- two",
    "> \\[ x \\\\ y \\]",
    r"still open \(a \, b \\ c",
    "$$\nstill open \\\\\n- x \\, y",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_latex_is_drawn_as_it_came(text: str) -> None:
    drawn = "\n".join(row.text.rstrip() for row in render_markdown(text, 60))
    assert drawn == text.replace("- item", "• item").replace("- two", "• two").replace("> \\", "▎ \\")


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("costs $5 and **$10**, or $6", "costs $5 and $10, or $6"),
        ("$HOME/*x* and *$PATH*", "$HOME/x and $PATH"),
        (r"escaped \$5 *a* \$6", "escaped $5 a $6"),
        ("`$a`*b*`$`", "$ab$"),
        ("$$$ tiers *two*", "$$$ tiers two"),
        (r"\(a\) *b* \(c\)", r"\(a\) b \(c\)"),
    ],
)
def test_what_is_no_latex_is_drawn_as_ever(text: str, drawn: str) -> None:
    assert [row.text for row in render_markdown(text, 60)] == [drawn]


@corpus("sign", ["$", "$$", "$a ", "$$ a ", "\\(", "\\[", "$a\\", "\\(a\\)", "$$\n"])
def test_many_signs_of_latex_take_no_time(sign: str) -> None:
    render_markdown(sign * (60_000 // len(sign)), 60)


@corpus(
    "text",
    [
        "prose that is long enough to be wrapped over three rows of the narrow panel it is drawn in",
        "some **bold and *nested* words** and `code` and [a link](http://e.test) that wrap",
        "- one\n- two\n  - three that is quite long and wraps over the edge\n\n  a second paragraph",
        "1. one\n2. two",
        "> quoted words that are long enough to be wrapped once\n> and more",
        "```python\n\tif x:\n\t\treturn 'a long line that goes over the edge of the panel, twice if need be'\n```",
        "- [x] done\n- [ ] open",
        "a &amp; b \\* c",
        *FORMULAS,
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "| a | b |\n|---|---|\n| many words in a cell that is too narrow | and again many words |",
    ],
)
def test_a_copy_of_everything_is_the_source(text: str) -> None:
    assert copied(render_markdown(text, 34)).strip() == text


def test_a_copy_inside_code_or_emphasis_is_without_the_marks() -> None:
    rows = render_markdown("run `ls -la` **now** please", 60)
    assert copied(rows, (0, 4), (0, 10)) == "ls -la"
    assert copied(rows, (0, 11), (0, 14)) == "now"
    assert copied(rows, (0, 4), (0, 21)) == "`ls -la` **now** please"


def test_a_copy_of_code_rows_is_exact() -> None:
    rows = render_markdown("```\n\tfirst\n" + "word " * 20 + "\nlast\n```", 40)
    assert copied(rows, (1, 0), (len(rows) - 1, 5)) == "\tfirst\n" + "word " * 20 + "\nlast"


def test_code_blocks_are_numbered_wherever_they_stand() -> None:
    text = "```py\na\n```\n\n- item\n\n  ```sh\n  b\n  ```\n\n> ```\n> c\n> ```\n"
    assert code_blocks(text) == ["a", "b", "c"]
    labels = [row for row in render_markdown(text, 30) if row.action]
    assert [row.action for row in labels] == ["code:1", "code:2", "code:3"]
    assert [row.text.split() for row in labels] == [["py", "copy"], ["sh", "copy"], ["▎", "copy"]]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("<details>\n<summary>The code</summary>\n```py\na\n```\n</details>\n\n```\nb\n```\n", ["a", "b"]),
        ("<!-- words\n```\na\n```\n-->\n", ["a"]),
        ("Words\n\n    a\n    b\n\n```\nc\n```\n", ["a\nb", "c"]),
        ("\\[\n```\na\n```\n\\]\n\n```\nb\n```\n", ["b"]),
        ("```\r\n\ta\r\n```\r\n\r\n~~~\n\x1b[31mb\n~~~", ["\ta", "␛[31mb"]),
        (">" * 70 + " deep\n\n```\na\n```\n", ["a"]),
    ],
)
def test_a_block_has_the_number_that_is_drawn_in_its_panel(text: str, codes: list[str]) -> None:
    """Whoever asks for one by its number: the app counts what it drew, plain mode draws nothing."""
    document = MarkdownDocument(80)
    document.update(text, final=True)
    assert document.codes == code_blocks(text) == codes


def test_a_code_block_of_a_selected_message_tells_its_key() -> None:
    (label, *lines) = render_markdown("```py\na\n```", 40)
    keyed = with_key(label)
    assert keyed.text.endswith("press 1 to copy") and len(keyed.text) == len(label.text)
    assert [with_key(row) for row in lines] == lines
    assert with_key(narrow := render_markdown("```python\na\n```", 16)[0]) == narrow, "there is no room for it"


def test_code_is_coloured_while_it_streams_and_when_it_is_closed() -> None:
    document = MarkdownDocument(60)
    document.update("```python\ndef f():\n    return 'x'\nunfinished")
    assert [run.tone for run in document.rows[1].runs][1] == "code keyword"
    document.update("```python\ndef f():\n    return 'x'\nunfinished = 1\n```\n")
    assert "code number" in [run.tone for run in document.rows[3].runs]


def test_an_open_docstring_stays_a_string_line_by_line() -> None:
    document = MarkdownDocument(60)
    text = '```python\ndef f():\n    """One\n    return is no keyword here\n    and on\n'
    for end in range(20, len(text) + 1):
        document.update(text[:end])
    assert {run.tone for run in document.rows[3].runs[1:]} == {"code string"}


@corpus("case", HOSTILE)
def test_hostile_text_is_drawn_without_control_characters(case: dict[str, str]) -> None:
    for context in CONTEXTS:
        text = context.replace("{}", case["text"])
        rows = render_markdown(text, 40)
        for row in rows:
            assert all(c >= " " and not "\x7f" <= c <= "\x9f" and c not in "\u202e\u2066\u2028\u200b" for c in row.text)
            assert cell_len(row.text) <= 40 or "\u200d" in row.text
            names = {name for run in row.runs for name in run.tone.split()} - {"open", "close"}
            assert names <= set(TONES)
        copy = copied(rows)
        assert "\x1b" not in copy and "\x9b" not in copy


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "*a " * 5000,
        "> " * 500 + "x",
        "- " * 500 + "x",
        "`" * 9999,
        "|a" * 3000,
    ],
    ids=["brackets", "stars", "quotes", "lists", "backticks", "cells"],
)
def test_pathological_text_is_drawn_whole(text: str) -> None:
    letters = [c for c in text if c.isalnum()]
    rows = drawn(text)
    assert rows and sum(row.count(letter) for row in rows for letter in set(letters)) == len(letters)


def test_a_rewritten_text_is_drawn_anew() -> None:
    document = MarkdownDocument(40)
    document.update("- one\n- two\n\nthree\n\nfour")
    document.update("other")
    assert text_of(document.rows) == ["other"]
