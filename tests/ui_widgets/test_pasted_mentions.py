"""Which mentions in the composer count: those that were typed, picked or touched, whatever was done around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events

from corpus import corpus
from kvchat.chat.question import Question
from kvchat.documents.mentions import Mention, MentionKind
from kvchat.prompt.drafts import MENTION, PASTE, Draft, Span, decoded, pasted_of
from kvchat.prompt.drafts import given as given_text
from kvchat.ui.widgets.composer.mentions import MentionList
from kvchat.ui.widgets.composer.text import ComposerText
from kvchat.ui.widgets.composer.widget import Composer

Writing = Callable[..., Any]


def signs(draft: Draft | Composer) -> set[int]:
    """Which `@` in a text count, from 0."""
    places = [at for at, character in enumerate(draft.text) if character == "@"]
    return {
        number
        for number, at in enumerate(places)
        if not any(start <= at < end for start, end in pasted_of(draft.spans))
    }


def sent(host: Any) -> Question:
    return host.asked[-1]  # type: ignore[no-any-return]


async def test_typed_signs_count_and_pasted_ones_do_not(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press(*"a @b ")
        composer.query_one(ComposerText).post_message(events.Paste("@c @d "))
        await pilot.press(*"@e")
        await pilot.press("home", *"@f ")
        assert composer.text == "@f a @b @c @d @e"
        await pilot.press("enter")
        assert signs(sent(host).draft) == {0, 1, 4}


async def test_the_clipboard_of_the_app_is_a_paste_too(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        host.copy_to_clipboard("@a")
        await pilot.press("ctrl+v")
        composer.paste(host.heard(Composer.PasteRequested)[0].text)
        await pilot.pause()
        assert composer.text == "@a" and signs(composer) == set()


async def test_a_sign_in_front_of_a_pasted_path_counts(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        await pilot.press("@")
        composer.insert("./notes.txt")
        assert composer.text == "@./notes.txt" and signs(composer) == {0}


async def test_what_is_picked_from_the_list_counts_and_of_a_path_to_attach_nothing_does(writing: Writing) -> None:
    host, composer = writing()
    composer.set_commands([("attach", "Attach")])
    async with host.run_test() as pilot:
        await pilot.press("@", "h")
        composer.mentions.set_completions([Mention("h@b.md", "h@b.md", MentionKind.FILE)], "h")
        await pilot.press("tab")
        assert composer.text == '@"h@b.md" ' and composer.spans == (Span(0, 9, MENTION),)
        composer.replace_text("")
        composer.type("/attach ./h")
        composer.mentions.set_completions([Mention("./h @b.md", "h @b.md", MentionKind.FILE)], "./h")
        await pilot.press("tab")
        assert composer.text == "/attach ./h @b.md" and composer.spans == ()


@pytest.mark.parametrize("key", ["tab", "click"])
async def test_tab_or_a_click_makes_a_mention_of_a_pasted_one(writing: Writing, key: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("a @b\nand @c, or\n@d")
        while composer.query_one(ComposerText).size.height < 3:
            await pilot.pause()
        for _ in range(2):
            if key == "tab":
                composer._area.move_cursor((1, 6))
                await pilot.press("tab")
            else:
                await pilot.click(ComposerText, offset=(5, 1))
            assert signs(composer) == {1} and composer.query_one(ComposerText).has_focus
        await pilot.press("ctrl+z")
        assert signs(composer) == set() and composer.text == "a @b\nand @c, or\n@d"


@pytest.mark.parametrize("text", ["me@b", "`@b`", "    @b", "\\@b", "'@/b'", "@ b"])
async def test_what_is_no_mention_is_not_touched(writing: Writing, text: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert(text)
        await pilot.press("left")
        assert not composer.mentions.touch() and signs(composer) == set()


async def test_for_what_was_pasted_no_list_opens_until_it_is_touched(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("@han")
        await pilot.press("d")
        await pilot.pause(0.12)
        assert host.heard(Composer.Mentioning) == []
        composer.mentions.set_completions([Mention("handbook", "handbook", MentionKind.COLLECTION)], "hand")
        assert not composer.query_one(MentionList).is_open
        await pilot.press("tab")
        for _ in range(100):
            if host.heard(Composer.Mentioning):
                break
            await pilot.pause(0.05)
        composer.mentions.set_completions([Mention("handbook", "handbook", MentionKind.COLLECTION)], "hand")
        assert composer.query_one(MentionList).is_open


async def test_a_draft_keeps_what_counts_and_an_old_one_counts_nothing(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("@a ")
        await pilot.press(*"@b")
        stored = composer.draft
        composer.load("old @c", "old")
        assert signs(composer) == set()
        composer.load(stored, "mine")
        assert composer.text == "@a @b" and signs(composer) == {1}


@corpus(
    "stored",
    [
        'a @b\x1e{"blocks": [], "spans": [["0", null, "mention"]]}',
        'a @b\x1e{"blocks": []}',
        'a @b\x1e{"blocks": [], "spans": [[5, 40, "mention"]]}',
        'a @b\x1e{"blocks": [], "spans": [[0, 3, "paste"], [2, 4, "mention"]]}',
        'a @b\x1e{"blocks": [], "spans": [[0, 3, "paste", 1]]}',
        "a @b\x1e{}",
        "a @b\x1e7",
        "a @b",
    ],
)
def test_a_damaged_draft_counts_nothing(stored: str) -> None:
    found = decoded(stored)
    assert found.text == "a @b" and not signs(found)
    assert decoded(found.encoded()).text == "a @b"


TEXT = st.text(alphabet='@ab./ \n"', max_size=12)
OPERATION = st.one_of(
    st.tuples(st.just("type"), st.text(alphabet="@ab./ ", max_size=4)),
    st.tuples(st.just("paste"), TEXT),
    st.tuples(st.just("edit"), TEXT),
    st.tuples(st.just("restore"), TEXT),
    st.tuples(st.sampled_from(["move", "select"]), st.integers(0, 40)),
    *(st.tuples(st.just(name), st.none()) for name in ("left", "right", "undo", "redo", "draft", "recall", "clear")),
)


def done(composer: Composer, name: str, value: Any) -> None:
    """One thing that can be done with the composer, without a key."""
    area = composer._area
    match name:
        case "type":
            area.type(value)
        case "paste":
            area.paste(value)
        case "edit":
            composer.take_edited(f"{value} {composer.text} {value}")
        case "restore":
            composer.restore(Draft(value, given_text(value)))
        case "move" | "select":
            lines = area.document.lines
            row = value % len(lines)
            area.move_cursor((row, min(value // 3, len(lines[row]))), select=name == "select")
        case "left":
            area.action_delete_left()
        case "right":
            area.action_delete_right()
        case "undo":
            area.undo()
        case "redo":
            area.redo()
        case "draft":
            composer.load(composer.draft, "again")
        case "recall":
            area.recall(1)
        case "clear":
            area.put(Draft())
    places = [place for span in composer.spans for place in (span.start, span.end)]
    assert [0, *places, len(composer.text)] == sorted([0, *places, len(composer.text)]), (name, value, composer.text)


async def test_whatever_is_done_what_was_only_pasted_never_counts(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_history(["see @a", "@b"])

        @settings(deadline=None)
        @given(st.lists(OPERATION, max_size=14))
        def check(operations: list[tuple[str, Any]]) -> None:
            composer.load("", "new")
            for name, value in operations:
                if name in ("type", "edit"):
                    value = value.replace("@", "").replace('"', "")
                done(composer, name, value)
                assert signs(composer) == set(), (name, composer.text)

        check()
        await pilot.pause()


async def test_undoing_and_redoing_bring_back_what_counted(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:

        @settings(deadline=None)
        @given(st.lists(OPERATION, max_size=14), TEXT, st.integers(0, 40))
        def check(operations: list[tuple[str, Any]], text: str, place: int) -> None:
            composer.load("", "new")
            area = composer._area
            for name, value in operations:
                done(composer, name, value)
            before = composer.text, signs(composer)
            for name, value in (("move", place), ("type", text), ("paste", text)):
                area.history.checkpoint()
                done(composer, name, value)
            after, steps = (composer.text, signs(composer)), 0
            while (composer.text, signs(composer)) != before and steps < 99:
                area.undo()
                steps += 1
            assert (composer.text, signs(composer)) == before
            for _ in range(steps):
                area.redo()
            assert (composer.text, signs(composer)) == after
            stored = composer.draft
            composer.load(stored, "again")
            assert (composer.text, signs(composer)) == after

        check()
        await pilot.pause()


async def test_typing_and_pasting_in_any_order_keep_apart_what_came_from_where(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:

        @settings(deadline=None)
        @given(
            st.lists(
                st.tuples(
                    st.sampled_from(["type", "paste", "cut"]),
                    st.text(alphabet="@a\n", max_size=5),
                    st.integers(0, 60),
                    st.integers(0, 6),
                ),
                max_size=20,
            )
        )
        def check(operations: list[tuple[str, str, int, int]]) -> None:
            composer.load("", "new")
            area, model = composer._area, list[tuple[str, bool]]()
            for name, text, start, length in operations:
                start = min(start, len(model))
                end = min(start + length, len(model)) if name == "cut" else start
                area.selection = type(area.selection)(location(model, start), location(model, end))
                if name == "cut":
                    area._delete_via_keyboard(*area.selection)
                    model[start:end] = []
                    continue
                (area.type if name == "type" else area.paste)(text)
                model[start:end] = [(character, name == "type") for character in text]
            assert composer.text == "".join(character for character, _ in model)
            typed = [was_typed for character, was_typed in model if character == "@"]
            assert signs(composer) == {sign for sign, was_typed in enumerate(typed) if was_typed}

        check()
        await pilot.pause()


def location(model: list[tuple[str, bool]], at: int) -> tuple[int, int]:
    before = "".join(character for character, _ in model[:at])
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)


def test_a_message_in_front_of_a_draft_keeps_what_counts_in_both() -> None:
    whole = Draft("@a @b", (Span(0, 3, PASTE),)).before(Draft("@c @d", (Span(0, 2, MENTION), Span(2, 5, PASTE))))
    assert whole.text == "@a @b\n\n@c @d" and signs(whole) == {1, 2}
    assert decoded(whole.encoded()) == whole
