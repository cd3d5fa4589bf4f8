"""Mentions in the whole app: what was pasted attaches nothing until it is touched; a file from outside needs a y."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from app_kit import Drive, Driven

from kvchat.commands.editor import OutsideText
from kvchat.prompt.context import FILE
from kvchat.prompt.message import Role

pytestmark = pytest.mark.slow

KEY = "-----BEGIN KEY-----\nabcd\n"
NOTES = "the lamp turns once in twelve seconds\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file; and a key in the home folder."""
    (own_folders / ".ssh").mkdir()
    (own_folders / ".ssh" / "id_rsa").write_text(KEY)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text(NOTES)
    monkeypatch.chdir(folder)
    return folder


def line(app: Driven) -> str:
    """The row of the rule over the composer, beside the list."""
    row = app.chat.composer.query_one("ContextLine")
    return app.lines[row.region.y][row.region.x :].strip(" ─") if row.display else ""


async def shows(app: Driven, words: str) -> None:
    await app.until(lambda: words in line(app))


def attached(app: Driven) -> list[str]:
    """The texts of the files that went with the last question."""
    question = [node for node in app.path if node.role is Role.USER][-1]
    return [block.text for block in question.message.blocks if block.kind == FILE]


async def sends(app: Driven, *keys: str) -> None:
    """The message goes out with these keys."""
    turns = app.conversation.record.turns
    await app.press(*(keys or ("enter",)))
    await app.until(lambda: app.conversation.record.turns > turns)
    await app.settled()


MAIL = "Hi, see @~/.ssh/id_rsa and @./notes.txt for this.\n"


async def test_a_pasted_mention_attaches_nothing(drive: Drive) -> None:
    async with drive() as app:
        await app.paste(MAIL)
        await app.rest()
        await sends(app)
        assert app.said[0] == MAIL and attached(app) == []
        assert app.server is not None and not any(b"BEGIN KEY" in visit.body for visit in app.server.visits)


async def test_a_typed_mention_of_a_file_in_the_working_folder_attaches_it(drive: Drive) -> None:
    async with drive() as app:
        await app.write("sum up @./notes.txt please")
        await shows(app, "▥ 1 file")
        await sends(app)
        assert attached(app) == [NOTES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "after",
    [
        ["x", "backspace"],
        ["ctrl+c", "ctrl+z"],
        ["space", "ctrl+z", "ctrl+y"],
        ["comma"],
        ["left", "left", "full_stop"],
        ["home", "a", "space"],
    ],
)
async def test_edits_around_a_pasted_mention_do_not_make_one_of_it(drive: Drive, after: list[str]) -> None:
    async with drive() as app:
        await app.paste("see @./notes.txt")
        await app.press(*after)
        await sends(app)
        assert attached(app) == []


async def test_a_draft_with_a_pasted_mention_is_text_after_a_restart(drive: Drive) -> None:
    async with drive() as app:
        await app.paste("see @./notes.txt")
        await app.service.drafts.keep()
        home = app.conversation.id
    async with drive() as app:
        await app.open(home)
        assert app.draft == "see @./notes.txt"
        await sends(app)
        assert attached(app) == []


async def test_a_typed_mention_in_a_draft_is_one_after_a_restart(drive: Drive) -> None:
    async with drive() as app:
        await app.write("see @./notes.txt ")
        await app.service.drafts.keep()
        home = app.conversation.id
    async with drive() as app:
        await app.open(home)
        await sends(app)
        assert attached(app) == [NOTES]


async def test_a_recalled_message_and_a_fork_mention_what_they_mentioned(drive: Drive, project: Path) -> None:
    (project / "more.txt").write_text("more\n")
    async with drive() as app:
        await app.paste("old @./notes.txt")
        await app.write(" and @./more.txt ")
        await sends(app)
        assert attached(app) == ["more\n"]
        home, asked = app.conversation.id, app.path[0].id
        await app.chat.acts.conversations.fork(asked)
        await app.rest()
        assert app.conversation.id != home and app.draft.strip() == "old @./notes.txt and @./more.txt"
        await sends(app)
        assert attached(app) == ["more\n"]
    async with drive() as app:
        await app.open(home)
        (project / "more.txt").write_text("more\nand more\n")
        await app.press("up")
        assert app.draft.strip() == "old @./notes.txt and @./more.txt"
        await sends(app)
        assert len(attached(app)) == 1 and "and more" in attached(app)[0]


async def test_an_edited_question_attaches_nothing_new_by_what_was_pasted_into_it(drive: Drive) -> None:
    async with drive() as app:
        await app.paste("see @./notes.txt")
        await sends(app)
        app.chat.drafts.begin_edit(app.path[0].id)
        await app.rest()
        await app.press("x")
        await app.press("enter")
        await app.until(lambda: app.said[0].endswith("x"))
        await app.settled()
        assert attached(app) == []


async def test_an_edit_that_only_touches_a_mention_asks_anew_with_it(drive: Drive) -> None:
    async with drive() as app:
        await app.paste("see @./notes.txt")
        await sends(app)
        for keys, found in ((("enter",), []), (("tab", "enter"), [NOTES])):
            app.chat.drafts.begin_edit(app.path[0].id)
            await app.rest()
            await app.press(*keys)
            await app.until(lambda: app.chat.workspace.editing is None)
            await app.settled()
            assert attached(app) == found
        assert app.noticed("Message unchanged")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("'Hello.\\n\\n' + text + ', and so on'", []),
        ("text.replace('see', 'see @./notes.txt, not')", [NOTES]),
        ("'@./notes.txt is what?'", []),
        ("'now with @./notes.txt.'", []),
    ],
)
async def test_what_was_pasted_stays_text_in_the_editor_and_what_is_written_there_counts(
    drive: Drive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    found: list[str],
) -> None:
    async def edited(outside: OutsideText, command: str, keep: object) -> None:
        outside.path.write_text(str(eval(change, {"text": outside.path.read_text()})))

    monkeypatch.setattr(OutsideText, "edit", edited)
    async with drive() as app:
        await app.paste("see @./notes.txt" if "replace" not in change else "see @~/.ssh/id_rsa")
        await app.chat.drafts._edit_outside()
        await app.rest()
        await sends(app)
        assert attached(app) == found


async def test_a_failed_message_comes_back_as_it_was_meant(drive: Drive, project: Path) -> None:
    async with drive() as app:
        await app.paste("see @~/.ssh/id_rsa ")
        await app.write("and @./gone.txt ")
        await app.press("enter")
        await app.until(lambda: app.noticed("There is no file"))
        await app.until(lambda: "gone" in app.draft)
        (project / "gone.txt").write_text("here it is\n")
        await sends(app)
        assert attached(app) == ["here it is\n"]


# -- touching


async def test_the_line_says_that_it_is_text_and_tab_attaches_it(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        await app.paste("see @./notes.txt")
        await shows(app, "@./notes.txt is plain text · Tab on it attaches it")
        await app.press("tab")
        await shows(app, "▥ 1 file")
        assert app.draft == "see @./notes.txt"
        await app.press("ctrl+z")
        await shows(app, "is plain text")
        await app.press("ctrl+y")
        await shows(app, "▥ 1 file")
        await sends(app)
        assert attached(app) == [NOTES]


async def test_a_click_on_it_attaches_it_and_one_beside_it_does_not(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        await app.paste("see @./notes.txt now")
        await shows(app, "is plain text")
        await app.pilot.click("ComposerText", offset=(2, 0))
        await app.pilot.click("ComposerText", offset=(40, 0))
        await app.rest()
        assert "is plain text" in line(app)
        await app.pilot.click("ComposerText", offset=(8, 0))
        await shows(app, "▥ 1 file")
        await sends(app)
        assert attached(app) == [NOTES]


async def test_pasting_a_beginning_opens_no_list_and_enter_sends_it(drive: Drive) -> None:
    async with drive() as app:
        await app.paste("see @./not")
        await app.rest()
        await sends(app)
        assert app.said[0] == "see @./not" and attached(app) == []


# -- from outside


async def test_a_typed_file_from_outside_shows_its_path_and_needs_a_y(drive: Drive, own_folders: Path) -> None:
    async with drive(size=(120, 30)) as app:
        await app.write("what is @~/.ssh/id_rsa for?")
        await shows(app, "~/.ssh/id_rsa needs your y")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.until(lambda: str(own_folders / ".ssh" / "id_rsa") in app.prose.replace(" ", ""))
        await app.press("enter")
        await app.closes()
        await app.until(lambda: app.draft)
        assert app.said == [] and app.draft == "what is @~/.ssh/id_rsa for?"
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await sends(app, "y")
        assert attached(app) == [KEY]


async def test_the_y_in_the_dialog_is_enough(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        await app.write("what is @~/.ssh/id_rsa for?")
        await shows(app, "needs your y")
        await app.press("shift+f5")
        await app.opens("ContextScreen")
        await app.press("y", "escape")
        await app.closes()
        await app.until(lambda: "needs" not in line(app))
        await sends(app)
        assert attached(app) == [KEY] and app.said[0] == "what is @~/.ssh/id_rsa for?"


async def test_a_link_is_where_it_leads(drive: Drive, project: Path, own_folders: Path) -> None:
    (project / "innocent.txt").symlink_to(own_folders / ".ssh" / "id_rsa")
    async with drive(size=(120, 30)) as app:
        await app.write("what is @./innocent.txt for?")
        await shows(app, "~/.ssh/id_rsa needs your y")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("escape")
        await app.closes()
        assert app.said == []


async def test_in_the_home_folder_hidden_files_are_outside(
    drive: Drive,
    own_folders: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(own_folders)
    (own_folders / "list.txt").write_text("eggs\n")
    async with drive(size=(120, 30)) as app:
        await app.write("what is in @./list.txt ?")
        await sends(app)
        assert attached(app) == ["eggs\n"]
        await app.write("what is in @./.ssh/id_rsa ?")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("n")
        await app.closes()


async def test_an_edit_asks_for_a_new_file_and_not_again_for_its_own(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("other\n")
    async with drive(size=(120, 30)) as app:
        await app.write("what is @~/.ssh/id_rsa for?")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await sends(app, "y")
        app.chat.drafts.begin_edit(app.path[0].id)
        await app.rest()
        await app.write(" ok")
        await app.press("enter")
        await app.until(lambda: app.said[0].endswith(" ok"))
        await app.settled()
        assert attached(app) == [KEY]
        app.chat.drafts.begin_edit(app.path[0].id)
        await app.rest()
        await app.write(f" and @{tmp_path}/other.txt ?")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.said[0].endswith(" ?"))
        await app.settled()
        assert attached(app) == [KEY, "other\n"]


async def test_a_file_of_the_folder_is_attached_by_its_name(drive: Drive, project: Path) -> None:
    (project / "README.md").write_text("# Lamp\n")
    (project / "my notes.txt").write_text("mine\n")
    async with drive() as app:
        await app.write("@README.md what is this? @nobody knows")
        await shows(app, "1 file")
        chip = app.chat.composer.spans[0]
        assert app.draft[chip.start : chip.end] == "@README.md", "it is seen that it counts"
        await app.press("home", "right", "X")
        assert app.draft.startswith("@README.mdX"), "the cursor steps over it"
        await app.press("backspace")
        await sends(app)
        assert attached(app) == ["# Lamp\n"]
        await app.paste("@notes.txt ")
        await app.press(*"@m")
        await app.until(lambda: "my notes.txt" in app.text)
        await app.press("tab")
        assert app.draft.strip() == '@notes.txt @"my notes.txt"'
        await sends(app)
        assert attached(app) == ["mine\n"], "pasted text mentions nothing"


async def test_a_draft_keeps_apart_what_was_typed_and_what_was_pasted(drive: Drive, project: Path) -> None:
    async with drive() as app:
        await app.paste("@notes.txt and ")
        await app.write("@notes.txt")
        spans = app.chat.composer.spans
        await app.service.drafts.keep()
        home = app.conversation.id
    async with drive() as app:
        await app.open(home)
        assert app.chat.composer.spans[0] == spans[0] and len(spans) == 1
        (project / "notes.txt").rename(project / "gone.txt")
        await app.press("enter")
        await app.until(lambda: app.noticed("There is no file notes.txt here."))
        assert not app.said


async def test_a_picked_file_that_is_gone_is_said(drive: Drive, project: Path) -> None:
    async with drive() as app:
        await app.press(*"@no")
        await app.until(lambda: "notes.txt" in app.text)
        await app.press("tab")
        (project / "notes.txt").unlink()
        await app.press("enter")
        await app.until(lambda: app.noticed("There is no notes.txt here any more."))
        assert app.draft.strip() == "@notes.txt" and not app.said


async def test_what_was_pasted_stays_known_when_it_is_sent_edited_and_sent_again(drive: Drive) -> None:
    """What memory does not learn from: also a short paste, after an edit, and from the history of the composer."""

    def pasted(at: int = -1) -> list[str]:
        message = [node for node in app.path if node.role is Role.USER][at].message
        return [message.text[start:end] for start, end in message.pasted]

    async with drive() as app:
        await app.write("is this right: ")
        await app.paste("I live in Oslo")
        await app.write(" or not")
        await sends(app)
        assert app.said[0] == "is this right: I live in Oslo or not" and pasted() == ["I live in Oslo"]
        await app.press("up")
        await sends(app)
        assert pasted() == ["I live in Oslo"]
        await app.select(2)
        await app.press("e")
        await app.until(lambda: app.draft != "")
        await app.write(", tell me")
        await sends(app)
        assert app.said[-2].endswith(", tell me") and pasted() == ["I live in Oslo"]


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
@pytest.mark.parametrize("act", ["send_now", "edit"])
async def test_nothing_is_asked_about_a_message_that_was_taken_back_while_it_was_delivered(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, act: str, key: str
) -> None:
    async with drive(size=(120, 30)) as app:
        await app.begin("one")
        deliver, began, go = getattr(app.service.turns, act), asyncio.Event(), asyncio.Event()

        async def held(*arguments: Any, **more: Any) -> None:
            began.set()
            await go.wait()
            await deliver(*arguments, **more)

        monkeypatch.setattr(app.service.turns, act, held)
        if act == "edit":
            app.chat.drafts.begin_edit(app.path[0].id)
            await app.rest()
            app.chat.composer.replace_text("")
        said = app.said
        await app.write("what is @~/.ssh/id_rsa for?")
        await app.press("enter")
        await app.until(began.is_set)
        await app.press(key)
        go.set()
        await app.until(lambda: app.draft == "what is @~/.ssh/id_rsa for?")
        assert app.front == "ChatScreen" and not app.chat.question_line.display
        assert app.said == said and not app.service.conversations.streaming()
