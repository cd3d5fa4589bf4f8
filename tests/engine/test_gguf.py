from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from gguf_samples import ARRAY, STRING, U32, chat_model, header, text, write
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.backends.engine.gguf import WINDOW, GgufError, GgufHeader, read_header
from kvchat.text.engine import EngineProblem


def sentence(path: Path) -> str:
    with pytest.raises(GgufError) as caught:
        read_header(path)
    assert "\n" not in caught.value.sentence and caught.value.sentence.endswith(".")
    return caught.value.sentence


def file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    return path


def test_a_header_tells_what_the_model_is(tmp_path: Path) -> None:
    assert read_header(write(tmp_path / "m.gguf")) == GgufHeader(
        version=3,
        tensors=1,
        architecture="llama",
        kind="model",
        name="Tiny Test",
        context_length=4096,
        quantisation="Q4_K_M",
    )


def test_the_file_name_tells_the_quantisation_better_than_the_header(tmp_path: Path) -> None:
    assert read_header(write(tmp_path / "m-UD-Q4_K_XL.gguf")).quantisation == "Q4_K_XL"
    assert read_header(write(tmp_path / "m.iq3_xxs.gguf")).quantisation == "IQ3_XXS"


def test_a_vocabulary_of_megabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    before = {key: value for key, value in chat_model().items() if not key.startswith("tokenizer")}
    data = bytearray(header(before))
    data[16:24] = struct.pack("<Q", len(before) + 1)
    data += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, STRING, 250_000)
    with path.open("wb") as out:
        out.write(data)
        out.truncate(200 * 2**30)  # a sparse file: reading it whole would not end well
    found = read_header(path)
    assert (found.context_length, found.complete) == (4096, False)


@pytest.mark.parametrize(
    ("entries", "tensors", "what"),
    [
        (chat_model(), 1, None),
        (chat_model(general__type="mmproj", general__architecture="clip"), 1, EngineProblem.PROJECTOR),
        (chat_model(general__type="adapter"), 1, EngineProblem.ADAPTER),
        (chat_model(), 0, EngineProblem.OTHER_KIND),
        (chat_model(split__count=3), 0, None),
        (chat_model(llama__pooling_type=3), 1, EngineProblem.EMBEDDER),
        (chat_model(llama__pooling_type=0), 1, None),
        ({"general.architecture": "nomic-bert", "nomic-bert.context_length": 2048}, 1, EngineProblem.EMBEDDER),
        ({"general.architecture": "flux"}, 1, EngineProblem.OTHER_KIND),
    ],
)
def test_only_models_to_chat_with_chat(
    tmp_path: Path, entries: dict[str, object], tensors: int, what: EngineProblem | None
) -> None:
    assert read_header(write(tmp_path / "m.gguf", entries, tensors=tensors)).no_chat is what


def test_another_kind_of_file_is_named_by_its_beginning(tmp_path: Path) -> None:
    path = file(tmp_path, b"PK\x03\x04 a zip file")
    assert sentence(path) == rf"{path} is not a GGUF model file: it begins with 'PK\x03\x04 a z', not GGUF."
    assert "it is empty" in sentence(file(tmp_path, b""))


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    assert sentence(tmp_path / "none.gguf") == f"There is no file {tmp_path / 'none.gguf'}."
    assert "is a folder" in sentence(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in sentence(tmp_path / "pipe")
    assert "cannot be read" in sentence(tmp_path / "nul\0")


def test_every_truncation_is_called_damaged(tmp_path: Path) -> None:
    whole = header(chat_model())
    for length in range(4, len(whole)):
        assert "damaged" in sentence(file(tmp_path, whole[:length])), length


@pytest.mark.parametrize(
    "data",
    [
        b"GGUF" + struct.pack("<IQQ", 3, 1, 2**64 - 1),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 2**64 - 1),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("k") + struct.pack("<IQ", STRING, 2**63),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("k") + struct.pack("<IIQ", ARRAY, U32, 2**63),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("k") + struct.pack("<IIQ", ARRAY, STRING, 2**63),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes(64),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("k") + struct.pack("<I", 99) + bytes(64),
        b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text(b"k" * 70_000) + bytes(64),
    ],
)
def test_hostile_counts_and_lengths_are_refused(tmp_path: Path, data: bytes) -> None:
    assert "damaged" in sentence(file(tmp_path, data))


@pytest.mark.parametrize("version", [0, 1, 4, 0x03000000])
def test_an_unknown_version_is_refused(tmp_path: Path, version: int) -> None:
    assert "version" in sentence(file(tmp_path, header({}, version=version)))


def test_an_absurd_context_length_is_unknown(tmp_path: Path) -> None:
    assert read_header(write(tmp_path / "m.gguf", chat_model(llama__context_length=2**32 - 1))).context_length is None
    assert read_header(write(tmp_path / "m.gguf", chat_model(llama__context_length="many"))).context_length is None


def test_the_bytes_of_a_token_are_told_where_all_layers_are_alike(tmp_path: Path) -> None:
    def told(**values: object) -> int:
        facts = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, **values}
        named = {f"llama__{key.replace('.', '__')}": value for key, value in facts.items()}
        return read_header(write(tmp_path / "m.gguf", chat_model(**named))).token_bytes

    assert told() == 2 * 2 * 4 * (16 + 16)
    assert told(**{"attention.head_count_kv": 2}) == 2 * 2 * 2 * (16 + 16)
    assert told(**{"attention.key_length": 32}) == 2 * 2 * 4 * (32 + 16)
    assert told(**{"attention.head_count_kv": ["2", "0"]}) == 0
    assert told(block_count=2**31 - 1) == told(embedding_length="wide") == 0


def test_a_name_that_never_ends_is_cut(tmp_path: Path) -> None:
    assert len(read_header(write(tmp_path / "m.gguf", chat_model(general__name="n" * 9000))).name) == 200
    assert read_header(write(tmp_path / "m.gguf", chat_model(general__name="n" * 2 * WINDOW))).complete is False


@settings(max_examples=400, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=8), cut=st.integers(0, 400))
def test_a_mutated_header_gives_a_header_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(header(chat_model()))
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(data[: len(data) - cut])
    try:
        found = read_header(path)
    except GgufError as error:
        assert error.sentence
    else:
        assert found.context_length is None or found.context_length > 0
