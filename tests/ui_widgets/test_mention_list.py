"""Mentions of documents in the composer: the list of what one can become, and what the keys do with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from corpus import corpus
from kvchat.documents.mentions import Mention, MentionKind
from kvchat.documents.mentions import written as mentioned
from kvchat.ui.widgets.composer import mentions
from kvchat.ui.widgets.composer.mentions import MentionList
from kvchat.ui.widgets.composer.widget import Composer

Writing = Callable[..., Any]
ASKED = 0.12
"""Seconds after which the completions of a mention are asked for."""

HANDBOOK, HAND = (
    Mention("handbook", "handbook", MentionKind.COLLECTION),
    Mention("hand", "hand", MentionKind.COLLECTION),
)
GUIDE = Mention("handbook/guide/", "guide/", MentionKind.FOLDER)
SETUP = Mention("handbook/guide/setup.md", "setup.md", MentionKind.FILE)
BLANKS = Mention("handbook/my notes/", "my notes/", MentionKind.FOLDER)
BLANK = Mention("handbook/my notes/a b.md", "a b.md", MentionKind.FILE)


def names(composer: Composer) -> list[str]:
    found = composer.query_one(MentionList)
    return [one.text for one in found.items] if found.is_open else []


def asked(host: Any) -> list[str]:
    return [message.beginning for message in host.heard(Composer.Mentioning)]


async def offered(composer: Composer, pilot: Any, text: str, found: Sequence[Mention], beginning: str) -> None:
    """`text` was typed, and these completions came for its mention."""
    composer.type(text)
    await pilot.pause(ASKED)
    composer.mentions.set_completions(found, beginning)
    await pilot.pause()


@corpus(
    ("line", "beginning"),
    [
        ("@", ""),
        ("see @hand", "hand"),
        ("(@hand", "hand"),
        ('@"my no', "my no"),
        ("@./src/ma", "./src/ma"),
        ("@~", "~"),
        ("a@hand", None),
        ("see hand", None),
        ("@hand ", None),
        ("http://x@hand", None),
        ('@"my no" ', None),
        ("@@", None),
        ("/@x", None),
        ("", None),
        ("喜欢 @灯", "灯"),
    ],
)
def test_where_a_mention_is_typed(line: str, beginning: str | None) -> None:
    found = mentions.typed_at(line, len(line))
    assert (found.beginning if found else None) == beginning


def test_inside_a_word_nothing_is_completed_and_before_punctuation_it_is() -> None:
    assert mentions.typed_at("@handbook", 5) is None
    assert mentions.typed_at("@hand, or", 5) is not None
    assert mentions.typed_at('@"my notes/"', 11) == (0, 12, "my notes/", "@")


@pytest.mark.parametrize("name", ["handbook/guide/", "my notes/a b.md", "灯台/本.md", "./a<b.md", "a@b.md"])
def test_what_is_written_is_read_as_that_mention(name: str) -> None:
    text, back = mentions.completed(mentions.TypedMention(0, 1, ""), Mention(name, name, MentionKind.FILE))
    assert [one.names[0] for one in mentioned(text)] == [name] and back == 0


async def test_typing_a_mention_asks_once_for_what_it_can_become(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press(*"see @han")
        await pilot.pause(ASKED)
        assert asked(host)[-1] == "han" and len(asked(host)) <= 4
        composer.mentions.set_completions([HANDBOOK], "han")
        await pilot.pause()
        assert names(composer) == ["handbook"]


async def test_without_a_match_no_list_opens_and_enter_sends(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "hello @john", [], "john")
        assert names(composer) == []
        await pilot.press("enter")
        assert [m.text for m in host.asked] == ["hello @john"]


async def test_a_late_answer_for_what_was_typed_before_is_dropped(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.type("@han")
        await pilot.pause(ASKED)
        await pilot.press("x")
        composer.mentions.set_completions([HANDBOOK], "han")
        assert names(composer) == []
        await pilot.press("backspace", *" and")
        composer.mentions.set_completions([HANDBOOK], "han")
        assert names(composer) == [], "the cursor is not at the mention any more"


async def test_the_list_narrows_at_once_while_one_types_on(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@h", [HAND, HANDBOOK, Mention("other", "other", MentionKind.COLLECTION)], "h")
        await pilot.press(*"andb")
        assert names(composer) == ["handbook"]
        await pilot.press("space")
        assert names(composer) == []


async def test_tab_goes_from_a_collection_into_a_folder_to_a_file(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "see @han", [HANDBOOK], "han")
        await pilot.press("tab")
        assert composer.text == "see @handbook/ " and names(composer) == []
        await pilot.press("backspace")
        await pilot.pause(ASKED)
        assert asked(host)[-1] == "handbook/"
        composer.mentions.set_completions([GUIDE, BLANKS], "handbook/")
        await pilot.press("tab")
        assert composer.text == "see @handbook/guide/"
        composer.mentions.set_completions([SETUP], "handbook/guide/")
        await pilot.press("tab")
        assert composer.text == "see @handbook/guide/setup.md " and names(composer) == []
        assert composer.query_one("ComposerText").has_focus


async def test_names_with_blanks_are_quoted_and_a_folder_goes_on_inside_the_quotes(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@handbook/", [BLANKS], "handbook/")
        await pilot.press("tab")
        assert composer.text == '@"handbook/my notes/"'
        await pilot.pause(ASKED)
        assert asked(host)[-1] == "handbook/my notes/"
        composer.mentions.set_completions([BLANK], "handbook/my notes/")
        await pilot.press("tab")
        assert composer.text == '@"handbook/my notes/a b.md" '


async def test_enter_completes_what_is_not_complete_and_sends_what_is(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@han", [HANDBOOK], "han")
        await pilot.press("enter")
        assert composer.text == "@handbook/ " and not host.asked
        await pilot.press("backspace")
        await pilot.pause(ASKED)
        composer.mentions.set_completions([GUIDE], "handbook/")
        await pilot.pause()
        assert names(composer) == ["handbook/guide/"]
        await pilot.press("enter")
        assert [m.text for m in host.asked] == ["@handbook/"]
        assert names(composer) == []


async def test_enter_takes_what_the_arrows_chose_and_does_not_send(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@handbook/", [GUIDE, SETUP], "handbook/")
        await pilot.press("down", "down")
        composer.mentions.set_completions([GUIDE, SETUP], "handbook/")
        await pilot.press("enter")
        assert composer.text == "@handbook/guide/setup.md " and not host.asked
        await pilot.press("enter")
        assert len(host.asked) == 1


async def test_escape_closes_the_list_for_this_mention_only(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@han", [HANDBOOK], "han")
        await pilot.press("escape")
        assert names(composer) == [] and composer.text == "@han"
        await pilot.press("d")
        await pilot.pause(ASKED)
        composer.mentions.set_completions([HANDBOOK], "hand")
        assert names(composer) == []
        await offered(composer, pilot, " @han", [HANDBOOK], "han")
        assert names(composer) == ["handbook"]


async def test_a_click_takes_a_mention_and_the_composer_keeps_the_focus(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@handbook/", [GUIDE, SETUP], "handbook/")
        await pilot.click(MentionList, offset=(3, 1))
        await pilot.pause()
        assert composer.text == "@handbook/guide/setup.md "
        assert composer.query_one("ComposerText").has_focus


async def test_the_list_shows_eight_rows_of_many_above_the_rule_and_moves_nothing(writing: Writing) -> None:
    host, composer = writing()
    composer.styles.border_top = ("solid", "gray")
    async with host.run_test(size=(60, 24)) as pilot:
        composer.type("@handbook/")
        await pilot.pause(ASKED)
        before = composer.region
        many = [Mention(f"handbook/灯台の本{n}" + "x" * 90, "", MentionKind.FILE) for n in range(50)]
        composer.mentions.set_completions([*many, Mention('handbook/"', "", MentionKind.FILE)], "handbook/")
        await pilot.pause()
        found = composer.query_one(MentionList)
        assert composer.region == before and found.region.bottom == before.y and found.size.height == 8
        assert len(found.items) == 50, "a name that cannot be written is not offered"


async def test_a_file_that_is_written_already_opens_no_list(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await offered(composer, pilot, "@handbook/guide/setup.md", [SETUP], "handbook/guide/setup.md")
        assert names(composer) == []


async def test_in_a_command_nothing_is_mentioned_but_a_file_to_attach_is_completed(writing: Writing) -> None:
    host, composer = writing()
    composer.set_commands([("attach", "Attach"), ("find", "Find")])
    async with host.run_test() as pilot:
        composer.type("/find @han")
        await pilot.pause(ASKED)
        assert asked(host) == []
        composer.replace_text("")
        await offered(composer, pilot, "/attach my", [Mention("./my notes.md", "", MentionKind.FILE)], "./my")
        await pilot.press("tab", "enter")
        assert [(m.name, m.argument) for m in host.heard(Composer.SlashCommand)] == [("attach", "my notes.md")]
