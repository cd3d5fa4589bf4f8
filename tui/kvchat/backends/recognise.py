"""What servers say of themselves: the answers to a few harmless GETs, from which a dialect knows its own.

The rule: pure. Who asks (`identify`, `discovery`) decides when; a path that was not asked, or not answered, is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.backends.payload import PayloadError, is_object, parsed


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a GET."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def value(self) -> object:
        """The JSON value of the body; None where it is not JSON or the status is not 200."""
        if self.status != 200:
            return None
        try:
            return parsed(self.text)
        except PayloadError:
            return None

    @property
    def fields(self) -> Mapping[str, object]:
        """The JSON object of the body; empty where it is none or the status is not 200."""
        value = self.value
        return value if is_object(value) else {}


Responses = Mapping[str, Response]
"""By path, as asked: `/props`."""
NO_RESPONSE = Response(0, {}, b"")


def said(responses: Responses, path: str) -> Response:
    """The answer to `path`; `NO_RESPONSE` where there is none."""
    return responses.get(path, NO_RESPONSE)


def owners(responses: Responses) -> frozenset[str]:
    """Who owns the models in `/v1/models`, as the server names them; lower case."""
    listing = said(responses, "/v1/models").fields.get("data")
    entries = listing if isinstance(listing, list) else ()
    return frozenset(str(entry.get("owned_by")).lower() for entry in entries
                     if is_object(entry) and entry.get("owned_by"))
