"""The line over the composer: what it shows, how it is changed, and that nothing moves for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from textual.geometry import Region

from kvchat.chat.question import Question
from kvchat.chat.question.retrieval import RetrievalResult
from kvchat.documents.collection import Passage
from kvchat.memory.entry import Entry, Kind
from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.drafts import Draft, given
from kvchat.ui.widgets.composer.context_line import ContextLine
from kvchat.ui.widgets.composer.widget import Composer
from still import still, until

Writing = Callable[..., Any]


def entry(id: str, text: str) -> Entry:
    return Entry(id, Kind.FACT, text, "topics/things.md", 1.7e9)


UNITS, KILN, DOG = (
    entry("m1", "Prefers metric units."),
    entry("m2", "The kiln trips the breaker."),
    entry("m3", "Has a dog named Fenna."),
)


def passage(name: str, where: str = "12-40", text: str = "lamp " * 40) -> Passage:
    return Passage(f"docs/handbook/guide/{name}#{where}", "Install > Linux", text, 1.0, 2)


SETUP, LAMP = passage("setup.md"), passage("lamp.md", "3-9", "oil " * 20)
NOTES = ContextBlock(FILE, "handbook/notes.txt", "words " * 30, "/home/notes.txt#1")


def drawn(host: Any, composer: Composer) -> str:
    """The row on which the line of memories stands, as it is on the screen."""
    rows = [strip.text for strip in host.screen._compositor.render_strips()]
    return rows[composer.region.y]


@pytest.fixture
def memories(writing: Writing) -> Writing:
    """An app around a composer with a rule above it, as in the app."""

    def make(**options: object) -> tuple[Any, Composer]:
        host, composer = writing(**options)
        composer.styles.border_top = ("solid", "gray")
        return host, composer

    return make


def leave_out(composer: Composer, id: str) -> None:
    """Leave out one item, or take it along again, as the dialog does."""
    composer.context.items.toggle(next(item for item in composer.context.items.all if item.id == id))
    composer.context.decided()


def leave_all_out(composer: Composer) -> None:
    composer.context.items.toggle_all()
    composer.context.decided()


async def rested(host: Any, composer: Composer, pilot: Any, text: str) -> None:
    """`text` was typed and the typing rests."""
    composer.type(text)
    await rest(composer)


async def rest(composer: Composer) -> None:
    """The typing rests, without waiting for it."""
    await still(composer.app)
    if composer._timer is not None:
        composer.rest()
    await still(composer.app)


async def test_a_pause_in_the_typing_asks_what_belongs_and_a_key_does_not(
    memories: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        composer.load("", "c1")
        monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 3600.0)
        await pilot.press(*"my kil")
        assert host.heard(Composer.Rested) == []
        monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 0.05)
        await pilot.press("n")
        await until(host, lambda: host.heard(Composer.Rested))
        assert [(m.text, m.key) for m in host.heard(Composer.Rested)] == [("my kiln", "c1")]
        monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 3600.0)
        await pilot.press("s", "backspace")
        await rest(composer)
        assert len(host.heard(Composer.Rested)) == 1, "the text is the same"


async def test_a_command_and_white_space_ask_nothing(memories: Writing) -> None:
    host, composer = memories()
    composer.set_commands([("new", "New")])
    async with host.run_test() as pilot:
        for text in ("/new about my kiln", "   \n "):
            await rested(host, composer, pilot, text)
            composer.replace_text("")
        assert host.heard(Composer.Rested) == []
        await rested(host, composer, pilot, "//kiln is what I type")
        assert [m.text for m in host.heard(Composer.Rested)] == ["/kiln is what I type"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 12)])
async def test_the_line_comes_and_goes_without_moving_anything(memories: Writing, size: tuple[int, int]) -> None:
    host, composer = memories()
    async with host.run_test(size=size) as pilot:
        await rested(host, composer, pilot, "my kiln")

        def places() -> list[Region]:
            return [widget.region for widget in host.query("*") if not isinstance(widget, ContextLine)]

        before = places()
        composer.context.set_memories([UNITS, KILN])
        await pilot.pause()
        assert drawn(host, composer).strip(" ─").startswith("◆ 2 memories")
        assert places() == before
        composer.context.set_memories([])
        await pilot.pause()
        assert set(drawn(host, composer).strip()) == {"─"}
        assert places() == before


async def test_the_line_counts_the_memories_and_names_the_key(memories: Writing) -> None:
    host, composer = memories()
    composer.set_keys("^B")
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([UNITS, KILN], "my kiln")
        await pilot.pause()
        left, right = drawn(host, composer).strip("─ ").split(" ─", 1)
        assert left == "◆ 2 memories"
        assert right.strip("─ ") == "^B"


async def test_memories_found_for_another_text_are_not_shown(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([DOG], "my dog")
        assert composer.context.memories == ()
        composer.context.set_memories([KILN], "my kiln")
        assert composer.context.memories == (KILN,)


async def test_what_is_shown_stays_while_one_types_on(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([KILN])
        await pilot.press(*" and the")
        assert "◆ 1 memory ─" in drawn(host, composer)


async def test_one_that_is_left_out_stays_out_until_the_message_is_sent(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([UNITS, KILN])
        await pilot.pause()
        leave_out(composer, "m1")
        await pilot.pause()
        assert composer.context.memories == (KILN,)
        assert "1 of 2 memories" in drawn(host, composer)
        await rested(host, composer, pilot, " units")
        composer.context.set_memories([DOG, UNITS])
        assert composer.context.memories == (DOG,)
        await pilot.press("enter")
        sent = host.asked[0]
        assert (sent.without, sent.recalls) == (frozenset({"m1"}), True)
        assert composer.context.memories == ()
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([UNITS])
        assert composer.context.memories == (UNITS,)


async def test_all_that_is_left_out_is_also_what_is_found_later(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([UNITS, KILN])
        leave_all_out(composer)
        await pilot.pause()
        assert "◇ no memories" in drawn(host, composer)
        await pilot.press("space", "x")
        await rest(composer)
        composer.context.set_memories([DOG])
        assert composer.context.memories == ()
        await pilot.press("enter")
        assert host.asked[0].recalls is False


async def test_tab_never_stops_at_the_line(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([KILN])
        await pilot.pause()
        assert not any(isinstance(widget, ContextLine) for widget in host.screen.focus_chain)


async def test_what_was_left_out_stays_so_when_a_message_could_not_be_sent(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        composer.restore(Draft("my kiln", given("my kiln")), frozenset({"m2"}))
        await rest(composer)
        composer.context.set_memories([UNITS, KILN])
        assert composer.context.memories == (UNITS,)
        composer.restore(Draft("my kiln", given("my kiln")), memories=False)
        await rest(composer)
        composer.context.set_memories([UNITS, KILN])
        assert composer.context.memories == ()
        await pilot.press("enter")
        assert host.asked[0].recalls is False


async def test_another_conversation_begins_without_memories(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([KILN])
        leave_all_out(composer)
        composer.load("my dog", "other")
        assert composer.context.memories == ()
        await rest(composer)
        assert host.heard(Composer.Rested)[-1].text == "my dog"
        composer.context.set_memories([DOG])
        assert composer.context.memories == (DOG,)


async def test_hostile_and_wide_memories_fit_every_width(memories: Writing) -> None:
    host, composer = memories()
    composer.set_keys("Ctrl+B")
    texts = ["\x1b[2J\u202eevil\n" * 9, "喜欢喝乌龙茶，不喜欢绿茶。" * 4, "", "👨\u200d👩\u200d👧" * 20, "x" * 500]
    async with host.run_test(size=(80, 24)) as pilot:
        await rested(host, composer, pilot, "my kiln")
        composer.context.set_memories([entry(f"m{n}", text) for n, text in enumerate(texts)])
        line = composer.query_one(ContextLine)
        for width in (1, 5, 12, 20, 33, 57, 78, 118, 200):
            text = "".join(run.text for run in line._runs(width))
            assert cell_len(text) == width, (width, text)
            assert "\x1b" not in text and "\u202e" not in text and "\n" not in text


# -- passages and files


async def found(host: Any, composer: Composer, pilot: Any, text: str = "the lamp", **more: Any) -> None:
    """`text` was written, and two passages were found for it."""
    await rested(host, composer, pilot, text)
    composer.context.set_passages([SETUP, LAMP], composer.text, composer.spans, **more)
    await pilot.pause()


def sent(host: Any) -> Question:
    return host.asked[-1]  # type: ignore[no-any-return]


async def test_passages_are_counted_with_their_tokens(memories: Writing) -> None:
    host, composer = memories()
    composer.context.count = lambda text: 100
    async with host.run_test(size=(120, 30)) as pilot:
        await found(host, composer, pilot)
        composer.context.set_memories([KILN])
        await pilot.pause()
        line = drawn(host, composer).strip(" ─")
        assert line == "◆ 1 memory · ▤ 2 passages ~200 tok"


async def test_what_goes_is_what_is_shown_for_exactly_this_text(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await found(host, composer, pilot)
        await pilot.press("enter")
        assert sent(host).passages == (SETUP.block, LAMP.block) and composer.context.passages == ()
        await found(host, composer, pilot)
        await pilot.press("s", "enter")
        assert sent(host).text == "the lamps" and sent(host).passages is None, "they were found for another text"
        await rested(host, composer, pilot, "the lamp")
        composer.context.set_passages([], "the lamp", composer.spans)
        await pilot.press("enter")
        assert sent(host).passages == ()


async def test_a_passage_that_is_left_out_does_not_go_and_stays_out(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await found(host, composer, pilot)
        leave_out(composer, SETUP.ref)
        await pilot.pause()
        assert composer.context.passages == (LAMP,) and "1 of 2 passages" in drawn(host, composer)
        await found(host, composer, pilot, "s")
        assert composer.context.passages == (LAMP,)
        await pilot.press("x", "enter")
        assert sent(host).passages is None
        question = host.heard(Composer.Submitted)[-1].question
        again = RetrievalResult((SETUP, LAMP))
        assert again.picked(question) == (LAMP.block,), "also where they are looked for once more"


async def test_offered_passages_go_only_when_they_are_taken_by_one_key(memories: Writing) -> None:
    host, composer = memories()
    composer.set_keys("^B")
    async with host.run_test(size=(100, 30)) as pilot:
        await found(host, composer, pilot, taken=False)
        assert "▤ 2 passages found ─" in drawn(host, composer)
        assert "^B takes them" in drawn(host, composer) and composer.context.passages == ()
        await pilot.press("enter")
        assert sent(host).passages == ()
        await found(host, composer, pilot, taken=False)
        composer.context.items.take_all()
        composer.context.decided()
        await pilot.pause()
        assert "▤ 2 passages ~" in drawn(host, composer) and composer.context.passages == (SETUP, LAMP)
        await pilot.press("enter")
        assert sent(host).passages == (SETUP.block, LAMP.block), "the keys belong to the text all the time"


async def test_one_offered_passage_is_taken_and_what_is_found_later_is_only_offered(
    memories: Writing,
) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await found(host, composer, pilot, taken=False)
        leave_out(composer, LAMP.ref)  # of what is offered: take it
        assert composer.context.passages == (LAMP,)
        await rested(host, composer, pilot, " oil")
        composer.context.set_passages([passage("oil.md"), LAMP], composer.text, composer.spans, taken=False)
        assert composer.context.passages == (LAMP,)
        await pilot.press("x", "enter")
        again = RetrievalResult((SETUP, LAMP), taken=False)
        assert again.picked(host.heard(Composer.Submitted)[-1].question) == (LAMP.block,)


async def test_memories_and_passages_that_are_left_out_stay_out_until_the_message_is_sent(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await found(host, composer, pilot)
        composer.context.set_memories([KILN])
        leave_all_out(composer)
        await pilot.pause()
        assert "◇ no memories · ▢ no passages" in drawn(host, composer)
        await pilot.press("x", "enter")
        assert sent(host).passages == () and sent(host).recalls is False
        await found(host, composer, pilot)
        assert composer.context.passages == (SETUP, LAMP)


async def test_a_mentioned_file_is_shown_and_cannot_be_left_out_while_it_is_mentioned(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "see @handbook/notes.txt")
        composer.context.set_passages([], composer.text, composer.spans, files=[NOTES])
        await pilot.pause()
        assert "▥ 1 file ~" in drawn(host, composer)
        leave_out(composer, NOTES.ref)
        leave_all_out(composer)
        await pilot.pause()
        assert "▥ 1 file ~" in drawn(host, composer)


@pytest.mark.parametrize(
    ("outside", "problems", "shown"),
    [
        ("/mnt/notes.txt", [], "! /mnt/notes.txt needs your y"),
        ("/mnt/notes.txt", ["@x is gone"], "! /mnt/notes.txt needs your y (+1)"),
        ("", ["@x is gone"], "! @x is gone"),
        ("", ["@x is gone", "@y is gone"], "! @x is gone (+1)"),
        ("/mnt/" + "long/" * 20 + "notes.txt", [], "/notes.txt needs your y"),
    ],
)
async def test_the_first_problem_is_said_behind_the_counts_and_the_others_are_counted(
    memories: Writing, outside: str, problems: list[str], shown: str
) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "see @handbook/notes.txt")
        given = {NOTES.ref: outside} if outside else {}
        composer.context.set_passages(
            [], composer.text, composer.spans, files=[NOTES], outside=given, problems=problems
        )
        await pilot.pause()
        line = drawn(host, composer).strip(" ─")
        assert line.startswith("▥ ") and line.endswith(shown)


async def test_what_is_wrong_with_a_mention_is_said_on_the_line(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "see @./gone")
        composer.context.set_passages(
            [], composer.text, composer.spans, problems=["@./gone is a folder; \x1b[2J\nindex it."]
        )
        await pilot.pause()
        assert drawn(host, composer).strip(" ─") == "! @./gone is a folder; ␛[2J index it."


async def test_a_long_search_is_told_at_the_end_of_the_line_until_something_is_found(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "the lamp")
        before = [widget.region for widget in host.query("*") if not isinstance(widget, ContextLine)]
        composer.context.set_searching("another text")
        await pilot.pause()
        assert "searching" not in drawn(host, composer)
        composer.context.set_searching("the lamp")
        await pilot.pause()
        assert drawn(host, composer).endswith("─ searching… ──")
        assert [w.region for w in host.query("*") if not isinstance(w, ContextLine)] == before
        composer.context.set_passages([], "the lamp", composer.spans)
        await pilot.pause()
        assert set(drawn(host, composer).strip()) == {"─"}


async def test_what_was_decided_holds_when_a_message_could_not_be_sent(memories: Writing) -> None:
    host, composer = memories()
    async with host.run_test() as pilot:
        await found(host, composer, pilot)
        leave_out(composer, SETUP.ref)
        await pilot.press("enter")
        one, taken = sent(host), host.heard(Composer.Submitted)[-1].question.taken
        composer.restore(one.draft, one.without, one.recalls, taken)
        await rest(composer)
        composer.context.set_passages([SETUP, LAMP], composer.text, composer.spans)
        assert composer.context.passages == (LAMP,)


async def test_hostile_and_wide_names_fit_every_width_beside_memories(memories: Writing) -> None:
    host, composer = memories()
    composer.set_keys("Shift+F5")
    names = [
        "\x1b[2J\u202eevil\n.md",
        "灯台の本がここにあるとても長い名前.md",
        "][",
        "👨\u200d👩\u200d👧" * 9,
        "x" * 300,
    ]
    async with host.run_test(size=(80, 24)) as pilot:
        await rested(host, composer, pilot, "the lamp")
        line = composer.query_one(ContextLine)
        for taken in (True, False):
            composer.context.set_passages(
                [passage(name, f"{n}") for n, name in enumerate(names)],
                "the lamp",
                composer.spans,
                taken=taken,
                files=[NOTES],
                problems=["灯台\x07 is not there."] * (2 * taken),
                pasted=names,
                outside={} if taken else {NOTES.ref: f"/灯台/{names[0]}/notes.txt"},
            )
            composer.context.set_memories([UNITS, KILN])
            for width in (0, 1, 5, 12, 20, 33, 57, 78, 118, 200):
                text = "".join(run.text for run in line._runs(width))
                assert cell_len(text) == width, (width, text)
                assert "\x1b" not in text and "\u202e" not in text and "\n" not in text


async def test_a_file_from_outside_waits_for_a_y_and_only_its_own_path_is_agreed_to(memories: Writing) -> None:
    host, composer = memories()
    composer.set_keys("Shift+F5")
    async with host.run_test(size=(100, 30)) as pilot:
        await rested(host, composer, pilot, "see @~/notes.txt")
        composer.context.set_passages(
            [], composer.text, composer.spans, files=[NOTES], outside={NOTES.ref: "/mnt/notes.txt"}
        )
        await pilot.pause()
        assert "▥ 0 of 1 file · ! /mnt/notes.txt needs your y ─" in drawn(host, composer)
        await pilot.press("y", "backspace")
        assert composer.context.items.agreed == set(), "in the text it is a letter"
        await rest(composer)
        composer.context.set_passages(
            [], composer.text, composer.spans, files=[NOTES], outside={NOTES.ref: "/mnt/notes.txt"}
        )
        leave_out(composer, NOTES.ref)
        assert composer.context.items.agreed == set()
        composer.context.items.agreed.add("/mnt/notes.txt")
        composer.context.decided()
        await pilot.pause()
        assert "▥ 1 file ~" in drawn(host, composer) and "needs" not in drawn(host, composer)
        composer.context.set_passages(
            [], composer.text, composer.spans, files=[NOTES], outside={NOTES.ref: "/etc/notes.txt"}
        )
        await pilot.pause()
        assert "/etc/notes.txt needs your y" in drawn(host, composer)
        await pilot.press("enter")
        assert sent(host).meant.agreed == {"/mnt/notes.txt"} and composer.context.items.agreed == set()
        composer.restore(sent(host).draft, agreed=sent(host).meant.agreed)
        assert composer.context.items.agreed == {"/mnt/notes.txt"}


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, "@./a/long/name/of/a/file/notes.txt is plain text · Tab on it attaches it"),
        (60, "@./a/long/name/o… is plain text · Tab on it attaches it"),
        (40, "@./a/long/n… is text · Tab attaches"),
        (20, ""),
    ],
)
async def test_that_a_pasted_mention_is_text_is_said_in_the_room_there_is(
    memories: Writing,
    width: int,
    shown: str,
) -> None:
    host, composer = memories()
    async with host.run_test(size=(width, 30)) as pilot:
        await rested(host, composer, pilot, "see it")
        composer.context.set_passages([], composer.text, composer.spans, pasted=["./a/long/name/of/a/file/notes.txt"])
        await pilot.pause()
        assert drawn(host, composer).strip(" ─") == shown
        composer.set_keys("", "Alt+T")
        composer.context.set_passages([], composer.text, composer.spans, pasted=["./a/notes.txt"])
        await pilot.pause()
        assert ("Alt+T" in drawn(host, composer)) is bool(shown)
