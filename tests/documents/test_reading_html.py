"""HTML: what a browser shows, under its headings, whatever the markup."""

from __future__ import annotations

import random

import pytest
from reading_kit import refusal, text_of

from corpus import corpus
from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading.content import Unit
from kvchat.documents.reading.formats import read
from kvchat.documents.reading.html import content_of, read_html

PAGE = """<!doctype html>
<html><head><title>The &lt;Guide&gt;</title><style>p { color: red }</style></head>
<body><h1>Install<a class="headerlink">¶</a></h1>
<p>Take the <a href="https://evil.test/x">package</a> &eacute;t
voil&agrave;.<br>Then run it.
<p>Second.
<h2><span>On</span> Linux</h2>
<ul><li>one<li>two<ul><li>inner</ul></ul>
<ol><li>first<li>second</ol>
<table><tr><th>Key<th>Value<tr><td>a<td><p>1</p><p>2</p></table>
<pre><b>def</b> f():
    return 1 &lt; 2

# end
</pre>
<h1>Remove</h1>Delete it.
<script>alert("secret")</script>
</body></html>"""


def shown(source: str) -> str:
    return text_of(content_of(source))


def test_headings_are_the_titles_and_the_title_is_the_pages_own() -> None:
    content = read("guide.html", PAGE.encode())
    assert content.title == "The <Guide>"
    assert (content.unit, content.exact) == (Unit.LINE, False)
    assert [section.titles for section in content.sections] == [
        ("Install",),
        ("Install", "On Linux"),
        ("Install", "On Linux"),
        ("Remove",),
    ]


def test_words_stand_as_a_browser_shows_them() -> None:
    assert [section.text for section in content_of(PAGE).sections] == [
        "Install\n\nTake the package ét voilà.\nThen run it.\n\nSecond.",
        "On Linux\n\n- one\n- two\n  - inner\n1. first\n2. second\n\nKey | Value\na | 1 2",
        "def f():\n    return 1 < 2\n\n# end",
        "Remove\n\nDelete it.",
    ]


def test_code_keeps_its_lines_and_says_so() -> None:
    assert [section.code for section in content_of(PAGE).sections] == [False, False, True, False]


def test_positions_are_the_lines_of_the_source() -> None:
    assert [(section.first, section.last) for section in content_of(PAGE).sections] == [
        (3, 6),
        (7, 10),
        (11, 14),
        (16, 16),
    ]


@corpus(
    "hidden",
    [
        "<p hidden>SECRET</p>",
        '<p style="display: none">SECRET</p>',
        '<div style="color:red;DISPLAY:NONE"><p>SECRET</div>',
        '<span style="visibility:hidden">SECRET</span>',
        '<span style="display:/* */none">SECRET</span>',
        '<span aria-hidden="true">SECRET</span>',
        '<span style="font-size:0">SECRET</span>',
        '<span style="opacity: 0.0; color: red">SECRET</span>',
        "<script>SECRET</script>",
        "<style>SECRET</style>",
        "<template><p>SECRET</p></template>",
        "<noscript>SECRET</noscript>",
        "<!-- SECRET -->",
        "<!SECRET>",
        "<?SECRET?>",
        "<iframe>SECRET</iframe>",
        '<img alt="SECRET">',
        '<input value="SECRET">',
        "<dialog>SECRET</dialog>",
        "<svg><title>SECRET</title></svg>",
        "<div hidden><table><tr><td></div>SECRET</td></tr></table></div>",
        "<b><div hidden></b>SECRET</div>",
        '<script>"</style>SECRET"</script >',
        "<!--><!-- SECRET -->",
        '<div data-x=">" hidden>SECRET</div>',
        "<object>SECRET</object>",
    ],
)
def test_what_nobody_sees_is_not_read(hidden: str) -> None:
    text = shown(f"<p>before</p>{hidden}<p>after</p>")
    assert "SECRET" not in text
    assert "before" in text and "after" in text


@corpus(
    "seen",
    [
        "<p hidden>x<p>SEEN",
        "<ul><li hidden>x<li>SEEN</ul>",
        "<table><tr><td hidden>x<td>SEEN</table>",
        '<p style="opacity:0.5">SEEN',
        '<p style="font-size:0.9em">SEEN',
        '<body style="display:none">SEEN',
        '<p aria-hidden="false">SEEN',
        "<div hidden><i><i><i>x</div>SEEN",
        "<a>1 < 2 SEEN",
        "</p></div>SEEN<",
        "<p<b>SEEN",
        "<textarea>SEEN",
        "<details>SEEN</details>",
        "<dialog open>SEEN</dialog>",
        "<p title='a > b'>SEEN",
        "<script src=x></script>SEEN",
        "<title>t</title>SEEN",
    ],
)
def test_what_is_seen_is_read_however_it_is_closed(seen: str) -> None:
    assert "SEEN" in shown(seen)


def test_what_pages_add_for_the_mouse_is_left_out() -> None:
    content = content_of('<h1>On C# <a href="#x">#</a></h1><pre>code()<button>copy</button></pre>')
    assert [(section.titles, section.text) for section in content.sections] == [
        (("On C#",), "On C#"),
        (("On C#",), "code()"),
    ]


def test_an_empty_script_of_xhtml_hides_nothing() -> None:
    assert "seen" in shown('<?xml version="1.0"?><html><script src="x.js"/><p>seen</p></html>')


def test_tables_for_layout_keep_their_paragraphs_and_headings() -> None:
    content = content_of("<table><tr><td><h2>News</h2><p>one</p><p>two</p></td></tr></table>")
    assert [(section.titles, section.text) for section in content.sections] == [(("News",), "News\n\none\n\ntwo")]


def test_a_long_page_without_headings_has_narrow_positions() -> None:
    content = content_of("\n".join(f"<p>{'word ' * 100}</p>" for _ in range(20)))
    assert [section.last - section.first for section in content.sections] == [2] * 6 + [1]


@corpus(
    ("data", "text"),
    [
        ("<p>é</p>".encode(), "é"),
        (b'<meta charset="iso-8859-1"><p>\xe9\x93</p>', "é“"),
        (b'<meta http-equiv=Content-Type content="text/html; charset=windows-1251"><p>\xcf\xf0</p>', "Пр"),
        ('<meta charset="shift_jis"><p>日本</p>'.encode("shift_jis"), "日本"),
        ('<meta charset="iso-8859-1"><p>é</p>'.encode(), "é"),
        ("<p>é</p>".encode("utf-16"), "é"),
        (b'<meta charset="rot13"><p>abc</p>', "abc"),
        (b'<meta charset="unicode_escape"><p>\\u0041</p>', "\\u0041"),
    ],
)
def test_characters_are_those_the_file_means(data: bytes, text: str) -> None:
    assert text_of(read_html(data)) == text


def test_a_page_of_zeros_is_binary() -> None:
    assert refusal("x.html", b'<meta charset="latin-1">\0\0\0') == "is a binary file"


def test_a_page_without_words_says_so() -> None:
    assert refusal("x.html", b"<html><script>app()</script></html>") == "has no text"


@pytest.mark.slow
@corpus(
    "piece",
    [
        "<!--",
        "<a ",
        '<a x="',
        "<a x='\"",
        "<title>",
        "</",
        "<",
        "<script>",
        "<p>",
        "<div hidden>",
        "&#",
        "<b><div>",
        "<table><tr><td>",
        "<ul><li>",
        "<h1>",
        "<pre>",
        "<p></b>",
        "<?",
        "<![CDATA[",
        "<a =",
        "<li></ul>",
        "<option>",
    ],
)
def test_markup_that_is_never_closed_is_read_to_its_end(piece: str) -> None:
    # Some of these take minutes where the time grows with the square of the length.
    content = content_of(f"<p>before</p>{piece * 40_000}")
    assert content.sections[0].text.startswith("before")


def test_a_huge_attribute_is_no_text() -> None:
    content = content_of(f'<p style="{"x" * 1_000_000}" title="{"y" * 1_000_000}">words</p>')
    assert text_of(content) == "words"


def test_broken_pages_give_content_or_a_reason() -> None:
    draw = random.Random(6)
    whole = PAGE.encode()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 30)):
            at = draw.randrange(len(data))
            data[at : at + draw.randint(0, 9)] = draw.choice(
                [b"<", b">", b'"', b"</", b"<!--", b"&", b"\xff", b"<pre>"]
            )
        try:
            content = read("x.html", bytes(data))
        except FileUnreadableError:
            continue
        assert all(section.text.strip() and 1 <= section.first <= section.last for section in content.sections)
