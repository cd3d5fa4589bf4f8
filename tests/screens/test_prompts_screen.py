"""The system prompt and the library of saved ones."""

from __future__ import annotations

import pytest
from screens_kit import Shown, TypedTexts, showing
from textual.widgets import Input, TextArea

from kvchat.cache.price import Price, price
from kvchat.prompt.conversation import SavedPrompt
from kvchat.text.prices import change_price
from kvchat.ui.screens.options import PromptList, SystemPromptScreen

PRICE = Price(3812, (11, 11))


class Library:
    """Saved prompts in memory."""

    def __init__(self) -> None:
        self.saved = {"translator": "Translate into French.", "keeper": "You keep\nthe light."}

    def prompts(self) -> list[SavedPrompt]:
        return [SavedPrompt(name, text) for name, text in self.saved.items()]

    async def save_prompt(self, prompt: SavedPrompt) -> None:
        self.saved[prompt.name] = prompt.text

    async def delete_prompt(self, name: str) -> None:
        del self.saved[name]


def screen(library: Library | None = None, cost: Price = PRICE, typed: TypedTexts | None = None) -> SystemPromptScreen:
    return SystemPromptScreen("Be brief.", cost, library or Library(), typed or TypedTexts(), "here")


def text_of(shown: Shown) -> str:
    return shown.app.screen.query_one(TextArea).text


async def test_the_edited_text_is_the_answer() -> None:
    async with showing(screen()) as shown:
        await shown.press("enter", *"Cite.", "ctrl+s")
        assert shown.answers == ["Be brief.\nCite."]


async def test_nothing_changed_answers_nothing() -> None:
    async with showing(screen()) as shown:
        await shown.press("x", "backspace", "ctrl+s")
        assert shown.answers == [None]


async def test_escape_leaves_everything_as_it_was() -> None:
    async with showing(screen()) as shown:
        await shown.press(*"new", "escape")
        assert shown.answers == [None]


async def test_what_was_written_and_not_applied_is_there_again_and_can_be_taken_back() -> None:
    typed = TypedTexts()
    async with showing(screen(typed=typed)) as shown:
        await shown.press(*" Cite.", "escape")
    assert typed.texts["here"] == "Be brief. Cite."
    async with showing(screen(typed=typed)) as shown:
        assert text_of(shown) == "Be brief. Cite." and "Not saved; Ctrl+_ takes it back" in shown.text
        assert "prefills 3,812 tokens" in shown.text
        await shown.press("ctrl+underscore")
        assert text_of(shown) == "Be brief." and "Not saved" not in shown.text
        await shown.press("escape")
    assert not typed.texts["here"]


async def test_the_price_appears_with_the_first_change_and_goes_with_the_last() -> None:
    async with showing(screen()) as shown:
        assert "Unchanged: nothing to prefill." in shown.text
        await shown.press("x")
        assert "prefills 3,812 tokens (~11 s); the old version is kept" in shown.text
        await shown.press("backspace")
        assert "Unchanged: nothing to prefill." in shown.text


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (price(0, None, 0), "free: nothing to prefill yet"),
        (price(3812, None, 0), "prefills 3,812 tokens; the old version is kept"),
        (price(3812, 346.0, 1), "prefills 3,812 tokens (7.7–17 s); the old version is kept"),
        (price(None, None, 0), "prefills the whole conversation, size unknown; the old version is kept"),
    ],
)
def test_the_price_of_a_change_is_honest(cost: Price, words: str) -> None:
    assert change_price(cost) == words


async def test_a_saved_prompt_is_loaded_and_undo_brings_the_text_back() -> None:
    async with showing(screen()) as shown:
        await shown.press("tab", "enter")
        assert text_of(shown) == "You keep\nthe light."
        await shown.press("ctrl+underscore")
        assert text_of(shown) == "Be brief."


async def test_a_text_is_saved_under_a_name_and_appears_in_the_library() -> None:
    library = Library()
    async with showing(screen(library)) as shown:
        await shown.press(*"!", "tab", "tab", *"short", "enter")
        assert library.saved["short"] == "Be brief.!"
        assert "Saved as “short”." in shown.text
        assert shown.app.screen.query_one(PromptList).count == 3
        await shown.press("enter")
        assert "Write the name" in shown.text and len(library.saved) == 3


async def test_delete_removes_the_prompt_under_the_cursor_only_from_the_list() -> None:
    library = Library()
    async with showing(screen(library)) as shown:
        await shown.press("home", "delete")
        assert text_of(shown) == "e brief." and len(library.saved) == 2
        await shown.press("tab", "down", "delete")
        assert list(library.saved) == ["keeper"]
        assert "translator" not in shown.text


async def test_an_empty_text_shows_what_it_means() -> None:
    async with showing(screen()) as shown:
        shown.app.screen.query_one(TextArea).text = ""
        await shown.pilot.pause()
        assert "Empty: “You are a helpful assistant.”" in shown.prose
        await shown.press("tab", "tab", *"name", "enter")
        assert "There is no text to save." in shown.text
        assert shown.app.screen.query_one(Input).value == "name"
        await shown.press("ctrl+s")
        assert shown.answers == [""]
