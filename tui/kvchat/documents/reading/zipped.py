"""Office files: XML parts in a ZIP archive, taken out safely.

The rule: nothing is inflated beyond `LARGEST` bytes in all, and XML that defines anything of its own is refused; so
neither a bomb of ZIP nor one of entities goes off.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from kvchat.documents.errors import UnreadableError

if TYPE_CHECKING:
    from zipfile import ZipFile

LARGEST = 64 << 20
"""Bytes of XML of one file."""
_PIECE = 1 << 16


class Handler(Protocol):
    """Told of the elements of a part, as `xml.etree.ElementTree.XMLParser` tells its target."""

    def start(self, tag: str, attributes: dict[str, str]) -> Any: ...

    def end(self, tag: str) -> Any: ...

    def data(self, text: str) -> Any: ...


class _Guarded:
    """Passes on what a parser tells, but for a document type: with it, entities could be defined."""

    def __init__(self, handler: Handler) -> None:
        self.start = handler.start
        self.end = handler.end
        self.data = handler.data

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise UnreadableError("has a document type in its XML, which is not safe to read")

    def close(self) -> None:
        pass


class Zipped:
    """The parts of an office file. Raises UnreadableError where there is no archive."""

    def __init__(self, data: bytes, what: str) -> None:
        from zipfile import ZipFile

        self._broken = UnreadableError(f"is a broken {what}")
        self._left = LARGEST
        try:
            self._file: ZipFile = ZipFile(BytesIO(data))
        except MemoryError:
            raise
        except Exception:  # zipfile lets errors of many kinds through
            raise self._broken from None

    def __contains__(self, name: str) -> bool:
        return name in self._file.NameToInfo

    def holds(self, name: str, mark: bytes) -> bool:
        """Whether a part has these bytes in its first 64 KiB."""
        if name not in self:
            return False
        try:
            with self._file.open(name) as part:
                return mark in part.read(_PIECE)
        except MemoryError:
            raise
        except Exception:
            return False

    def parse(self, name: str, handler: Handler) -> None:
        """Tell the handler all of a part. Raises UnreadableError where it is missing, broken or too large."""
        from xml.etree.ElementTree import XMLParser

        parser = XMLParser(target=_Guarded(handler))
        try:
            with self._file.open(name) as part:
                while piece := part.read(_PIECE):
                    self._left -= len(piece)
                    if self._left < 0:
                        raise UnreadableError(f"has more than {LARGEST >> 20} MB of XML inside")
                    parser.feed(piece)
            parser.close()
        except (UnreadableError, MemoryError):
            raise
        except RuntimeError as error:  # how zipfile asks for a password
            raise (UnreadableError("is encrypted") if "password" in str(error) else self._broken) from None
        except Exception:  # of zipfile, zlib or the parser
            raise self._broken from None


class Words:
    """A handler that collects the text of the elements of one name."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._inside = False
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        return " ".join("".join(self._parts).split())

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._inside = tag == self._tag

    def end(self, tag: str) -> None:
        self._inside = False

    def data(self, text: str) -> None:
        if self._inside:
            self._parts.append(text)


def title_in(archive: Zipped, part: str) -> str:
    """The title that a file's properties name."""
    words = Words("{http://purl.org/dc/elements/1.1/}title")
    try:
        if part in archive:
            archive.parse(part, words)
    except UnreadableError:
        pass
    return words.text
