"""How the answers of servers are read: in any pieces, and whatever comes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.backends import discovery
from kvchat.backends.discovery import BODY_LIMIT, HEAD_LIMIT, FoundServer, HeardResponse, NotHttpError

WIRE = Path(__file__).parents[1] / "fixtures/wire"


async def read(data: bytes, cuts: list[int] | None = None) -> HeardResponse | str:
    """What is made of the bytes of one answer, arriving in pieces; the name of the exception where it is none."""
    stream = asyncio.StreamReader(limit=HEAD_LIMIT)
    feeding = asyncio.create_task(fed(stream, data, cuts or []))
    try:
        _, status, headers = await discovery._head(stream)
        body, _ = await discovery._body(stream, status, headers)
        return await discovery._heard(status, headers, body)
    except (NotHttpError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
        return type(error).__name__
    finally:
        await feeding


async def fed(stream: asyncio.StreamReader, data: bytes, cuts: list[int]) -> None:
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        stream.feed_data(data[start:end])
        await asyncio.sleep(0)
    stream.feed_eof()


SHAPES = [path.read_bytes() for path in sorted(WIRE.glob("llamacpp_[24]*.http"))] + [
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3;x=y\r\n:1}\r\n0\r\nT: x\r\n\r\n',
    b'HTTP/1.0 200 OK\r\n\r\n{"a":1}',
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204\r\n\r\n",
]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SHAPES), st.data())
async def test_an_answer_is_read_the_same_however_it_is_cut(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=12)))
    whole = await read(data)
    assert isinstance(whole, HeardResponse)
    assert await read(data, cuts) == whole


@settings(deadline=None, max_examples=500)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.binary(max_size=200).map(b"HTTP/1.1 200 OK\r\n".__add__),
        st.binary(max_size=80).map(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".__add__),
        st.tuples(st.sampled_from(SHAPES), st.integers(0, 400), st.binary(min_size=1, max_size=4)).map(
            lambda given: given[0][: given[1]] + given[2] + given[0][given[1] + 1 :]
        ),
    )
)
async def test_any_bytes_are_an_answer_or_none_and_never_another_failure(data: bytes) -> None:
    found = await read(data)
    assert isinstance(found, str) or (100 <= found.status < 600 and len(found.body) <= BODY_LIMIT)


@pytest.mark.parametrize("count", [1, 1000, 100_000])
async def test_json_is_read_once_whether_it_is_short_or_long(count: int) -> None:
    value = {"data": ["x"] * (count // 8)}
    body = json.dumps(value).encode()
    found = await read(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert isinstance(found, HeardResponse)
    assert found.value == found.json == value and found.fields == value


def test_what_is_found_can_be_told_without_a_kind() -> None:
    assert FoundServer("http://127.0.0.1:1").title == ""
