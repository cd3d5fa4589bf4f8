"""Attached files: captured as they are, refused in a sentence, and what has changed in them since."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from book_samples import epub, parts_of, zipped
from kvchat.documents import attachments
from kvchat.documents.attachments import attached, change, has_changed, plain_name, whole_of
from kvchat.documents.errors import DocumentError, TooLargeError
from kvchat.prompt.citations import name_of, number_of, numbered
from kvchat.prompt.context import FILE, NOTE, ContextBlock

MOST = 40_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def _written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _block(text: str, path: str = "/notes/a.md", name: str = "a.md") -> ContextBlock:
    return ContextBlock(FILE, name, text, f"{path}#{hashlib.sha256(text.encode()).hexdigest()[:16]}")


# -- capturing


def test_a_file_is_a_block_with_its_own_text_its_name_and_the_state_it_was_in(folder: Path) -> None:
    text = "# Kiln\n\n\n  Fire at 1,240 degrees.\n\tThen wait.\n"
    path = _written(folder / "kiln.md", text)
    block = attached(path, "my notes/kiln.md", MOST)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    assert block == ContextBlock(FILE, "my notes/kiln.md", text, f"{path}#{digest}")


def test_a_relative_path_is_kept_as_an_absolute_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(folder / "a.txt", "x")
    monkeypatch.chdir(folder)
    assert attached(Path("./b/../a.txt"), "a.txt", MOST).ref.startswith(f"{folder}/a.txt#")


@pytest.mark.parametrize("name", ["main.py", "yarn.lock", "page.min.js", "Makefile", "data.json"])
def test_every_text_is_attached_to_the_character(folder: Path, name: str) -> None:
    text = "def f(a):\n    return a[0]  # x\n\n\n\nclass B: pass\n" + "x" * 9000
    assert attached(_written(folder / name, text), name, MOST).text == text


def test_html_is_attached_as_what_it_says(folder: Path) -> None:
    path = _written(folder / "p.html", "<html><style>b{}</style><h1>Oven</h1><p>Two <b>hours</b>.</p></html>")
    assert attached(path, "p.html", MOST).text == "Oven\n\nTwo hours."


def test_a_word_document_is_attached_as_its_text(folder: Path) -> None:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in ("One.", "Two."))
    xml = (
        '<?xml version="1.0"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        f"<w:body>{body}</w:body></w:document>"
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("word/document.xml", xml)
    assert attached(_written(folder / "a.docx", held.getvalue()), "a.docx", MOST).text.split() == ["One.", "Two."]


def test_an_e_book_is_attached_as_its_text_however_much_smaller_that_is(folder: Path) -> None:
    cover = zipped({**parts_of(epub("<h1>Dusk</h1><p>The lamp is lit.</p>")), "OPS/cover.jpg": os.urandom(5 * MOST)})
    block = attached(_written(folder / "keeper.epub", cover), "keeper.epub", MOST)
    assert (block.source, block.text) == ("keeper.epub", "Dusk\n\nThe lamp is lit.")


def test_an_encoding_that_is_a_guess_stands_in_the_source_and_in_no_name(folder: Path) -> None:
    path = _written(folder / "plan.txt", "Москва: готово\n".encode("cp1251"))
    block = attached(path, "plan.txt", MOST)
    assert (block.source, plain_name(block)) == ("plan.txt (read as Windows-1251)", "plan.txt")
    newer = attached(_written(path, "Москва: закрыто\n".encode("cp1251")), "plan.txt", MOST)
    told = change(block, newer)
    assert told is not None and plain_name(told) == "plan.txt"


def test_a_name_in_brackets_is_not_taken_for_a_number(folder: Path) -> None:
    block = attached(_written(folder / "[3] plan.md", "x"), "[3] plan.md", MOST)
    assert number_of(block) is None
    (_, once) = numbered([block], [])
    assert (number_of(once), name_of(once)) == (1, "./[3] plan.md")


def test_a_name_that_is_not_utf8_still_gives_a_block_that_can_be_stored(folder: Path) -> None:
    path = folder / os.fsdecode(b"caf\xe9.txt")
    try:
        _written(path, "x")
    except OSError:
        pytest.skip("this disk takes only UTF-8")
    block = attached(path, path.name, MOST)
    block.ref.encode()
    block.source.encode()
    assert has_changed(block) is None


# -- refusing


def test_a_missing_file_and_a_folder_are_named_and_the_way_on_is_said(folder: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        attached(folder / "gone.md", "gone.md", MOST)
    assert str(caught.value) == f"There is no file gone.md in {folder}."
    with pytest.raises(DocumentError) as caught:
        attached(folder / "nowhere" / "gone.md", "gone.md", MOST)
    assert str(caught.value) == f"There is no folder {folder}/nowhere."
    with pytest.raises(DocumentError, match=r"^docs is a folder; index it with /documents add, then mention it\.$"):
        attached(folder, "docs", MOST)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "image"),
        (b"\x00\x01\x02" * 300, "binary"),
        (b"", "no text"),
        (b" \n\t\n", "no text"),
        (b"%PDF-1.7 broken", "PDF"),
        (b"PK\x03\x04" + b"\x00" * 40, "archive|zip|broken|binary"),
    ],
)
def test_what_has_no_text_is_refused_with_the_reason(folder: Path, data: bytes, reason: str) -> None:
    with pytest.raises(DocumentError, match=rf"(?s)^odd cannot be attached: .*(?:{reason}).*\.$"):
        attached(_written(folder / "odd", data), "odd", MOST)


def test_a_file_that_is_too_large_is_refused_with_its_tokens_before_it_is_read(folder: Path) -> None:
    path = _written(folder / "big.txt", "word " * 32_000)
    with pytest.raises(TooLargeError, match=r"^big.txt is about 40,000 tokens, more than the 10,000 .*attach_percent"):
        attached(path, "big.txt", MOST)
    with (folder / "vast.txt").open("wb") as vast:
        vast.write(b"word " * 32_000)
        vast.truncate(3 << 30)
    with pytest.raises(TooLargeError, match="is about 805,306,368 tokens"):
        attached(folder / "vast.txt", "vast.txt", MOST)


@pytest.mark.parametrize(
    ("name", "head", "reason"),
    [
        ("big.png", b"\x89PNG\r\n\x1a\n", "is an image"),
        ("disk.img", b"", "is a binary file"),
        ("films.zip", b"PK\x03\x04", "is an archive"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a binary file"),
        ("paper.pdf", b"no", "is a broken PDF"),
        ("page.htm", b"\x7fELF", "is a program"),
    ],
)
def test_what_a_large_file_is_counts_before_its_size(folder: Path, name: str, head: bytes, reason: str) -> None:
    with (folder / name).open("wb") as large:
        large.write(head)
        large.truncate(3 << 30)
    with pytest.raises(DocumentError) as caught:
        attached(folder / name, name, MOST)
    assert str(caught.value) == f"{name} cannot be attached: it {reason}."


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("book.pdf", b"%PDF-1.7 "),
        ("book.docx", b"PK\x03\x04"),
        ("book.epub", b"PK\x03\x04"),
        ("log.txt", b"a" + "é".encode() * 80_000),
        ("page.html", b"<p>" * 50_000),
    ],
)
def test_a_large_file_of_a_kind_that_can_be_attached_is_too_large(folder: Path, name: str, head: bytes) -> None:
    with (folder / name).open("wb") as large:
        large.write(head)
        large.truncate(3 << 30)
    with pytest.raises(TooLargeError, match="is about 805,306,368 tokens"):
        attached(folder / name, name, MOST)


def test_a_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(DocumentError, match="no regular file"):
        attached(folder / "pipe", "pipe", MOST)
    with pytest.raises(DocumentError, match="no regular file"):
        attached(Path("/dev/zero"), "/dev/zero", MOST)


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_said_to_be_one(folder: Path) -> None:
    path = _written(folder / "own.txt", "x")
    path.chmod(0)
    with pytest.raises(DocumentError, match="may not be read"):
        attached(path, "own.txt", MOST)


def test_a_sentence_shows_no_control_of_a_name(folder: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        attached(folder / "a\x1b[2J\nb", "a\x1b[2J\nb", MOST)
    assert str(caught.value).isprintable()


# -- what has changed since

LINES = "".join(f"line {number}\n" for number in range(200))


def test_a_change_is_told_as_a_diff_with_few_lines_around_it() -> None:
    old = _block(LINES)
    newer = _block(LINES.replace("line 100\n", "line one hundred\n"))
    found = change(ContextBlock(FILE, "[3] a.md", old.text, old.ref), newer)
    assert found is not None
    assert found.source == "change of a.md since it was attached"
    assert found.text == (
        "--- a.md as attached\n+++ a.md now\n@@ -99,5 +99,5 @@\n line 98\n line 99\n-line 100\n"
        "+line one hundred\n line 101\n line 102"
    )
    old_state, new_state = old.ref[-16:], newer.ref[-16:]
    assert found.ref == f"/notes/a.md#{old_state}..{new_state}"


def test_nothing_changed_is_no_block() -> None:
    assert change(_block("x"), _block("x")) is None
    touched = ContextBlock(FILE, "a.md", "x", "/notes/a.md#0123456789abcdef")  # other bytes, the same text
    assert change(_block("x"), touched) is None


def test_a_change_of_everything_is_the_whole_text_now() -> None:
    newer = _block("quite\nanother\ntext\n")
    found = change(_block("one\ntwo\n"), newer)
    assert found == ContextBlock(FILE, "a.md, as it is now: changed since it was attached", newer.text, newer.ref)


def test_a_second_change_is_told_from_the_whole_text_on() -> None:
    first, second, third = _block(LINES), _block(LINES + "more\n"), _block(LINES + "more\nand more\n")
    one = change(first, second)
    assert one is not None
    assert whole_of([first, one]) == first
    two = change(one, third, whole_of([first, one]))
    assert two is not None and two.source == "change of a.md since it was attached"
    assert "+more" in two.text and "+and more" in two.text
    assert change(two, third, first) is None
    unaided = change(one, third)
    assert unaided is not None and unaided.text == third.text


def test_a_file_that_is_as_it_was_again_is_said_to_be() -> None:
    first, second = _block(LINES), _block(LINES + "more\n")
    one = change(first, second)
    assert one is not None
    back = change(one, first, first)
    assert back is not None and back.text == "a.md is again as it was attached."
    assert change(back, first, first) is None


def test_a_change_after_the_whole_text_was_sent_anew_keeps_the_name() -> None:
    whole = change(_block("a\n"), _block("b\n"))
    assert whole is not None and whole_of([whole]) == whole
    renamed = ContextBlock(FILE, whole.source, LINES, "/notes/a.md#0123456789abcdef")
    found = change(renamed, ContextBlock(FILE, whole.source, LINES + "x\n", "/notes/a.md#fedcba9876543210"))
    assert found is not None and found.source == "change of a.md since it was attached"


def test_a_change_is_sent_even_if_it_only_took_something_away() -> None:
    old, newer = _block("one\ntwo\n"), _block("one\n")
    found = change(old, newer)
    assert found is not None
    sent = numbered([old, found], [])
    assert [block.kind for block in sent] == [NOTE, FILE, FILE]


def test_two_texts_that_would_take_long_to_compare_are_not_compared() -> None:
    count = int(attachments.MOST_PAIRS**0.5) + 1
    old = "first\n" + "".join(f"{at % 100}\n" for at in range(count)) + "last\n"
    new = "first\n" + "".join(f"{at * 7 % 101}\n" for at in range(count)) + "last\n"
    found = change(_block(old), _block(new))
    assert found is not None and found.text == new
    many = "".join(f"{at}\n" for at in range(300_000))
    found = change(_block(many), _block(many + "one more\n"))
    assert found is not None and found.text.count("\n") < 10


LINE = st.sampled_from(["a", "b", "c", "", "  d", "@@ -1 +1 @@", "--- x", "\\"])


@given(st.lists(LINE, max_size=40), st.lists(LINE, max_size=40), st.lists(LINE, max_size=8))
def test_old_text_and_change_give_the_new_text(old: list[str], new: list[str], around: list[str]) -> None:
    before = "\n".join([*around, *old, *around]) + "\n"
    after = "\n".join([*around, *new, *around]) + "\n"
    found = change(_block(before), _block(after))
    if before == after:
        assert found is None
    elif found is not None and found.source.startswith("change of "):
        assert _patched(before, found.text) == after
        assert len(found.text) < len(after)
    else:
        assert found is not None and found.text == after


def _patched(old: str, diff: str) -> str:
    """Apply a unified diff as the line numbers in it say."""
    lines, done, at = old.split("\n"), list[str](), 0
    for line in diff.split("\n")[2:]:
        if line.startswith("@@ -"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            done += lines[at:first]
            at = first
        elif line[:1] == "+":
            done.append(line[1:])
        else:
            assert lines[at] == line[1:]
            done += [line[1:]] if line[:1] == " " else []
            at += 1
    return "\n".join([*done, *lines[at:]])


@pytest.mark.skipif(not Path("/usr/bin/patch").exists(), reason="needs patch")
def test_a_change_can_be_applied_by_patch(folder: Path) -> None:
    new = LINES.replace("line 3\n", "").replace("line 150\n", "line 150\nand a half\n")
    found = change(_block(LINES), _block(new))
    assert found is not None
    path = _written(folder / "a.md", LINES)
    subprocess.run(["patch", "-s", str(path)], input=f"{found.text}\n", text=True, check=True, cwd=folder)
    assert path.read_text() == new


# -- telling


def test_whether_a_file_has_changed_is_told_from_the_disk(folder: Path) -> None:
    path = _written(folder / "a.md", "one")
    block = attached(path, "a.md", MOST)
    assert has_changed(block) is False
    path.touch()
    assert has_changed(block) is False
    _written(path, "two")
    assert has_changed(block) is True
    path.unlink()
    assert has_changed(block) is None
    path.mkdir()
    assert has_changed(block) is None


def test_a_change_is_compared_with_the_state_it_leads_to(folder: Path) -> None:
    path = _written(folder / "a.md", LINES)
    first = attached(path, "a.md", MOST)
    _written(path, LINES + "more\n")
    one = change(first, attached(path, "a.md", MOST))
    assert one is not None
    assert has_changed(first) is True
    assert has_changed(one) is False


@pytest.mark.parametrize("ref", ["", "#", "docs/handbook/a.md#12-40", "/notes/a.md#", "a.md#0123456789abcdef"])
def test_of_a_block_that_is_of_no_file_nothing_is_told(ref: str) -> None:
    assert has_changed(ContextBlock(FILE, "a.md", "x", ref)) is None
