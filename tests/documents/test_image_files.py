"""Images made fit to send: small, upright, nothing but pixels; and what cannot be one is refused in a sentence."""

from __future__ import annotations

import base64
import io
import os
from pathlib import Path

import pytest
from PIL import Image as Pillow

from kvchat.documents import images as module
from kvchat.documents.attachments import attached
from kvchat.documents.errors import DocumentError
from kvchat.documents.images import thumbnail_in
from kvchat.documents.reading.sandbox import Readers
from kvchat.prompt.context import IMAGE
from kvchat.store.images import Image
from picture_samples import PLACE, bomb, photo, picture

MOST = 40_000


def _attached(path: Path, data: bytes) -> tuple[list[Image], str]:
    """What is kept of a file, and the text of its block."""
    path.write_bytes(data)
    kept: list[Image] = []
    block = attached(path, path.name, MOST, kept.append)
    assert block.kind == IMAGE and block.source == path.name
    assert block.ref == f"{path}#{kept[0].sha256}"
    return kept, block.text


def _opened(image: Image) -> Pillow.Image:
    head, _, data = image.url.partition(b",")
    assert head in (b"data:image/png;base64", b"data:image/jpeg;base64")
    return Pillow.open(io.BytesIO(base64.b64decode(data)))


def test_a_small_picture_keeps_its_pixels(tmp_path: Path) -> None:
    data = picture(640, 480)
    (image,), size = _attached(tmp_path / "lamp.png", data)
    assert size == "640x480" and image.url.startswith(b"data:image/png")
    assert _opened(image).tobytes() == Pillow.open(io.BytesIO(data)).tobytes()


def test_a_photo_is_upright_has_a_megapixel_and_tells_nothing_of_where_it_was_taken(tmp_path: Path) -> None:
    (image,), size = _attached(tmp_path / "IMG_1.JPG", photo(3000, 2000))
    opened = _opened(image)
    assert opened.height > opened.width and f"{opened.width}x{opened.height}" == size
    assert 1_000_000 < opened.width * opened.height <= 1 << 20
    assert not opened.getexif() and set(opened.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    assert PLACE.encode() not in base64.b64decode(image.url.partition(b",")[2])


@pytest.mark.parametrize(
    ("format", "options"),
    [("GIF", {}), ("WEBP", {}), ("BMP", {}), ("TIFF", {}), ("PNG", {"pnginfo": None}), ("JPEG", {"quality": 60})],
)
def test_every_usual_format_becomes_png_or_jpeg(tmp_path: Path, format: str, options: dict[str, object]) -> None:
    (image,), size = _attached(tmp_path / f"a.{format.lower()}", picture(100, 80, format=format, **options))
    assert size == "100x80" and _opened(image).mode == "RGB"


def test_what_is_clear_is_white(tmp_path: Path) -> None:
    held = io.BytesIO()
    Pillow.new("RGBA", (30, 20), (255, 0, 0, 0)).save(held, "PNG")
    (image,), _ = _attached(tmp_path / "clear.png", held.getvalue())
    assert _opened(image).getpixel((3, 3)) == (255, 255, 255)


def test_grey_of_sixteen_bits_stays_grey(tmp_path: Path) -> None:
    held = io.BytesIO()
    Pillow.new("I;16", (30, 20), 0x8000).save(held, "PNG")
    (image,), _ = _attached(tmp_path / "grey.png", held.getvalue())
    assert _opened(image).getpixel((3, 3)) == (128, 128, 128)


def test_a_strip_is_no_longer_than_a_model_reads(tmp_path: Path) -> None:
    _, size = _attached(tmp_path / "strip.png", picture(20_000, 20))
    assert size == "4096x4"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bomb(), "has too many pixels (60,000 x 60,000); make it smaller first"),
        (picture()[:900], "is a broken image"),
        (picture(format="JPEG")[:700], "is a broken image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "is an image that cannot be read; save it as PNG or JPEG"),
        (b"\0\0\0\x18ftypheic" + bytes(200), "is an image that cannot be read; save it as PNG or JPEG"),
        (b"8BPS\0\x01" + bytes(100), "is an image that cannot be read; save it as PNG or JPEG"),
    ],
    ids=["bomb", "cut PNG", "cut JPEG", "no PNG", "HEIC", "PSD"],
)
def test_what_is_no_picture_is_refused_in_a_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "picture"
    path.write_bytes(data)
    kept: list[Image] = []
    with pytest.raises(DocumentError) as error:
        attached(path, path.name, MOST, kept.append)
    assert str(error.value) == f"picture cannot be attached: it {said}." and kept == []


def test_a_file_of_200_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    path.write_bytes(picture())
    os.truncate(path, 200 << 20)
    with pytest.raises(DocumentError, match="it is 200 MB long; an image may have 64 MB"):
        attached(path, path.name, MOST, lambda _: None)


def test_without_the_extra_the_sentence_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    path = tmp_path / "other.png"
    path.write_bytes(picture(text="without"))
    with pytest.raises(DocumentError, match='it needs the extra "images" to be sent: pip install "kvchat'):
        attached(path, path.name, MOST, lambda _: None)


def test_a_thumbnail_is_small_and_what_is_no_picture_has_none() -> None:
    with Readers() as readers:
        found = thumbnail_in(url_of(picture(640, 480)), 48, 24, readers)
        assert found is not None and (found.width, found.height) == (32, 24) and len(found.rgb) == 3 * 32 * 24
        assert found.rgb[:3] != found.rgb[-3:] or len(set(found.rgb)) > 3
        for data in (bomb(), picture()[:500], b"none"):
            assert thumbnail_in(url_of(data), 48, 24, readers) is None


def url_of(data: bytes) -> bytes:
    return b"data:image/png;base64," + base64.b64encode(data)


def test_a_picture_that_did_not_change_is_made_ready_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(module, "image_in", lambda data, readers: made.append(len(data)) or Image(b"data:x", 1, 1))
    path = tmp_path / "often.png"
    path.write_bytes(picture(text="often"))
    for _ in range(3):
        attached(path, path.name, MOST, lambda _: None)
    assert len(made) == 1
