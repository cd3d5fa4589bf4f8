"""Classes of addresses, base URLs in many spellings, and names that resolve to more than one place."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import corpus
from kvchat.backends.dialect import BackendError, HostClass, Trouble
from kvchat.backends.http.endpoint import (
    BadAddressError,
    BaseUrl,
    Endpoint,
    classify,
    locate,
    open_endpoint,
    parse_base_url,
)

LOOPBACK, LAN, TAILNET, CLOUD, REFUSED = *HostClass, None

ADDRESSES = [
    ("127.0.0.1", LOOPBACK),
    ("127.1.2.3", LOOPBACK),
    ("127.255.255.254", LOOPBACK),
    ("[::1]", LOOPBACK),
    ("[0:0:0:0:0:0:0:1]", LOOPBACK),
    ("[::ffff:127.0.0.1]", LOOPBACK),
    ("[::ffff:7f00:1]", LOOPBACK),
    ("localhost", LOOPBACK),
    ("LOCALHOST", LOOPBACK),
    ("localhost.", LOOPBACK),
    ("llm.localhost", LOOPBACK),
    ("a.b.localhost.", LOOPBACK),
    ("10.0.0.1", LAN),
    ("10.255.255.255", LAN),
    ("172.16.0.1", LAN),
    ("172.31.255.254", LAN),
    ("192.168.1.20", LAN),
    ("169.254.1.1", LAN),
    ("[fc00::1]", LAN),
    ("[fd12:3456::1]", LAN),
    ("[fe80::1]", LAN),
    ("[febf::1]", LAN),
    ("[::ffff:192.168.1.20]", LAN),
    ("[fd7a:115c:a1e1::1]", LAN),
    ("100.64.0.1", TAILNET),
    ("100.127.255.254", TAILNET),
    ("[fd7a:115c:a1e0::1]", TAILNET),
    ("[fd7a:115c:a1e0:ab12::1]", TAILNET),
    ("[::ffff:100.64.0.1]", TAILNET),
    ("100.63.255.255", CLOUD),
    ("100.128.0.1", CLOUD),
    ("172.15.0.1", CLOUD),
    ("172.32.0.1", CLOUD),
    ("192.169.0.1", CLOUD),
    ("11.0.0.1", CLOUD),
    ("126.0.0.1", CLOUD),
    ("128.0.0.1", CLOUD),
    ("8.8.8.8", CLOUD),
    ("192.0.2.1", CLOUD),
    ("198.18.0.1", CLOUD),
    ("203.0.113.9", CLOUD),
    ("[2001:db8::1]", CLOUD),
    ("[2606:4700::1111]", CLOUD),
    ("[64:ff9b::7f00:1]", CLOUD),
    ("[::ffff:8.8.8.8]", CLOUD),
    ("[fec0::1]", CLOUD),
    ("127.1", REFUSED),
    ("127.0.1", REFUSED),
    ("2130706433", REFUSED),
    ("0x7f000001", REFUSED),
    ("0x7f.0.0.1", REFUSED),
    ("0177.0.0.1", REFUSED),
    ("127.0.0.01", REFUSED),
    ("127.0.0.256", REFUSED),
    ("1.2.3.4.5", REFUSED),
    ("0.0.0.0", REFUSED),
    ("0", REFUSED),
    ("[::]", REFUSED),
    ("[::ffff:0.0.0.0]", REFUSED),
    ("169.254.169.254", REFUSED),
    ("[::ffff:169.254.169.254]", REFUSED),
    ("224.0.0.1", REFUSED),
    ("255.255.255.255", REFUSED),
    ("240.0.0.1", REFUSED),
    ("[ff02::1]", REFUSED),
    ("[fe80::1%25eth0]", REFUSED),
    ("127.0.0.1.", LOOPBACK),
    ("127.0.0.1:8080", LOOPBACK),
]


async def no_resolver(host: str, port: int) -> list[str]:
    raise AssertionError(f"{host} was looked up")


@corpus(("host", "expected"), ADDRESSES)
async def test_a_spelling_of_an_address_gets_its_class_without_a_lookup(host: str, expected: HostClass | None) -> None:
    if expected is None:
        with pytest.raises(BackendError) as caught:
            await locate(parse_base_url(f"http://{host}"), no_resolver)
        assert caught.value.sentence.endswith(".")
    else:
        place = await locate(parse_base_url(f"http://{host}"), no_resolver)
        assert place.host_class is expected


def test_the_table_has_at_least_60_spellings() -> None:
    assert len(ADDRESSES) >= 60


@settings(deadline=None)
@given(st.ip_addresses())
def test_every_address_has_a_class_or_is_refused(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    try:
        found = classify(address)
    except BadAddressError:
        return
    if address.is_global and not getattr(address, "ipv4_mapped", None):
        assert found is HostClass.CLOUD


def resolving(*addresses: str):
    async def resolver(host: str, port: int) -> list[str]:
        return list(addresses)

    return resolver


@corpus(
    ("name", "addresses", "expected"),
    [
        ("box", ["192.168.1.5"], LAN),
        ("box", ["127.0.0.1", "192.168.1.5"], LAN),
        ("box", ["100.64.0.9", "192.168.1.5"], LAN),
        ("box", ["100.64.0.9"], TAILNET),
        ("box", ["127.0.0.1", "1.2.3.4"], CLOUD),
        ("box", ["::ffff:127.0.0.1"], LOOPBACK),
        ("box.local", ["127.0.0.1"], LAN),
        ("box.local", ["1.2.3.4"], CLOUD),
        ("api.example.com", ["2606:4700::1", "10.0.0.1"], CLOUD),
    ],
)
async def test_a_name_counts_as_the_most_remote_of_its_addresses(
    name: str, addresses: list[str], expected: HostClass
) -> None:
    place = await locate(parse_base_url(f"https://{name}"), resolving(*addresses))
    assert place.host_class is expected
    assert place.addresses == tuple(addresses)


async def test_a_name_that_leads_to_a_refused_address_is_refused() -> None:
    with pytest.raises(BackendError, match="metadata"):
        await locate(parse_base_url("http://rebound.example"), resolving("1.2.3.4", "169.254.169.254"))


async def test_a_name_without_an_address_gets_a_sentence() -> None:
    async def failing(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    with pytest.raises(BackendError, match='No address is known for "nowhere'):
        await locate(parse_base_url("http://nowhere.example:8080"), failing)


@corpus(
    ("text", "expected"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/chat/completions", "http://127.0.0.1:8080"),
        (" http://LocalHost:8080 ", "http://localhost:8080"),
        ("HTTPS://Api.Example.com/llm/v1", "https://api.example.com/llm"),
        ("http://example.com:80", "http://example.com"),
        ("https://example.com:443/", "https://example.com"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
        ("http://my_box:1234", "http://my_box:1234"),
    ],
)
def test_a_base_url_is_normalised(text: str, expected: str) -> None:
    url = parse_base_url(text)
    assert str(url) == expected
    assert parse_base_url(str(url)) == url


@corpus(
    "text",
    [
        "",
        "   ",
        "localhost:8080",
        "127.0.0.1:8080",
        "ftp://host",
        "http://",
        "http:///path",
        "http://:8080",
        "http://host:99999",
        "http://host:0",
        "http://host:abc",
        "http://user:hunter2@host",
        "http://host/?q=1",
        "http://host/#x",
        "http://ho st",
        "http://[::1",
        "http://host/a b",
        "http://host\\x",
        "file:///etc/passwd",
        "http://-bad-.example",
        "http://a..b",
        "http://" + "a" * 70,
        "http://host/\x1b]0;x\x07",
    ],
)
def test_a_bad_base_url_gets_a_sentence_without_secrets(text: str) -> None:
    with pytest.raises(BackendError) as caught:
        parse_base_url(text)
    assert caught.value.sentence.endswith(".")
    assert "hunter2" not in caught.value.sentence
    assert "\x1b" not in caught.value.sentence


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_base_url_or_a_sentence(text: str) -> None:
    for tried in (text, "http://" + text):
        try:
            url = parse_base_url(tried)
        except BackendError as error:
            assert error.sentence.endswith(".")
        else:
            assert str(url).isascii() and isinstance(url, BaseUrl)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:1", True),
        ("http://100.64.0.1", True),
        ("https://1.2.3.4", True),
        ("https://10.0.0.1", True),
        ("http://10.0.0.1", False),
        ("http://1.2.3.4", False),
    ],
)
async def test_a_key_does_not_cross_an_open_network_unencrypted(url: str, allowed: bool) -> None:
    if allowed:
        await open_endpoint(url, api_key="k")
        return
    with pytest.raises(BackendError, match="unencrypted"):
        await open_endpoint(url, api_key="k")
    assert await open_endpoint(url)
    assert await open_endpoint(url, api_key="k", allow_plain_http_key=True)


async def test_a_name_that_moves_to_another_network_is_noticed_when_looked_up_again() -> None:
    answers = [["127.0.0.1"], ["93.184.216.34"]]

    async def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    endpoint = await open_endpoint("http://box.example", api_key="k", resolver=rebinding)
    assert endpoint.place.host_class is HostClass.LOOPBACK
    with pytest.raises(BackendError, match="unencrypted"):
        await endpoint.located()


async def test_keys_and_proxies_stay_out_of_representations() -> None:
    endpoint: Endpoint = await open_endpoint("https://1.2.3.4", api_key="sekrit", proxy="http://u:pass@127.0.0.1:3128")
    assert "sekrit" not in repr(endpoint) and "pass" not in repr(endpoint)
    assert endpoint.place.host_class is HostClass.CLOUD


@pytest.mark.parametrize(
    "options",
    [
        {"api_key": "two words"},
        {"api_key": "käy"},
        {"api_key": "a\nb"},
        {"proxy": "socks5://127.0.0.1:1"},
        {"proxy": "127.0.0.1:3128"},
        {"proxy": "http://[::1"},
    ],
)
async def test_a_key_or_proxy_that_cannot_work_gets_a_sentence(options: dict[str, str]) -> None:
    with pytest.raises(BackendError) as caught:
        await open_endpoint("https://1.2.3.4", **options)
    assert next(iter(options.values())) not in caught.value.sentence


@pytest.mark.parametrize("text", ["http://127.1:8080", "http://169.254.169.254", "ftp://x", "http://x:0", "http://u@x"])
async def test_an_address_that_no_waiting_helps_is_told_apart_from_a_server_that_is_down(text: str) -> None:
    with pytest.raises(BackendError) as caught:
        await locate(parse_base_url(text))
    assert caught.value.trouble is Trouble.BAD_ADDRESS


async def test_a_name_that_leads_nowhere_may_come_back_and_one_that_leads_to_a_refused_address_does_not() -> None:
    for found, trouble in (
        ((), Trouble.UNREACHABLE),
        (("169.254.169.254",), Trouble.BAD_ADDRESS),
        (("nonsense",), Trouble.BAD_ADDRESS),
    ):
        with pytest.raises(BackendError) as caught:
            await locate(parse_base_url("http://box.example"), resolving(*found))
        assert caught.value.trouble is trouble
