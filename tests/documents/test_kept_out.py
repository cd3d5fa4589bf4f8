"""What keeps out never fails open; what stays out although it can be read: secrets, and what kvchat wrote itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from indexing_kit import OPTIONS, indexed, made, paths, reasons, skipped

from corpus import corpus
from kvchat.documents.collection import IndexingOptions
from kvchat.documents.kept_out import CONVERSATION, MEMORY_PAGE, SECRET, is_secret_name, looks_secret
from kvchat.documents.trunks import gathered
from kvchat.index.index import Index
from kvchat.memory.entry import Entry, Kind
from kvchat.memory.pages.page import MemoryPage
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.prompt.tree import Tree
from kvchat.transfer.formats import Source, render
from kvchat.transfer.mirror import MirrorFolder

RULES = "secret.md\r\nprivate/\r\ngehört/\r\n"
KEY = (
    "-----BEGIN {}PRIVATE KEY-----\n"
    + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEA\n" * 2
    + "-----END PRIVATE KEY-----\n"
)


def tree(folder: Path, ignore: str, rules: bytes) -> Path:
    names = ("secret.md", "private/a.md", "gehört/b.md", "open.md")
    return made(folder, {ignore: rules, **dict.fromkeys(names, "swordfish\n")})


@pytest.mark.parametrize("ignore", [".gitignore", ".ignore", ".kvchatignore"])
@pytest.mark.parametrize(
    "rules",
    [
        RULES.encode("utf-16"),
        RULES.encode("utf-16-le"),
        b"\xfe\xff" + RULES.encode("utf-16-be"),
        RULES.encode("utf-32"),
        b"secret.md\n" + "private/\n".encode("utf-16-le") + "gehört/\n".encode(),
        RULES.encode("utf-8-sig"),
        RULES.encode("cp1252"),
        RULES.replace("\r\n", "\r").encode(),
        RULES.replace("ö", "o\u0308").encode(),
    ],
)
def test_an_ignore_file_keeps_out_whatever_program_wrote_it(tmp_path: Path, ignore: str, rules: bytes) -> None:
    assert paths(tree(tmp_path / "r", ignore, rules)) == ["open.md"]


def test_a_name_is_kept_out_in_either_unicode_form(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {".gitignore": "gehört/\n", "geho\u0308rt/b.md": "", "open.md": ""})
    assert paths(root) == ["open.md"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("gehört/".encode("cp1252"), "Windows-1252"),
        ("привет/".encode("utf-16-le"), "cannot be read"),
        (b"a*b*c*d*e.md", "passed over"),
        (b"\xef\xbf\xbd.md", "cannot be read"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_with_its_place(tmp_path: Path, line: bytes, word: str) -> None:
    told = skipped(tree(tmp_path / "r", ".gitignore", b"# rules\nsecret.md\n" + line + b"\n" + line + b"\n"))
    assert list(told) == [".gitignore:3"] and word in told[".gitignore:3"]


def test_a_folder_whose_ignore_file_cannot_be_read_is_not_indexed(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"sub/deep/a.md": "", "sub/b.md": "", "open.md": "", "sub/.gitignore": ""})
    os.truncate(root / "sub/.gitignore", 2_000_000)
    assert paths(root) == ["open.md"]
    assert skipped(root) == {"sub/.gitignore": "is larger than 1 MB; its folder is not indexed until it can be"}


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_what_is_no_file_keeps_its_folder_out(tmp_path: Path, make) -> None:
    root = made(tmp_path / "r", {"a.md": ""})
    make(root / ".gitignore")
    assert paths(root) == [] and list(skipped(root)) == [".gitignore"]


def test_an_ignore_file_above_that_cannot_be_read_keeps_everything_out(tmp_path: Path) -> None:
    made(tmp_path / "r", {".git/": "", ".gitignore": "", "docs/a.md": ""})
    os.truncate(tmp_path / "r/.gitignore", 2_000_000)
    assert paths(tmp_path / "r/docs") == [] and list(skipped(tmp_path / "r/docs")) == ["../.gitignore"]


def test_a_link_to_an_ignore_file_is_followed(tmp_path: Path) -> None:
    made(tmp_path, {"shared": "secret.md\n"})
    root = made(tmp_path / "r", {"secret.md": "", "open.md": ""})
    (root / ".gitignore").symlink_to("../shared")
    assert paths(root) == ["open.md"]


# -- secrets


@corpus(
    ("name", "is_one"),
    [
        *(
            (name, True)
            for name in ("id_rsa", "ID_ED25519", "server.key", "cert.pem", "prod.env", ".env", ".env.local")
        ),
        *((name, True) for name in ("a.env.bak", ".netrc", "_netrc", "vault.kdbx", "putty.ppk", ".git-credentials")),
        *((name, False) for name in ("id_rsa.pub", "id_card.md", "env.md", "environment", ".env.example", "key.md")),
        *((name, False) for name in ("vite-env.d.ts", "monkey", "pem.txt")),
    ],
)
def test_a_secret_by_its_name(name: str, is_one: bool) -> None:
    assert is_secret_name(name) is is_one


@pytest.mark.parametrize(
    "text",
    [
        KEY.format("OPENSSH "),
        KEY.format("RSA "),
        KEY.format(""),
        "\ufeff\n" + KEY.format("EC ").replace("\n", "\r\n"),
        "Bag Attributes\n    friendlyName: x\n" + KEY.format("ENCRYPTED "),
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n" + KEY.format(""),
        "data:\n  tls.key: |\n" + "".join(f"    {line}\n" for line in KEY.format("").splitlines()),
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n",
        "PuTTY-User-Key-File-3: ssh-ed25519\n",
        '{\n  "type": "service_account",\n  "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}\n',
    ],
)
def test_a_private_key_is_not_indexed_whatever_it_is_called(tmp_path: Path, text: str) -> None:
    root = made(tmp_path / "r", {"notes.txt": text, "wide.txt": text.encode("utf-16"), "open.md": "Run make.\n"})
    report = indexed(Index.open(None), root)
    assert report.added == 1 and reasons(report.skipped) == {"notes.txt": SECRET, "wide.txt": SECRET}
    assert indexed(Index.open(None), root / "notes.txt").added == 1, "who wants it names the file"


def test_what_speaks_of_keys_is_indexed(tmp_path: Path) -> None:
    text = "A key begins with -----BEGIN PRIVATE KEY----- and ends.\n-----BEGIN CERTIFICATE-----\nMIIB\n"
    assert paths(made(tmp_path / "r", {"keys.md": text})) == ["keys.md"] and not looks_secret("/x/keys.md", text)
    assert indexed(Index.open(None), tmp_path / "r").added == 1


def test_secrets_are_left_out_with_the_reason_hidden_ones_too(tmp_path: Path) -> None:
    root = made(tmp_path / "r", dict.fromkeys(("id_rsa", "deploy/prod.env", ".env", "cert.pem", "open.md"), "x"))
    assert paths(root) == ["open.md"]
    assert skipped(root) == dict.fromkeys(("id_rsa", "deploy/prod.env", "cert.pem"), SECRET)
    assert skipped(root, IndexingOptions(hidden=True))[".env"] == SECRET


# -- what kvchat wrote


def written_by_kvchat(folder: Path) -> None:
    system = node(None, system_message("Be brief."), 1.0)
    question = node(system, Message(Role.USER, "What is the keeper called?"), 2.0)
    answer = node(question, Message(Role.ASSISTANT, "I guess Zanzibar."), 3.0)
    source = Source(Conversation("ab" * 16, answer.id, 1.0, 3.0, "Keeper"), Tree([system, question, answer]))
    MirrorFolder(folder, "chats").put(source)
    for form in ("md", "html", "json", "jsonl"):
        (folder / f"one.{form}").write_text(render(form, [source]))
        (folder / f"two.{form}").write_text(render(form, [source, source]))


def test_what_kvchat_wrote_is_never_read_back(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"lamp.md": "# Lamp\n\nIt turns.\n", "data.json": '{"format": "mine"}'})
    written_by_kvchat(root)
    page = MemoryPage.parse("topics/music.md", "").extended(
        [Entry("m1a2b3c4d", Kind.FACT, "Plays the cello.", "x", 1.0)]
    )
    made(root, {"memory/music.md": page.text, "memory/windows.md": page.text.replace("\n", "\r\n")})
    report = indexed(Index.open(None), root)
    found = reasons(report.skipped)
    assert report.added == 2
    assert {name for name, why in found.items() if why == CONVERSATION} == {
        "chats/keeper-abababab.md",
        *(f"{many}.{form}" for many in ("one", "two") for form in ("md", "html", "json", "jsonl")),
    }
    assert {name for name, why in found.items() if why == MEMORY_PAGE} == {"memory/music.md", "memory/windows.md"}


def test_a_trunk_of_a_folder_has_neither(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"lamp.md": "It turns.\n", "notes.txt": KEY.format("")})
    written_by_kvchat(root)
    found = gathered([str(root)], OPTIONS)
    assert [block.text for block in found.files] == ["It turns.\n"]
    assert {one.reason for one in found.skipped} == {SECRET, CONVERSATION}
    assert gathered([str(root / "notes.txt")], OPTIONS).files[0].text == KEY.format("")


# -- copies


@pytest.mark.parametrize(
    "copy",
    [
        "lamp.sync-conflict-20261101-101010-ABCDEFG.md",
        "lamp (conflicted copy 2026-11-01 101010).md",
        "lamp (Mac's conflicted copy 2026-11-01).md",
        "lamp (mara conflicted copy 2026-11-01).md",
        "lamp_conflict-20261101-101010.md",
        "lamp (SFConflict mara@example.org 2026-11-01-10-10-10).md",
        "lamp (In Konflikt stehende Kopie von Mara 2026-11-01).md",
        "lamp-DESKTOP-AB12CD3.md",
        "lamp-DESKTOP-2.md",
        "lamp-Maras-MacBook-Pro.md",
    ],
)
def test_another_version_of_a_file_is_left_out_and_told(tmp_path: Path, copy: str) -> None:
    root = made(tmp_path / "r", {"lamp.md": "New.\n", copy: "Old.\n"})
    assert paths(root) == ["lamp.md"] and "another version of lamp.md" in skipped(root)[copy]
    (root / "lamp.md").unlink()
    assert paths(root) == [copy], "without its original it is all there is"


def test_files_that_people_call_so_are_indexed(tmp_path: Path) -> None:
    names = ["lamp (1).md", "lamp 2.md", "lamp-final.md", "lamp-laptop-setup.md", "lamp.md", "lamp (new).md"]
    assert sorted(paths(made(tmp_path / "r", dict.fromkeys(names, "")))) == sorted(names)
