"""Read the parts of a ZIP archive of XML, as office texts and e-books are.

Nothing is inflated beyond `LARGEST` bytes in all, and XML that defines anything of its own is refused; so neither a
bomb of ZIP nor one of entities goes off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, TypeVar

from kvchat.documents.errors import FileUnreadableError, attempted

if TYPE_CHECKING:
    from zipfile import ZipFile

T = TypeVar("T")

LARGEST = 64 << 20
"""Bytes of XML of one file."""
_PIECE = 1 << 16


class Handler:
    """Receives the elements of a part, as a target of `xml.etree.ElementTree.XMLParser` does."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, tag: str) -> None:
        """It ends."""

    def data(self, text: str) -> None:
        """Text in the innermost element."""

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        """Refused: with it, entities could be defined."""
        raise FileUnreadableError("has a document type in its XML, which is not safe to read")

    def close(self) -> None:
        """The part ends."""


class Zipped:
    """The parts of a file that is an archive of XML. Raises UnreadableError where there is no archive."""

    def __init__(self, data: bytes, what: str) -> None:
        from zipfile import ZipFile

        self._broken = FileUnreadableError(f"is a broken {what}")
        self._left = LARGEST
        file = attempted(lambda: ZipFile(BytesIO(data)))
        if file is None:
            raise self._broken
        self._file: ZipFile = file

    def __contains__(self, name: str) -> bool:
        return name in self._file.NameToInfo

    def holds(self, name: str, mark: bytes) -> bool:
        """Whether a part has these bytes in its first 64 KiB."""
        return bool(attempted(lambda: mark in self._file.open(name).read(_PIECE)))

    def parse(self, name: str, handler: Handler, *, optional: bool = False) -> None:
        """Tell the handler all of a part. Raises UnreadableError where it is missing (but an `optional` one), broken or
        too large."""
        from xml.etree.ElementTree import XMLParser

        if optional and name not in self:
            return
        parser = XMLParser(target=handler)

        def parse() -> None:
            for piece in self._pieces(name):
                parser.feed(piece)
            parser.close()

        self._checked(parse)

    def read(self, name: str) -> bytes:
        """All bytes of a part. Raises UnreadableError where it is missing, broken or too large."""
        return self._checked(lambda: b"".join(self._pieces(name)))

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._file.open(name) as part:
            while piece := part.read(_PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise FileUnreadableError(f"has more than {LARGEST >> 20} MB of XML inside")
                yield piece

    def _checked(self, work: Callable[[], T]) -> T:
        """What `work` gives. Raises UnreadableError where a part is missing, broken or too large."""
        try:
            return work()
        except (FileUnreadableError, MemoryError):
            raise
        except RuntimeError as error:  # how zipfile asks for a password
            raise (FileUnreadableError("is encrypted") if "password" in str(error) else self._broken) from None
        except Exception:  # of zipfile, zlib or the parser
            raise self._broken from None


class _Title(Handler):
    """The title among the properties."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._inside = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._inside = tag == "{http://purl.org/dc/elements/1.1/}title"

    def end(self, tag: str) -> None:
        self._inside = False

    def data(self, text: str) -> None:
        if self._inside:
            self.parts.append(text)


def title_in(archive: Zipped, part: str) -> str:
    """The title that a file's properties name."""
    title = _Title()
    with suppress(FileUnreadableError):
        archive.parse(part, title, optional=True)
    return " ".join("".join(title.parts).split())
