"""Pages: what people do to them is understood, and what kvchat does to them touches one entry and no other byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace
from page_samples import METRIC, PAGE, entries, known, pages, texts, with_entry, without_entry

from corpus import corpus
from kvchat.memory.entry import BY_HAND, PROFILE, Entry, Kind
from kvchat.memory.pages.comment import mark
from kvchat.memory.pages.markdown import decoded, encoded
from kvchat.memory.pages.page import MemoryPage, PageProblem

many = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LINE = (
    "- Prefers metric units. <!-- m1a2b3c4d on:2026-11-21 src:7f3a91#1c,1d by:qwen3-8b kind:preference c:0.9 "
    "h:35ee60 -->"
)


def said(page: MemoryPage) -> list[str]:
    return [line.entry.text for line in page.entries]


def parsed(text: str) -> MemoryPage:
    try:
        return MemoryPage.parse(PAGE, text)
    except PageProblem:
        assume(False)
        raise


# What a page says


def test_a_line_says_which_entry_it_is_and_where_it_comes_from() -> None:
    (line,) = MemoryPage.parse(PAGE, f"# Lab\n\n{LINE}\n").entries

    assert line.entry == replace(METRIC, created=1_795_219_200.0)
    assert (line.at, line.changed) == (3, False)


def test_a_line_with_another_text_than_kvchat_wrote_is_the_persons() -> None:
    (line,) = MemoryPage.parse(PAGE, LINE.replace("metric", "imperial")).entries

    assert (line.entry.id, line.entry.text) == (METRIC.id, "Prefers imperial units.")
    assert line.changed and line.entry.edited


def test_white_space_and_a_checked_box_are_no_edit() -> None:
    for text in (
        f"*   {LINE[2:]}   ",
        f"\t{LINE}",
        f"- [x] {LINE[2:]}",
        f"3) {LINE[2:]}\r\n",
        LINE.replace(" <!--", "<!--"),
    ):
        (line,) = MemoryPage.parse(PAGE, text).entries
        assert line.entry.text == METRIC.text and not line.changed, text


def test_a_line_by_hand_is_an_entry_with_an_id_that_stays() -> None:
    (first,) = MemoryPage.parse(PAGE, "- Has a cat.").entries
    again = MemoryPage.parse(PAGE, "# Moved down\n\n- Plays chess.\n* [ ] Has a cat.  \n").entries[1]

    assert first.entry.by == BY_HAND and not first.changed
    assert re.fullmatch("h[0-9a-f]{8}", first.entry.id)
    assert again.entry.id == first.entry.id
    assert MemoryPage.parse(PROFILE, "- Has a cat.").entries[0].entry.id != first.entry.id


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark_at_start", ["", "\ufeff"])
def test_every_line_end_and_byte_order_mark_is_read(end: str, mark_at_start: str) -> None:
    text = mark_at_start + end.join(["- one", "\tmore of one", "", "  and more", "2. two", "- [ ] three", "+ four"])

    assert said(MemoryPage.parse(PAGE, text)) == ["one\nmore of one\nand more", "two", "three", "four"]


def test_what_is_below_a_bullet_belongs_to_it_unless_it_is_a_memory_itself() -> None:
    page = MemoryPage.parse(
        PAGE,
        "- Kids:\n\t- Anna, 7\n\t\t- rides\n\t- Ben, 4 <!-- m1a2b3c4d on:2026-11-21 by:x -->\n"
        "\t\tand chess\n\t- Cleo\ngoes on\n- Cat\n\nProse.\n  no part of it\n",
    )

    assert said(page) == ["Kids:\n- Anna, 7\n- rides\n- Cleo\ngoes on", "Ben, 4\nand chess", "Cat"]


def test_code_quotes_rules_headings_and_hidden_comments_hold_no_entries() -> None:
    text = (
        "# Title\n- real\n\n```\n- code\n```\n~~~ md\n- code\n```\n~~~~\n> - quoted\n- - -\n***\n-no\n"
        "<!-- off\n- hidden\n-->\n| - a | b |\n- [x] also real\n"
    )

    assert said(MemoryPage.parse(PAGE, text)) == ["real", "also real"]


def test_an_emptied_line_is_no_entry() -> None:
    assert said(MemoryPage.parse(PAGE, f"-\n- \n- [ ] \n- {LINE.partition('<')[1]}{LINE.partition('<')[2]}\n")) == []


def test_a_comment_of_the_persons_own_is_part_of_the_text() -> None:
    assert said(MemoryPage.parse(PAGE, "- tea <!-- management, harvested -->")) == [
        "tea <!-- management, harvested -->"
    ]


@corpus(
    "broken",
    [
        "- Prefers metric units. <!-- m1a2b3c4d -->",
        "- Prefers metric units. <!--m1a2b3c4d-->",
        "- Prefers metric units. <!-- m1a2b3c4d on:2026-1",
        "- Prefers metric units. <!-- m1a2b3c4d on:never src: by:%FF kind:x c:none h: --",
        "- Prefers metric units. <!-- m1a2b3c4d my remark, kind:preference -->",
        "- Prefers metric units. <!-- m1a2b3c4d on:2026-11-21\n  by:qwen3-8b kind:preference\n  h:000000 -->",
        "- Prefers metric units.\n  <!-- m1a2b3c4d on:2026-11-21 -->",
        "- <!-- m1a2b3c4d on:2026-11-21 --> Prefers metric units.",
        "- Prefers <!-- m1a2b3c4d on:2026-11-21 --> metric units.",
    ],
)
def test_a_damaged_or_moved_comment_still_names_its_entry(broken: str) -> None:
    page = MemoryPage.parse(PAGE, f"- before\n{broken}\n- after\n")

    assert METRIC.id in known(page)
    assert [text.replace("\n", " ") for text in said(page)] == ["before", "Prefers metric units.", "after"]
    assert said(without_entry(page, METRIC.id)) == ["before", "after"]
    assert known(with_entry(page, METRIC))[METRIC.id] == METRIC


def test_the_same_line_twice_is_one_entry_and_goes_as_one() -> None:
    page = MemoryPage.parse(PAGE, f"{LINE}\n## Again\n{LINE}\n- by hand\n- by hand\n")

    assert said(page) == ["Prefers metric units.", "by hand"]
    assert without_entry(page, METRIC.id).text == "## Again\n- by hand\n- by hand\n"
    assert with_entry(page, replace(METRIC, text="Prefers tea.")).text.count("- Prefers tea. <!-- m1a2b3c4d ") == 2


def test_a_copied_line_with_another_text_is_an_entry_by_hand() -> None:
    copied = LINE.replace("metric", "imperial")
    page = MemoryPage.parse(PAGE, f"{copied}\n{LINE}\n")

    assert known(page)[METRIC.id].text == "Prefers metric units."
    other = page.entries[0].entry
    assert (other.by, other.text, other.nodes) == (BY_HAND, "Prefers imperial units.", ())
    assert known(without_entry(page, METRIC.id)) == {other.id: other}, "the copy must not turn into what was deleted"


def test_a_page_that_is_begun_is_called_by_its_files_name() -> None:
    assert with_entry(MemoryPage.parse(PAGE, ""), METRIC).text.startswith("# Home lab\n")
    assert with_entry(MemoryPage.parse(PROFILE, ""), METRIC).text.startswith("# About you\n")


# Front matter and what is broken


def test_front_matter_is_kept_and_says_the_kind_of_lines_by_hand() -> None:
    top = '---\nkvchat: 1\nkind: "skill"\naliases:\n  - lab\n- odd\ntags: [a,\n  b]\ncssclass: x  # remark\n---\n'
    page = MemoryPage.parse(PAGE, f"{top}- Knows Rust.\n")

    assert [line.entry.kind for line in page.entries] == [Kind.SKILL]
    assert with_entry(page, METRIC).text.startswith(f"{top}- Knows Rust.\n- Prefers")
    assert MemoryPage.parse(PAGE, "---\nkind: nonsense\n---\n- x").entries[0].entry.kind is Kind.FACT


@corpus(
    ("text", "line"),
    [
        ('---\nkind: "topic\n---\n- tea\n', 2),
        ("---\ntags: [a, b\nkind: x\n---\n- tea\n", 2),
        ("---\nkind topic\n---\n- tea\n", 2),
        ("---\nkind: x\n- tea\n", 1),
        (f"---\nkind: x\n{LINE}\n\n---\n", 3),
        ("---\nkvchat: 2\n---\n- tea\n", 1),
        ("- tea\n\n```\n- coffee\n", 3),
        ("- tea\n  ```\n- coffee\n", 2),
        ("- tea\n<!-- off\n- coffee\n", 2),
        ("- tea\n<<<<<<< HEAD\n- coffee\n=======\n- milk\n>>>>>>> theirs\n", 2),
    ],
)
def test_a_broken_page_is_reported_with_its_line(text: str, line: int) -> None:
    with pytest.raises(PageProblem) as caught:
        MemoryPage.parse(PAGE, text)

    assert caught.value.line == line
    assert str(caught.value).endswith(".")


# What kvchat writes


def test_a_new_page_says_what_it_is_and_holds_one_bullet_per_memory() -> None:
    page = with_entry(
        with_entry(MemoryPage.parse(PAGE, ""), METRIC), replace(METRIC, id="m22222222", text="Has a cat.")
    )

    title, empty, sentence, gap, first, second, end = page.text.split("\n")
    assert (title, empty, gap, end) == ("# Home lab", "", "", "")
    assert "as you like" in sentence
    assert first.startswith("- Prefers metric units. <!-- m1a2b3c4d on:2026-11-21T")
    assert second.startswith("- Has a cat. <!-- m22222222 ")


def test_a_new_entry_goes_below_those_of_kvchat_in_the_pages_own_style() -> None:
    text = f"# Mine\r\n\r\n* {LINE[2:]}\r\n  more\r\n\r\n## Notes\r\n\r\n- by hand"
    page = with_entry(MemoryPage.parse(PAGE, text), replace(METRIC, id="m22222222", text="Has\na cat."))

    assert "\r\n  more\r\n* Has <!-- m22222222 " in page.text
    assert "-->\r\n  a cat.\r\n\r\n## Notes\r\n\r\n- by hand" in page.text
    assert page.text.endswith("- by hand")
    assert page.text.count("\n") == page.text.count("\r\n")


def test_a_page_without_a_newline_at_its_end_gets_one_before_the_entry() -> None:
    assert with_entry(MemoryPage.parse(PAGE, "- tea"), METRIC).text.startswith("- tea\n- Prefers")
    assert with_entry(MemoryPage.parse(PAGE, "Prose."), METRIC).text.startswith("Prose.\n\n- Prefers")


def test_an_edit_keeps_bullet_box_and_indentation_and_an_equal_text_keeps_its_bytes() -> None:
    text = "   3) [x]  Has a  cat  \n\n      and two\n       *dogs*\t\n# Next\n"
    page = MemoryPage.parse(PAGE, text)
    entry = page.entries[0].entry

    kept = with_entry(page, replace(entry, kind=Kind.PERSON)).text
    assert re.sub(" <!--.*-->", "  ", kept) == text
    edited = with_entry(page, replace(entry, text="Has a dog")).text
    assert re.fullmatch(r"   3\) \[x\] Has a dog <!-- h[0-9a-f]{8} .* -->\n# Next\n", edited)
    assert said(MemoryPage.parse(PAGE, edited)) == ["Has a dog"]


def test_taking_out_a_line_takes_what_is_its_own_and_leaves_what_is_another_memory() -> None:
    page = MemoryPage.parse(PAGE, f"# T\n- Kids:\n  - Anna\n\n  - {LINE[2:]}\n    more\n  - Cleo\n\n- Cat\n")

    assert without_entry(page, page.entries[0].entry.id).text == f"# T\n\n  - {LINE[2:]}\n    more\n\n- Cat\n"


def test_an_entry_that_is_there_is_not_added_again_and_one_that_is_gone_not_put_back() -> None:
    page = MemoryPage.parse(PAGE, f"{LINE.replace('metric', 'imperial')}\n")

    assert without_entry(page, "m99999999") is page


def test_the_hash_depends_on_the_text_alone() -> None:
    assert mark("tea") == mark("tea") != mark("Tea")
    assert f"h:{mark(METRIC.text)} -->" in LINE


def test_an_id_that_would_break_the_comment_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be the id"):
        with_entry(MemoryPage.parse(PAGE, ""), replace(METRIC, id="m1 -->"))


# Properties


@many
@given(texts)
def test_a_text_survives_being_written_whatever_is_in_it(text: str) -> None:
    lines = encoded(text)

    assert "\n".join(map(decoded, lines)) == text
    assert all(line.strip(" \t") == line != "" for line in lines)
    assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]", "".join(lines))


@many
@given(texts)
def test_a_text_is_one_paragraph_of_one_bullet_in_any_markdown_reader(text: str) -> None:
    page = with_entry(MemoryPage.parse(PAGE, "- before\n"), replace(METRIC, text=text))
    tokens = MarkdownIt("commonmark").enable("table").parse(page.text.removeprefix("- before\n"))

    assert [token.type for token in tokens] == [
        "bullet_list_open",
        "list_item_open",
        "paragraph_open",
        "inline",
        "paragraph_close",
        "list_item_close",
        "bullet_list_close",
    ]
    inside = tokens[3].children or []
    assert not {token.type for token in inside} & {"link_open", "image"}
    assert [token.content[:14] for token in inside if token.type == "html_inline"] == ["<!-- m1a2b3c4d"]


@many
@given(entries)
def test_an_entry_reads_as_it_was_written(entry: Entry) -> None:
    assert known(with_entry(MemoryPage.parse(PAGE, ""), entry)) == {entry.id: entry}


@many
@given(pages(), entries)
def test_adding_an_entry_changes_nothing_else(text: str, entry: Entry) -> None:
    page = parsed(text)
    assume(entry.id not in known(page) and text.strip("\ufeff \t\r\n"))
    after = with_entry(page, entry)

    assert known(after) == {**known(page), entry.id: entry}
    start = next((at for at, char in enumerate(text) if char != after.text[at]), len(text))
    rest = text[start:]
    assert after.text.endswith(rest), "the old text is there around one insertion"
    assert known(without_entry(after, entry.id)) == known(page)


def test_a_page_with_several_kinds_of_line_ends_keeps_apart_what_was_apart() -> None:
    page = MemoryPage.parse(PAGE, "- milk\n- coffee\r- tea\n  -\n-->\n")
    after = without_entry(page, next(line.entry.id for line in page.entries if line.entry.text == "tea\n-"))
    assert [line.entry.text for line in after.entries] == ["milk", "coffee"]


@many
@given(pages(), st.data())
def test_taking_out_an_entry_changes_nothing_else(text: str, data: st.DataObject) -> None:
    page = parsed(text)
    assume(page.entries)
    line = data.draw(st.sampled_from(page.entries))
    after = without_entry(page, line.entry.id)

    left = known(page)
    del left[line.entry.id]
    assert known(after) == left
    lines, before = after.text.lstrip("\ufeff").splitlines(), text.lstrip("\ufeff").splitlines()
    assert is_part([line for line in before if line.startswith(("#", "```", "~~~", ">"))], lines)
    if not any("<!-- h" in one for one in lines):
        assert is_part(list(filter(str.strip, lines)), before), "every line that is left stood there before"


@many
@given(pages(), entries, st.booleans(), st.data())
def test_changing_an_entry_changes_nothing_else(text: str, entry: Entry, same_text: bool, data: st.DataObject) -> None:
    page = parsed(text)
    assume(page.entries)
    old = data.draw(st.sampled_from(page.entries)).entry
    entry = replace(entry, id=old.id, text=old.text if same_text else entry.text)
    after = with_entry(page, entry)

    assert known(after) == {**known(page), old.id: entry}
    assert list(known(after)) == list(known(page))
    assert with_entry(after, entry).text == after.text


def is_part(few: list[str], many: list[str]) -> bool:
    """Whether `few` stand in `many`, in their order."""
    rest = iter(many)
    return all(any(one == other for other in rest) for one in few)
