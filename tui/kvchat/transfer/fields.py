"""Reading foreign JSON objects field by field.

The rule: a value has the type that was asked for, or a `TransferError` says which field of what is wrong.
"""

from __future__ import annotations

import math

from kvchat.transfer.source import TransferError

_LARGEST = 2**63 - 1

class Fields:
    """The fields of one JSON object, and where it stands, in words."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise TransferError(f"{where} is not a JSON object. Nothing was read.")
        self._values = value

    def wrong(self, name: str, wanted: str) -> TransferError:
        return TransferError(f"{self.where}: the field {name} is not {wanted}. Nothing was read.")

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def is_text(self, name: str) -> bool:
        return isinstance(self._values.get(name), str)

    def optional_text(self, name: str) -> str | None:
        return None if self._values.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
            raise self.wrong(name, "a whole number of 64 bits")
        return value

    def optional_whole(self, name: str) -> int | None:
        return None if self._values.get(name) is None else self.whole(name)

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if isinstance(value, int):
            return self.whole(name)
        if not isinstance(value, float) or not math.isfinite(value):
            raise self.wrong(name, "a number")
        return value

    def optional_number(self, name: str) -> float | None:
        return None if self._values.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def optional_flag(self, name: str) -> bool | None:
        return None if self._values.get(name) is None else self.flag(name)

    def items(self, name: str) -> list[object]:
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        found = tuple(value for value in self.items(name) if isinstance(value, str))
        if len(found) != len(self.items(name)):
            raise self.wrong(name, "a list of texts")
        return found

    def optional_texts(self, name: str) -> tuple[str, ...] | None:
        return None if self._values.get(name) is None else self.texts(name)

    def mapping(self, name: str) -> dict[str, object]:
        value = self._values.get(name)
        if not isinstance(value, dict):
            raise self.wrong(name, "a JSON object")
        return value

    def inner(self, name: str) -> Fields:
        return Fields(self._values.get(name), f"{self.where}, {name}")

    def optional_mapping(self, name: str) -> dict[str, object] | None:
        return None if self._values.get(name) is None else self.mapping(name)

    def optional_inner(self, name: str) -> Fields | None:
        return None if self._values.get(name) is None else self.inner(name)
