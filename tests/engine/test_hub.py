"""Models fetched from Hugging Face, by its own client from a stand-in."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from gguf_samples import chat_model, header

from corpus import corpus
from kvchat.backends.engine import hub
from kvchat.backends.engine.folders import hub_cache
from kvchat.backends.engine.hub import HubError, HubName, chosen, hub_name
from kvchat.backends.engine.models import find_models
from kvchat.text.format import size
from standins.hub import COMMIT, Hub, running_hub

MODEL = header(chat_model()) + bytes(range(256)) * 12_000
"""3 MB: three of the pieces that a download is made of."""
PATIENT = {"HF_HUB_DOWNLOAD_TIMEOUT": "600", "HF_HUB_ETAG_TIMEOUT": "600"}
REPO = "org/Tiny-GGUF"
FILES = {"README.md": b"words", "Tiny-Q2_K.gguf": b"GGUF", "Tiny-Q4_K_M.gguf": MODEL, "mmproj-Tiny.gguf": b"GGUF"}


@corpus(
    ("text", "name"),
    [
        ("Qwen/Qwen3-4B-GGUF", ("Qwen/Qwen3-4B-GGUF", "")),
        (" Qwen/Qwen3-4B-GGUF:q8_0 ", ("Qwen/Qwen3-4B-GGUF", "q8_0")),
        ("a/b:latest", ("a/b", "")),
        ("hf.co/a/b:Q4_0", ("a/b", "Q4_0")),
        ("https://huggingface.co/a/b", ("a/b", "")),
        ("https://huggingface.co/a/b/tree/main", ("a/b", "")),
        ("https://huggingface.co/a/b/blob/main/UD-Q4/b.gguf", ("a/b", "UD-Q4/b.gguf")),
        ("https://huggingface.co/a/b/resolve/main/b.gguf?download=true", ("a/b", "b.gguf")),
        ("a/b/c.gguf", ("a/b", "c.gguf")),
        ("models/b.gguf", None),
        ("~/a/b", None),
        ("./a/b", None),
        ("qwen3", None),
        ("a/b c", None),
        ("http://127.0.0.1:8080/v1", None),
        ("https://example.org/a/b", None),
    ],
)
def test_a_models_name_is_recognised_in_every_spelling(text: str, name: tuple[str, str] | None) -> None:
    assert hub_name(text) == (HubName(*name) if name else None)


def test_the_address_may_be_a_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert hub_name("https://mirror.example/a/b:Q8_0") == HubName("a/b", "Q8_0")


@corpus(
    ("tag", "files", "taken"),
    [
        ("", ["a.gguf", "x-Q4_K_M.gguf"], ["x-Q4_K_M.gguf"]),
        ("", ["mmproj-x-Q4_K_M.gguf", "x.imatrix.gguf", "x-Q2_K.gguf", "x-Q8_0.gguf"], ["x-Q2_K.gguf"]),
        ("", ["MTP/mtp-x.gguf", "x-Q8_0.gguf"], ["x-Q8_0.gguf"]),
        ("", ["x-Q8_0.gguf", "mtp-x-Q4_K_M.gguf", "x-draft-Q4_K_M.gguf"], ["x-Q8_0.gguf"]),
        ("", ["x-eagle3-Q4_K_M.gguf", "lora/x-Q4_K_M.gguf", "ggml-vocab-x.gguf", "x-F16.gguf"], ["x-F16.gguf"]),
        ("", ["clip-Q4_K_M.gguf", "x-embedding-Q4_K_M.gguf", "x-Reranker-Q4_K_M.gguf", "x-Q6_K.gguf"], ["x-Q6_K.gguf"]),
        ("", ["x-BF16.gguf", "x-Q2_K.gguf", "x-Q5_K_M.gguf", "x-Q3_K_M.gguf"], ["x-Q5_K_M.gguf"]),
        ("", ["x-IQ4_XS.gguf", "x-Q4_0.gguf", "x-Q4_K_S.gguf"], ["x-Q4_K_S.gguf"]),
        ("", ["x-BF16.gguf", "x-Q3_K_M.gguf"], ["x-Q3_K_M.gguf"]),
        ("mtp-x.gguf", ["mtp-x.gguf", "x-Q8_0.gguf"], ["mtp-x.gguf"]),
        (
            "",
            ["BF16/x-BF16-00001-of-00002.gguf", "BF16/x-BF16-00002-of-00002.gguf", "x-UD-Q4_K_XL.gguf"],
            ["x-UD-Q4_K_XL.gguf"],
        ),
        ("q4_k", ["x-Q4_K_M.gguf", "x.Q4_K.gguf"], ["x.Q4_K.gguf"]),
        ("Q4_K_XL", ["x-UD-Q4_K_XL.gguf"], ["x-UD-Q4_K_XL.gguf"]),
        ("d/x.gguf", ["x.gguf", "d/x.gguf"], ["d/x.gguf"]),
        (
            "BF16",
            ["BF16/x-BF16-00002-of-00002.gguf", "BF16/x-BF16-00001-of-00002.gguf", "x-Q8_0.gguf"],
            ["BF16/x-BF16-00001-of-00002.gguf", "BF16/x-BF16-00002-of-00002.gguf"],
        ),
    ],
)
def test_the_file_is_the_model_nearest_to_the_usual_one(tag: str, files: list[str], taken: list[str]) -> None:
    assert chosen(HubName("o/r", tag), [(name, 1) for name in files]) == [(name, 1) for name in taken]


def test_a_model_may_have_such_a_word_in_its_name() -> None:
    files = [("Vocab-Tutor-8B-Q4_K_M.gguf", 1), ("mmproj-Vocab-Tutor-8B-F16.gguf", 1)]
    assert chosen(HubName("o/r"), files) == files[:1]


@pytest.mark.parametrize(
    ("tag", "files", "words"),
    [
        ("", ["x-embedding-Q4_K_M.gguf", "vocab.gguf"], "o/r has no GGUF model."),
        ("", ["model.safetensors", "mmproj-x.gguf"], "o/r has no GGUF model. Look for a repository"),
        ("Q5_K_M", ["x-Q4_K_M.gguf", "x-Q8_0.gguf"], "o/r has no Q5_K_M. It has: Q4_K_M, Q8_0."),
        ("", ["x-00001-of-00002.gguf"], "o/r lacks parts of x-00001-of-00002.gguf."),
    ],
)
def test_what_cannot_be_chosen_is_said(tag: str, files: list[str], words: str) -> None:
    with pytest.raises(HubError, match=words):
        chosen(HubName("o/r", tag), [(name, 1) for name in files])


def test_the_cache_is_the_one_of_llama_server(tmp_path: Path) -> None:
    def cache(**env: str) -> Path:
        return hub_cache(env, tmp_path)

    assert cache() == tmp_path / ".cache/huggingface/hub"
    assert cache(XDG_CACHE_HOME="/x") == Path("/x/huggingface/hub")
    assert cache(HF_HOME="~/hf", XDG_CACHE_HOME="/x") == tmp_path / "hf/hub"
    assert cache(HF_HUB_CACHE="/hub", HF_HOME="/hf") == Path("/hub")
    assert cache(LLAMA_CACHE="/llama", HF_HUB_CACHE="/hub") == Path("/llama")


@pytest.fixture
def there() -> Iterator[Hub]:
    with running_hub(Hub({REPO: FILES})) as running:
        yield running


def command(home: Path, there: Hub, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """`kvchat pull` under way."""
    left_out = ("HF_", "LLAMA_", "XDG_", "KVCHAT_")
    kept: Mapping[str, str] = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return subprocess.Popen(
        [sys.executable, "-m", "kvchat.cli", "pull", *arguments],
        env={**kept, **PATIENT, "HOME": str(home), "HF_ENDPOINT": there.url, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pulled(home: Path, there: Hub, *arguments: str, **env: str) -> tuple[int, str, str]:
    with command(home, there, *arguments, **env) as process:
        out, err = process.communicate()
        return process.returncode, out, err


@pytest.mark.process
def test_a_model_comes_into_the_cache_and_is_found_there(tmp_path: Path, there: Hub) -> None:
    status, out, err = pulled(tmp_path, there, REPO)
    assert status == 0, err
    path = Path(out.strip())
    assert path == tmp_path / f".cache/huggingface/hub/models--org--Tiny-GGUF/snapshots/{COMMIT}/Tiny-Q4_K_M.gguf"
    assert path.read_bytes() == MODEL and path.is_symlink()
    assert (path.parents[2] / "refs/main").read_text() == COMMIT
    assert err.startswith(f"Tiny-Q4_K_M.gguf: 3.1 MB from {there.url}/{REPO}\nFetched and checked in ")
    found = {model.path: model for model in find_models({}, tmp_path, tmp_path)}[path]
    assert (found.name, found.source) == ("Tiny", "Hugging Face")
    assert pulled(tmp_path, there, f"{REPO}:q4_k_m")[:2] == (0, out) and len(there.ranges()) == 1


@pytest.mark.process
def test_ctrl_c_keeps_what_came_and_the_next_pull_goes_on_from_there(tmp_path: Path, there: Hub) -> None:
    there.stalls_at = len(MODEL) - 500_000
    with command(tmp_path, there, REPO) as process:

        def begun() -> list[Path]:
            parts = tmp_path.glob("**/blobs/*.incomplete")
            return [part for part in parts if part.stat().st_size >= 2 * 1024 * 1024]

        while not begun():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err.splitlines()[-1]) == (
        130,
        f"Stopped, what came is kept. To go on: kvchat pull {REPO}",
    )
    came = begun()[0].stat().st_size
    there.stalls_at = None
    status, out, err = pulled(tmp_path, there, REPO)
    assert (status, Path(out.strip()).read_bytes()) == (0, MODEL), err
    assert there.ranges() == ["", f"bytes={came}-"]


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_nothing_goes_on_behind_one_that_is_killed_while_nothing_comes(tmp_path: Path, number: signal.Signals) -> None:
    repo, here = f"org/{tmp_path.name}{number.value}", bytes(tmp_path)

    def runs() -> bool:
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if b"hub_child" in (path / "cmdline").read_bytes() and here in (path / "environ").read_bytes():
                    return True
        return False

    with running_hub(Hub({repo: FILES}, stalls_at=len(MODEL) - 500_000)) as there:
        with command(tmp_path, there, repo) as process:
            while not any(part.stat().st_size >= 2 << 20 for part in tmp_path.glob("**/blobs/*.incomplete")):
                time.sleep(0.01)
            assert runs()
            process.send_signal(number)
        assert process.returncode
        until = time.monotonic() + 30
        while runs() and time.monotonic() < until:
            time.sleep(0.01)
        assert not runs()


@pytest.mark.process
def test_a_damaged_download_is_not_kept(tmp_path: Path, there: Hub) -> None:
    there.is_damaged = True
    status, out, err = pulled(tmp_path, there, REPO)
    assert (status, out) == (1, "")
    assert err.endswith("kvchat: Tiny-Q4_K_M.gguf arrived damaged and was deleted. Fetch it again.\n")
    assert not list(tmp_path.glob("**/blobs/*"))
    there.is_damaged = False
    assert pulled(tmp_path, there, REPO)[0] == 0


@pytest.mark.process
def test_a_split_model_comes_whole_into_the_cache_that_is_named(tmp_path: Path) -> None:
    parts = {f"q8_0/big-Q8_0-0000{i}-of-00002.gguf": MODEL[: 1000 * i] for i in (1, 2)}
    with running_hub(Hub({REPO: {**FILES, **parts}})) as there:
        status, out, err = pulled(tmp_path, there, f"{REPO}:Q8_0", LLAMA_CACHE=str(tmp_path / "llama"))
    assert (status, err.splitlines()[0]) == (
        0,
        f"big-Q8_0-00001-of-00002.gguf: 3.0 kB in 2 parts from {there.url}/{REPO}",
    )
    first = Path(out.strip())
    assert first.is_relative_to(tmp_path / "llama")
    assert [part.name for part in sorted(first.parent.iterdir())] == [name.partition("/")[2] for name in parts]


GOOD = chat_model()
OTHERS = {
    "a projector": {"general.architecture": "clip", "general.type": "mmproj"},
    "an adapter": {**GOOD, "general.type": "adapter"},
    "an embedder": {**GOOD, "general.architecture": "bert", "bert.context_length": 512},
    "a draft head": {**GOOD, "general.architecture": "eagle3", "eagle3.context_length": 512},
    "another draft head": {**GOOD, "general.architecture": "gemma4-assistant", "gemma4-assistant.context_length": 512},
    "a vocabulary": {"general.architecture": "llama", "tokenizer.ggml.model": "llama"},
}


@pytest.mark.process
@pytest.mark.parametrize("kind", OTHERS)
def test_what_its_header_says_is_no_model_to_chat_with_is_passed_over(tmp_path: Path, kind: str) -> None:
    """Nothing in its name tells."""
    other = header(OTHERS[kind], tensors=0 if kind == "a vocabulary" else 1) + bytes(900_000)
    files = {"a-Q4_K_M.gguf": other, "b-Q8_0.gguf": header(GOOD) + bytes(900_000)}
    with running_hub(Hub({REPO: files, "org/only": {"a-Q4_K_M.gguf": other}})) as there:
        status, out, err = pulled(tmp_path, there, REPO)
        assert (status, Path(out.strip()).name) == (0, "b-Q8_0.gguf"), err
        status, out, err = pulled(tmp_path, there, "org/only:Q4_K_M")
        assert (status, out) == (1, "")
        assert re.fullmatch(r"kvchat: org/only has no model to chat with: a-Q4_K_M.gguf is (?:an?|the) .*\.\n", err)
        assert pulled(tmp_path, there, "org/only/a-Q4_K_M.gguf")[0] == 0, "who names the file wants it"


@pytest.mark.process
def test_without_a_name_the_models_to_begin_with_are_listed(tmp_path: Path, there: Hub) -> None:
    status, out, err = pulled(tmp_path, there)
    offers = hub.suggested()
    assert status == 0
    assert [line.split("  ")[0] for line in out.splitlines()] == [name for name, _ in offers]
    assert all(line.endswith(about) for line, (_, about) in zip(out.splitlines(), offers, strict=True))
    assert err == f"To fetch the first: kvchat pull {offers[0][0]}\n" and not there.asked


@pytest.mark.process
def test_the_token_opens_what_is_private_and_goes_to_the_hub_alone(tmp_path: Path, there: Hub) -> None:
    there.token = "secret"
    assert f"{there.url} shows no model {REPO}: check the name; a private one" in pulled(tmp_path, there, REPO)[2]
    there.is_gated = True
    assert f"accepted: do that at {there.url}/{REPO}, then set HF_TOKEN." in pulled(tmp_path, there, REPO)[2]
    assert pulled(tmp_path, there, REPO, HF_TOKEN="secret")[0] == 0
    assert there.tokens_at_files == [False, False], "where it is looked into, and where it is fetched"


@pytest.mark.process
def test_what_is_no_name_and_a_hub_that_is_not_there_are_one_sentence(tmp_path: Path, there: Hub) -> None:
    assert pulled(tmp_path, there, "qwen3")[::2] == (
        2,
        "kvchat: qwen3 is no model's name on Hugging Face. They look like OWNER/REPO or OWNER/REPO:Q4_K_M.\n",
    )
    nowhere = "http://127.0.0.1:9"
    assert pulled(tmp_path, there, REPO, HF_ENDPOINT=nowhere)[::2] == (
        1,
        f"kvchat: {nowhere} cannot be reached: Connection refused.\n",
    )
    assert pulled(tmp_path, there, REPO, HF_HOME="/proc/nowhere")[::2][0] == 1


async def test_without_the_package_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda _: None)
    with pytest.raises(HubError, match=r"needs one more package: pip install 'kvchat\[pull\]'"):
        await hub.find(HubName("a/b"))


def test_the_models_to_begin_with_stand_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs/servers.md").read_text()
    for name, octets, memory in hub.SUGGESTED:
        assert f"| {memory} GB | `{name}` | {size(octets)} |" in page


@pytest.mark.parametrize(("memory", "first"), [(2, "1.7B"), (7.6, "4B"), (15.5, "8B"), (64, "30B-A3B")])
def test_the_model_for_the_memory_of_this_machine_is_offered_first(
    monkeypatch: pytest.MonkeyPatch, memory: float, first: str
) -> None:
    monkeypatch.setattr(hub.os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else int(memory * 2**18))
    assert [name for name, about in hub.suggested() if about.endswith("as here")] == [f"Qwen/Qwen3-{first}-GGUF"]
    assert hub.suggested()[0][0] == f"Qwen/Qwen3-{first}-GGUF"
