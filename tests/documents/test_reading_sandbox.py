"""Reading apart: whatever a file does, the caller gets its content or the reason, and no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reading_kit import archive, docx, paragraph, pdf, pdf_text, text_of

from corpus import corpus
from kvchat.apart.process import stop_all
from kvchat.documents.errors import FileUnreadableError
from kvchat.documents.reading import formats, pipe_protocol, sandbox
from kvchat.documents.reading.content import Content, Section, Unit
from kvchat.documents.reading.sandbox import Readers

WORD = docx(paragraph("words of Word"))
BIG = docx(paragraph("x" * (40 << 20)))
"""Small on the disk, and more than a few MB of memory allow."""


@pytest.fixture
def readers() -> Iterator[Readers]:
    with Readers() as made:
        yield made


def reason(read: Callable[[], Content]) -> str:
    with pytest.raises(FileUnreadableError) as caught:
        read()
    return str(caught.value)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 120
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_text_needs_no_process(readers: Readers) -> None:
    assert text_of(readers.read("x.txt", b"some words")).strip() == "some words"
    assert text_of(readers.read("x.html", b"<p>some words")) == "some words"
    assert readers.pid is None


@pytest.mark.parametrize("name", ["x.html", "x.txt", "x.md", "x.yaml"], ids=lambda name: name.rpartition(".")[2])
def test_what_is_large_is_read_in_a_process_and_says_the_same(readers: Readers, name: str) -> None:
    data = b"<p>some words</p>\n" * 5000
    assert readers.read(name, data) == formats.read(name, data)
    assert readers.pid is not None


def test_large_html_that_takes_too_long_ends_in_time() -> None:
    with Readers(seconds=0.5) as readers:
        worst = b"<!doctype html><p>" + b"<b>" * 63 + b"<h1>x" * 2_000_000
        assert reason(lambda: readers.read("x.html", worst)) == "took longer than 0.5 s to read"


def test_all_that_is_read_can_be_ended_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sandbox, "MODULE", "hanging")
    readers = Readers(seconds=600.0)
    said: list[str] = []
    reading = threading.Thread(target=lambda: said.append(reason(lambda: readers.read("x.html", b"<p>x" * 50_000))))
    reading.start()
    while readers.pid is None:
        time.sleep(0.01)
    stop_all()
    reading.join(120)
    assert len(said) == 1


@pytest.mark.parametrize("style", ["font-size:" + "0" * 9900 + "x", "opacity:" + "0" * 4900 + "." + "0" * 4900 + "x"])
def test_a_style_of_many_zeros_takes_no_time(style: str) -> None:
    page = f'<b style="{style}">seen</b>'.encode() * 20
    begun = time.process_time()
    assert text_of(formats.read("x.html", page)) == "seen" * 20
    assert time.process_time() - begun < 2  # each took 9 s


@pytest.mark.parametrize("zero", ["0", "00", ".0", "0.0", "0.00px", "+0", "0%", "0em !important"])
def test_zero_hides_however_it_is_written(zero: str) -> None:
    assert text_of(formats.read("x.html", f'<p>a<b style="font-size: {zero}">b</b></p>'.encode())) == "a"


@pytest.mark.parametrize("size", ["0.5em", "10px", "05px", "1", "0.", "0x"])
def test_what_is_not_zero_is_seen(size: str) -> None:
    assert text_of(formats.read("x.html", f'<p>a<b style="font-size: {size}">b</b></p>'.encode())) == "ab"


def test_a_number_without_end_is_no_error() -> None:
    assert text_of(formats.read("x.html", b"<p>a&#" + b"1" * 5000 + b";b &#65;")) == "a\ufffdb A"


def test_one_process_reads_one_file_after_another(readers: Readers) -> None:
    assert text_of(readers.read("x.docx", WORD)) == "words of Word"
    first = readers.pid
    assert reason(lambda: readers.read("x.docx", WORD[:-40])) == "is a broken Word document"
    assert text_of(readers.read("x.docx", WORD)) == "words of Word"
    assert first is not None and readers.pid == first
    assert first != os.getpid()


def test_what_comes_back_is_what_reading_gives(readers: Readers) -> None:
    pytest.importorskip("pypdf")
    data = pdf([pdf_text("one"), pdf_text("two (\xe9)")], "Title", [("Head", 1)])
    assert readers.read("\udcff\u00e9.pdf", data) == formats.read("x.pdf", data)


def test_closing_leaves_no_process() -> None:
    readers = Readers()
    readers.read("x.docx", WORD)
    pid = readers.pid
    readers.close()
    assert pid is not None and gone(pid)
    assert readers.pid is None
    readers.close()
    assert text_of(readers.read("x.docx", WORD)) == "words of Word"
    readers.close()


def test_a_file_that_takes_too_long_ends_its_process_and_the_next_is_read() -> None:
    with Readers(seconds=0.001) as readers:
        assert reason(lambda: readers.read("x.docx", WORD)) == "took longer than 0.001 s to read"
        assert readers.pid is None
        readers._seconds = 30.0
        assert text_of(readers.read("x.docx", WORD)) == "words of Word"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory of a process can be limited on Linux")
def test_a_file_that_needs_too_much_memory_says_so_and_the_next_is_read() -> None:
    with Readers(memory=100 << 20) as readers:
        assert reason(lambda: readers.read("x.docx", BIG)) == "needs too much memory to read"
        assert text_of(readers.read("x.docx", WORD)) == "words of Word"
        assert reason(lambda: readers.read("x.docx", BIG)) == "needs too much memory to read"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory of a process can be limited on Linux")
def test_no_memory_to_start_with_is_a_reason_too() -> None:
    with Readers(memory=1 << 20) as readers:
        assert reason(lambda: readers.read("x.docx", WORD))


def test_a_process_that_dies_between_files_is_replaced(readers: Readers) -> None:
    readers.read("x.docx", WORD)
    first = readers.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert text_of(readers.read("x.docx", WORD)) == "words of Word"
    assert readers.pid not in (None, first)


def test_a_process_that_dies_over_a_file_gives_its_reason(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "crashing.py").write_text("import os, sys\nsys.stdin.buffer.read(30)\nos.kill(os.getpid(), 11)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sandbox, "MODULE", "crashing")
    assert reason(lambda: readers.read("x.docx", WORD)) == "is broken in a way that ended its reader"
    monkeypatch.undo()
    assert text_of(readers.read("x.docx", WORD)) == "words of Word"


@pytest.mark.parametrize(
    "answer", [b"null", b"{}", b"[", b'{"title": 1, "sections": [1]}', b"\xff", b"7", b"[" * 99_999]
)
def test_an_answer_that_is_none_is_a_reason(
    readers: Readers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes
) -> None:
    (tmp_path / "lying.py").write_text(
        "import sys\nfrom kvchat.apart.frames import put, take\n"
        f"for _ in range(3): take(sys.stdin.buffer)\nput(sys.stdout.buffer, {answer!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sandbox, "MODULE", "lying")
    assert reason(lambda: readers.read("x.docx", WORD)) == "is broken in a way that ended its reader"
    assert readers.pid is None


def test_closing_from_another_thread_ends_what_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sandbox, "MODULE", "hanging")
    readers = Readers(seconds=60.0)
    said: list[str] = []
    large = WORD + bytes(1 << 20)
    reading = threading.Thread(target=lambda: said.append(reason(lambda: readers.read("x.docx", large))))
    reading.start()
    while readers.pid is None:
        time.sleep(0.01)
    pid = readers.pid
    readers.close()
    reading.join(120)
    assert len(said) == 1 and gone(pid)


@pytest.mark.process
def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "word.docx").write_bytes(WORD)
    script = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from kvchat.documents.reading.sandbox import Readers
        readers = Readers()
        readers.read("x.docx", Path(sys.argv[1]).read_bytes())
        print(readers.pid, flush=True)
        time.sleep(60)
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "word.docx"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pid)


@pytest.mark.process
def test_the_process_loads_no_screen_and_reaches_no_network() -> None:
    code = textwrap.dedent("""
        import sys
        import kvchat.documents.reading.reader_child
        from kvchat.apart.child import refuse
        heavy = ("textual", "rich", "httpx", "sqlite3", "asyncio")
        print([name for name in sys.modules if name.split(".")[0] in heavy])
        sys.addaudithook(refuse)
        import socket, subprocess
        for use in (socket.socket, lambda: socket.getaddrinfo("localhost", 1), lambda: subprocess.run(["true"])):
            try:
                use()
            except PermissionError:
                print("refused")
    """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.stdout.split("\n") == ["[]", "refused", "refused", "refused", ""]


def test_frames_hold_any_content() -> None:
    content = Content("t\ud800", Unit.PARAGRAPH, (Section(("a", "b"), "x\n\0\u2028", 1, 2, code=True),), exact=False)
    assert pipe_protocol.content_of(pipe_protocol.answer_of(content)) == content


def test_mutated_pdfs_give_content_or_a_reason(readers: Readers) -> None:
    pytest.importorskip("pypdf")
    draw = random.Random(6)
    whole = pdf([pdf_text("Words (of) a page", "and more"), "1 g " + pdf_text("white")], "T", [("A", 0), ("B", 1)])
    read = 0
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 12)):
            at = draw.randrange(8, len(data))
            data[at : at + draw.randint(0, 4)] = draw.choice(
                [b"<<", b">>", b"[", b"]", b"(", b"9", b"-1", b" 0 R", b"/Kids", b"\0", b"\xff", b"1e99", b"null", b""]
            )
        try:
            read += bool(readers.read("x.pdf", bytes(data)).sections)
        except FileUnreadableError as error:
            assert "cannot be read" not in str(error) and "ended its reader" not in str(error)
    assert read


@corpus(
    ("name", "data", "said"),
    [
        ("x.png", b"\x89PNG\r\n\x1a\n\0\0", "is an image"),
        ("x.txt", b"\xff\xd8\xff\xe0\0\x10JFIF", "is an image"),
        ("x.svg", b"<svg/>", "is an image"),
        ("x", b'<?xml version="1.0"?><svg xmlns="x">', "is an image"),
        ("x.webp", b"RIFF\1\2\3\4WEBPVP8 ", "is an image"),
        ("x.mp3", b"ID3\x04\0\0", "is an audio file"),
        ("x.mp4", b"\0\0\0\x20ftypisom\0\0", "is a video"),
        ("x.gz", b"\x1f\x8b\x08\0", "is an archive"),
        ("x.zip", archive({"a.txt": "a"}), "is an archive"),
        ("x.zip", b"PK\x03\x04", "is a broken archive"),
        ("x.xlsx", archive({"xl/workbook.xml": "a"}), "is a spreadsheet"),
        ("x.pptx", archive({"ppt/presentation.xml": ""}), "is a presentation"),
        ("x.epub", archive({"mimetype": "application/epub+zip", "META-INF/container.xml": ""}), "is a broken e-book"),
        ("x", b"\x7fELF\2\1\1\0", "is a program"),
        ("x.exe", b"MZ\x90\0\3\0", "is a program"),
        ("x.woff2", b"wOF2\0\1", "is a font"),
        ("x.db", b"SQLite format 3\0", "is a database"),
        ("x.dat", b"\1\2\0\3" * 50, "is a binary file"),
        ("x.rtf", rb"{\rtf1\ansi words}", "is an RTF document; save it as .docx"),
        ("x.min.js", b"var a=1;", "is minified code"),
        ("app.js", b"f(1);" * 2000, "is minified code"),
        ("package-lock.json", b"{}", "is a generated lock file"),
        ("a.js.map", b'{"mappings":"AAAA"}', "is a source map"),
        ("x.ipynb", b"[]", "is a broken notebook"),
        ("x.ipynb", b'{"cells":' + b"[" * 100_000, "is a broken notebook"),
        ("x.ipynb", b'{"cells": []}', "has no text"),
    ],
)
def test_what_has_no_text_says_what_it_is(readers: Readers, name: str, data: bytes, said: str) -> None:
    assert reason(lambda: readers.read(name, data)) == said


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"key;value\na;1\n"),
        ("a.json", b'{"a": 1}'),
        ("a.log", b"12:00 \x1b[31merror\x1b[0m\n"),
        ("BM", b"BM, they say"),
        ("GGUF.txt", b"GGUF is a format"),
        ("g", b"GIF89a is one"),
        ("MZ", b"MZ was his sign"),
        ("a.js", b"f(1);\n" * 2000),
        ("x.map", b"a map"),
        ("Cargo.toml", b"[package]\n"),
        ("page.php", b"<!doctype html><?php echo 1 ?>\n"),
        ("RIFF", b"RIFF raff"),
        ("ftyp.txt", b"the ftyp box\n"),
        ("p.txt", b"the signature is %PDF-1.4\n"),
    ],
)
def test_text_is_never_taken_for_something_else(readers: Readers, name: str, data: bytes) -> None:
    assert text_of(readers.read(name, data)).strip() == data.decode().strip()


def test_html_is_known_by_how_it_begins(readers: Readers) -> None:
    for data in (b"\xef\xbb\xbf <!-- by hand -->\n<!DOCTYPE html><p>words", b"<html><p>words"):
        assert text_of(readers.read("page", data)) == "words"


def test_an_empty_file_has_nothing_wrong(readers: Readers) -> None:
    assert readers.read("__init__.py", b"").sections == ()


def test_notebooks_are_read_by_cells_without_what_their_code_gave(readers: Readers) -> None:
    data = (
        b'{"cells": [{"cell_type": "markdown", "source": ["# Study\\n", "Intro"]},'
        b'{"cell_type": "code", "source": "", "outputs": []},'
        b'{"cell_type": "code", "source": ["x = 1\\n", "x"], "outputs": [{"text": "SECRET"}]},'
        b'{"cell_type": "markdown", "source": "## Part\\nwords"}, {"cell_type": "code", "source": "y"}]}'
    )
    content = readers.read("study.ipynb", data)
    assert content.title == "Study"
    assert [(section.titles, section.text, section.first, section.code) for section in content.sections] == [
        (("Study",), "# Study\nIntro", 1, False),
        (("Study",), "x = 1\nx", 3, True),
        (("Study", "Part"), "## Part\nwords", 4, False),
        (("Study", "Part"), "y", 5, True),
    ]
