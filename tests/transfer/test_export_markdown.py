"""Markdown is readable, safe to print, fetches nothing, and no message swallows the next."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from transfer_samples import BEGIN, CORPUS, chat, conversation

from corpus import corpus
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.sanitize import clean, one_line
from kvchat.transfer.formats import Source, render
from kvchat.transfer.markdown import escaped, fenced, safe_markdown

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PARSER.validateLink = lambda url: True  # type: ignore[method-assign]
MARK = "THE NEXT MESSAGE"


def tokens_of(text: str, env: dict[str, object] | None = None) -> list[Token]:
    found: list[Token] = []
    for token in PARSER.parse(text, env):
        found += [token, *(token.children or [])]
    return found


def headings(text: str) -> list[str]:
    tokens = PARSER.parse(text)
    return [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open" and not token.level]


def shown(text: str) -> str:
    """What a viewer shows of one paragraph."""
    [inline] = [token for token in PARSER.parse(text) if token.type == "inline"]
    return "".join(child.content for child in inline.children or [])


def test_a_conversation_reads_from_top_to_bottom(branched: Source) -> None:
    text = render("md", [branched])
    assert text.startswith('---\ntitle: "Lighthouse log"\n')
    assert 'model: "SmolLM2-135M"\n' in text and "temperature 0.7" in text
    body = text.split("---\n", 2)[2]
    assert headings(body) == ["Lighthouse log", "System prompt", "You", "SmolLM2-135M", "You", "SmolLM2-135M"]
    order = [
        "Cite the log.",
        "Night 34: 101 turns.",
        "How many nights?",
        "I count the rows.",
        "Twenty-six.",
        "Which was the longest?",
        "Night 47.",
    ]
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    assert "> I count the rows." in body and "12 tokens · 60.0 tok/s · TTFT 0.14 s" in body
    assert "2,236 cached · 64 new" in body and "version 1 of 2" in body


def test_the_system_prompt_is_the_one_that_is_sent() -> None:
    sent = system_message("Be brief.")
    system = node(None, sent, BEGIN)
    paragraphs = [
        token
        for token in PARSER.parse(render("md", [conversation([system], system)]))
        if token.type == "inline" and token.level == 2
    ]  # inside the quotation
    words = ["".join(child.content or "\n" for child in token.children or []) for token in paragraphs]
    assert "\n\n".join(words) == sent.text


def test_other_branches_stand_behind_the_one_in_use_and_only_when_asked_for(branched: Source) -> None:
    main = render("md", [branched])
    text = render("md", [branched], all_branches=True)
    assert "I think it was" not in main and "Which was the shortest?" not in main
    assert text.startswith(main.rstrip("\n"))
    assert "## Branch 2: another message 2\n" in text and "## Branch 3: another message 3\n" in text
    assert text.index("Branch 2") < text.index("I think it was\n\n*Stopped.*") < text.index("Branch 3")
    for made in branched.tree:
        if made.role is not Role.SYSTEM:
            assert text.count(made.text) == 1


def test_a_branch_says_which_branch_it_leaves() -> None:
    nodes = [node(None, system_message(""), BEGIN)]
    for parent, text in ((0, "q1"), (1, "a1"), (1, "a1 again"), (3, "q2"), (4, "a2"), (4, "a2 again"), (2, "goes on")):
        role = Role.ASSISTANT if text.startswith("a") else Role.USER
        nodes.append(node(nodes[parent], Message(role, text), BEGIN + len(nodes)))
    text = render("md", [conversation(nodes, nodes[2])], all_branches=True)
    assert [line for line in text.splitlines() if line.startswith("## Branch")] == [
        "## Branch 2: another message 2",
        "## Branch 3: another message 4 of branch 2",
        "## Branch 4: goes on after message 2",
    ]


def test_a_fence_is_longer_than_any_fence_in_the_context(branched: Source) -> None:
    text = render("md", [branched])
    assert "> ````text\n> Night 34: 101 turns.\n> ```\n> Night 59\n> ```\n> ````\n" in text


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="`~\n x>-", max_size=40))
def test_a_fenced_text_is_one_code_block_with_that_text(text: str) -> None:
    [token] = PARSER.parse(fenced(text))
    assert token.type == "fence" and token.content.strip("\n") == text.strip("\n")


HOSTILE = [item["text"] for item in CORPUS] + [
    "```python\nprint(1)",
    "~~~~\nopen",
    "````\n```\nstill open",
    "- ```\n  in a list",
    "> ```\n> in a quote",
    "<!-- swallows everything",
    "<script>",
    "<pre>\n",
    "<![CDATA[",
    "<?php",
    "![a\n](https://evil.test/x.png)",
    "![a][b]\n\n[b]: https://evil.test/x.png",
    "![b]\n\n[b]: https://evil.test/x.png",
    "`` ![a](b) `",
    '![a](<b c> "t")',
    "![a [b](c)](d)",
    "\\![a](b)",
    "`x\n![a](b)\ny`",
    "    ![a](b)\n",
    "<img\nsrc=x>",
    "![`](x)`](https://evil.test)",
    "a\n===",
    "[x]: <\n",
    "<details><summary>",
]


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="`~![]()<>\\ \nab-:/=\"'", max_size=60)
    | st.lists(st.sampled_from(HOSTILE), max_size=3).map("\n".join)
)
def test_no_text_fetches_anything_or_swallows_what_follows(text: str) -> None:
    document = safe_markdown(clean(text)) + f"\n\n## {MARK}\n"
    assert headings(document)[-1:] == [MARK]
    assert not {token.type for token in tokens_of(document)} & {"image", "html_block", "html_inline"}


@corpus("text", HOSTILE)
def test_no_hostile_text_fetches_anything_or_swallows_what_follows(text: str) -> None:
    document = render("md", [chat(text, MARK)]).split("---\n", 2)[2]
    assert headings(document)[-1:] == ["SmolLM2"] and document.rstrip().endswith(f"*\n\n{MARK}")
    assert not {token.type for token in tokens_of(document)} & {"image", "html_block", "html_inline"}


def test_an_image_stands_as_code_and_html_as_text() -> None:
    text = safe_markdown("See ![chart](https://evil.test/x.png) and <b>bold</b>, `![kept](x)`.")
    assert text == "See `![chart](https://evil.test/x.png)` and \\<b>bold\\</b>, `![kept](x)`."


def test_latex_stays_as_it_came_where_that_is_safe() -> None:
    text = "so $a<b_1$ and \\(x<y \\, z\\), $$\na <c\n$$ ![i](u)"
    assert safe_markdown(text) == text.replace("![i](u)", "`![i](u)`")
    assert safe_markdown("$a <img src=x> b$") == "$a \\<img src=x> b$"
    assert safe_markdown("$a ![i](u)$ b") == "$a \\![i](u)$ b"


def test_code_blocks_and_ordinary_markdown_stay_as_they_are() -> None:
    text = "# Title\n\n- a *b* [c](https://d.test)\n\n```html\n<b>![x](y)</b>\n```\n\n    <indented>\n\n2 < 3 and `<b>`"
    assert safe_markdown(text) == text


def test_an_answer_cut_inside_a_code_block_is_closed() -> None:
    assert safe_markdown("Look:\n```python\nprint(1)") == "Look:\n```python\nprint(1)\n```"
    assert safe_markdown("Look:\n~~~~\n```\nx") == "Look:\n~~~~\n```\nx\n~~~~"


def test_the_corpus_in_every_place_leaves_nothing_a_terminal_obeys(hostile: Source) -> None:
    text = render("md", [hostile], all_branches=True)
    text.encode("utf-8")
    obeyed = {char for char in text if unicodedata.category(char) == "Cc" and char not in "\n\t"}
    assert not obeyed | {char for char in text if char in "\u202e\u2066\u2069\u200e\u2028"}
    assert not {token.type for token in tokens_of(text)} & {"image", "html_block", "html_inline"}
    assert len(headings(text)) >= 3 * len(CORPUS)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab_*`[]<>&\\~#!| ()", min_size=1, max_size=20).map(lambda text: " ".join(text.split())))
@example("Q4_K_M")
def test_a_name_in_a_heading_shows_as_it_is(name: str) -> None:
    assert shown(f"## x {escaped(name)} x") == f"x {name} x"


def test_front_matter_holds_whatever_the_title_is(hostile: Source) -> None:
    lines = render("md", [hostile]).split("\n")
    assert lines[0] == "---" and all(': "' in line for line in lines[1 : lines.index("---", 1)])
    assert json.loads(lines[1].removeprefix("title: ")) == one_line(hostile.conversation.title)


def test_of_a_model_path_only_the_name_is_told(branched: Source) -> None:
    for format in ("md", "html"):
        assert "somebody" not in render(format, [branched], all_branches=True)


def test_several_conversations_follow_one_another_and_an_empty_one_says_so() -> None:
    system = node(None, system_message(""), BEGIN)
    text = render("md", [chat("Hello", title="One"), conversation([system], system, "Two")])
    assert headings(text)[0] == "One" and "Two" in headings(text)
    assert text.count("*There are no messages yet.*") == 1
    assert "no messages" in render("md", [conversation([], None)])


LINKED = [
    "See [the {0} manual][1] and [{0}].\n\n[1]: https://{0}.example/\n[{0}]: https://{0}.example/",
    'Here: [{0}][] and [it][a  B].\n\n[{0}]: https://{0}.example/ "a title"\n[A b]:\n  https://{0}.example/',
    "See <https://{0}.example/> and [1].\n\n[1]: <https://{0}.example/>",
    "As [1] says; [1]: and ([1]).\n\n[1]: https://{0}.example/",
    "> quoted [1]\n>\n> [1]: https://{0}.example/\n\n* [a *b* `c`][1]\n* [1][2][3]\n\n[2]: https://{0}.example/\n"
    "[3]: https://{0}.example/\n[3]: https://wrong.example/",
    "| a | b |\n|---|---|\n| [1] | [x](https://{0}.example/) |\n\n### [1]\n\n[1]: https://{0}.example/",
    "No link: \\[1], `[1]` and\n\n```\n[1]: https://wrong.example/\n[1]\n```\n\n[1](https://{0}.example/)\n\n"
    "[1]: https://{0}.example/",
]


@pytest.mark.parametrize("form", LINKED)
def test_links_of_each_answer_lead_where_that_one_says(form: str) -> None:
    answers = [form.format(site) for site in ("one", "two", "three")]
    text = render("md", [chat(*(part for answer in answers for part in ("Where? [1]", answer)))])
    at = [text.index("## SmolLM2"), *(text.index("## SmolLM2", text.index(f"{site}.ex")) for site in ("one", "two"))]
    env: dict[str, object] = {}
    PARSER.parse(text, env)
    for number, (answer, begin) in enumerate(zip(answers, at, strict=True)):
        alone = links(answer, {})
        end = at[number + 1] if number < 2 else len(text)
        assert alone and links(text[begin:end].partition("## You")[0], env)[-len(alone) :] == alone
    assert not links(text[: at[0]].partition("## You")[2], env)  # what is asked defines nothing


def links(text: str, env: dict[str, object]) -> list[tuple[str, str]]:
    """The links of a part of a file: their text and their address."""
    found: list[tuple[str, str]] = []
    address: str | None = None
    for token in tokens_of(text, env):
        if token.type == "link_open":
            address = str(token.attrs["href"])
            found.append(("", address))
        elif token.type == "link_close":
            address = None
        elif address is not None:
            found[-1] = (found[-1][0] + token.content, address)
    return found


def test_footnotes_of_each_answer_are_its_own() -> None:
    text = render("md", [chat(*("And?", "So[^1] and so[^a].\n\n[^1]: one\n[^a]: see [^1]\n\n`[^1]`") * 2)])
    assert text.count("So[^1-1] and so[^a-1].\n\n[^1-1]: one\n[^a-1]: see [^1-1]\n\n`[^1]`") == 1
    assert text.count("So[^1-2] and so[^a-2].\n\n[^1-2]: one\n[^a-2]: see [^1-2]\n\n`[^1]`") == 1


def test_labels_of_one_answer_alone_stay_as_they_are() -> None:
    answer = "See [the manual][1], [^1].\n\n[1]: https://one.example/\n[^1]: a note"
    assert answer in render("md", [chat("Where?", answer, "And [2]?", "Nowhere.")])


def test_conversations_of_one_file_have_their_own_labels() -> None:
    one, two = (chat("Where?", f"[1]\n\n[1]: https://{site}.example/") for site in ("one", "two"))
    text = render("md", [one, two])
    assert [address for _, address in links(text, {})] == ["https://one.example/", "https://two.example/"]
