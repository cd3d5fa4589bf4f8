"""What of a folder is indexed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvchat.config.settings import DocumentSettings


@dataclass(frozen=True, slots=True)
class Options:
    """Part of the settings, as the indexing process gets them."""

    largest: int = 20_000_000
    """Larger files are skipped. Bytes."""
    hidden: bool = False
    """Whether names that begin with a dot are gone through too."""

    @classmethod
    def of(cls, settings: DocumentSettings) -> Options:
        return cls(settings.largest_file_mb * 1_000_000, settings.hidden)
