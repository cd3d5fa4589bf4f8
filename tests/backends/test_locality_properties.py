"""Over all addresses: where a server stands, and that nothing local, no key and no text reaches the wrong host."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Address, IPv6Address
from typing import Any, TypeVar

import pytest
from backend_kit import a_turn
from hypothesis import given, settings
from hypothesis import strategies as st
from locality_kit import greedy, resolving

from corpus import corpus
from kvchat.backends.base import LOCAL_EXTRAS, HttpBackend
from kvchat.backends.dialect import SESSION_HEADERS, BackendError, HostClass, ServerOptions
from kvchat.backends.http.endpoint import ResolvedServer, locate, open_endpoint, parse_base_url
from kvchat.backends.identify import backend_of
from kvchat.backends.recognition import ORDER
from kvchat.prompt.request import Parameters

LOOPBACK, LAN, TAILNET, CLOUD = HostClass
REFUSED = None
REMOTENESS = [LOOPBACK, TAILNET, LAN, CLOUD]
METADATA = IPv4Address("169.254.169.254")
SESSION = a_turn().session_id
SECRET = "content-of-the-conversation"
MANY = settings(deadline=None, max_examples=500)

Address = IPv4Address | IPv6Address
Outcome = HostClass | None
T = TypeVar("T")


def inside(*networks: str) -> st.SearchStrategy[Address]:
    """The addresses of these networks, their edges often."""
    found = [ipaddress.ip_network(text) for text in networks]
    edges = st.sampled_from([edge for network in found for edge in (network[0], network[-1])])
    return edges | st.one_of([st.ip_addresses(network=network) for network in found])


LOCAL_V4 = {
    LOOPBACK: inside("127.0.0.0/8"),
    TAILNET: inside("100.64.0.0/10"),
    LAN: inside("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16").filter(lambda a: a != METADATA),
}
LOCAL_V6 = {
    LOOPBACK: inside("::1/128"),
    TAILNET: inside("fd7a:115c:a1e0::/48"),
    LAN: inside("fc00::/8", "fd00::/16", "fe80::/10", "fdff:ffff::/32"),
}
PUBLIC = st.sampled_from(
    ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "2606:4700::1111", "2001:4860:4860::8888"]
).map(ipaddress.ip_address)
NOBODY = inside("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32", "::/128", "ff00::/8")
NEAR_V4 = st.one_of(*LOCAL_V4.values())
ANY = st.one_of(NEAR_V4, *LOCAL_V6.values(), PUBLIC, NOBODY, st.just(METADATA), st.ip_addresses())


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The value of `work`, which waits for nothing: so many examples cost little."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waits for something")


def class_of(name: str, *addresses: Address | str) -> Outcome:
    """The class of a name with these addresses; REFUSED where kvchat would not connect."""
    try:
        place = at_once(locate(parse_base_url(f"https://{name}"), resolving([str(address) for address in addresses])))
    except BackendError as error:
        assert error.sentence.endswith(".")
        return REFUSED
    return place.host_class


def literal_class(address: Address) -> Outcome:
    return class_of(f"[{address}]" if address.version == 6 else str(address))


# -- where an address stands ------------------------------------------------------------------------------------------


@MANY
@given(
    st.one_of(
        [
            addresses.map(lambda address, kind=kind: (address, kind))
            for table in (LOCAL_V4, LOCAL_V6)
            for kind, addresses in table.items()
        ]
        + [PUBLIC.map(lambda address: (address, CLOUD)), NOBODY.map(lambda address: (address, REFUSED))]
    )
)
def test_an_address_has_the_class_of_its_network_as_a_literal_and_behind_a_name(given: tuple[Address, Outcome]) -> None:
    address, expected = given
    if address.version == 6 and ipaddress.ip_address("fd00:ec2::254") == address:
        expected = REFUSED
    assert literal_class(address) is expected
    assert class_of("box.example.com", address) is expected


@corpus(
    "network",
    [
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "fc00::/7",
        "fe80::/10",
    ],
)
def test_the_addresses_beside_a_local_network_are_the_internets(network: str) -> None:
    found = ipaddress.ip_network(network)
    for address in (found[0] - 1, found[-1] + 1):
        assert literal_class(address) is CLOUD, address
    for address in (found[0], found[-1]):
        assert literal_class(address) in (LOOPBACK, LAN, TAILNET), address


@MANY
@given(st.ip_addresses(v=4) | NEAR_V4 | st.just(METADATA))
def test_an_ipv4_address_in_its_ipv6_spelling_stays_what_it_is(address: IPv4Address) -> None:
    assert literal_class(IPv6Address(f"::ffff:{address}")) is literal_class(address)


def nat64(address: IPv4Address) -> IPv6Address:
    return IPv6Address(f"64:ff9b::{address}")


def six_to_four(address: IPv4Address) -> IPv6Address:
    return IPv6Address((0x2002 << 112) | (int(address) << 80) | 1)


TUNNELS: dict[str, Callable[[IPv4Address], IPv6Address]] = {
    "NAT64": nat64,
    "6to4": six_to_four,
    "NAT64 of a network": lambda address: IPv6Address(f"64:ff9b:1::{address}"),
    "Teredo client": lambda address: IPv6Address((0x20010000 << 96) | (0x01010101 << 64) | (int(address) ^ 0xFFFFFFFF)),
    "Teredo server": lambda address: IPv6Address((0x20010000 << 96) | (int(address) << 64) | 0xFEFEFEFE),
    "translated": lambda address: IPv6Address(f"::ffff:0:{address}"),
    "compatible": lambda address: IPv6Address(f"::{address}"),
}


@MANY
@given(st.sampled_from(sorted(TUNNELS)), NEAR_V4)
def test_a_private_address_inside_a_tunnels_address_makes_nothing_local(tunnel: str, address: Address) -> None:
    assert isinstance(address, IPv4Address)
    assert literal_class(TUNNELS[tunnel](address)) is CLOUD
    assert class_of("box.local", TUNNELS[tunnel](address)) is CLOUD


@pytest.mark.parametrize(
    "address",
    [
        METADATA,
        nat64(METADATA),
        six_to_four(METADATA),
        IPv6Address(f"::ffff:{METADATA}"),
        "fd00:ec2::254",
        "fd00:ec2::254%eth0",
        "fd20:ce::254",
    ],
)
def test_no_spelling_leads_to_a_cloud_machines_metadata_service(address: Address | str) -> None:
    assert class_of("box.example.com", address) is REFUSED
    if "%" not in str(address):
        assert literal_class(ipaddress.ip_address(str(address))) is REFUSED


# -- names ------------------------------------------------------------------------------------------------------------


@MANY
@given(
    st.sampled_from(["box", "box.local", "nas.lan", "api.example.com", "xn--bcher-kva.example", "my_box"]),
    st.lists(ANY, min_size=1, max_size=12),
    st.randoms(),
)
def test_a_name_is_as_remote_as_the_most_remote_of_its_addresses_in_any_order(
    name: str, addresses: list[Address], random: Any
) -> None:
    each = [literal_class(address) for address in addresses]
    least = LAN if name.endswith(".local") else LOOPBACK
    expected = REFUSED if REFUSED in each else max([least, *filter(None, each)], key=REMOTENESS.index)
    random.shuffle(addresses)
    assert class_of(name, *addresses) is expected


@MANY
@given(st.lists(st.text(max_size=12) | ANY.map(str), min_size=1, max_size=4))
def test_whatever_a_resolver_says_a_name_has_a_class_or_a_sentence(found: list[str]) -> None:
    assert class_of("box.example.com", *found) in (*HostClass, REFUSED)


@MANY
@given(st.sampled_from(["localhost", "LOCALHOST.", "llm.localhost"]), st.lists(ANY, min_size=1, max_size=4))
def test_localhost_is_this_machine_whatever_a_resolver_says(name: str, addresses: list[Address]) -> None:
    found = [str(address) for address in addresses]
    place = at_once(locate(parse_base_url(f"http://{name}:8080"), resolving(found)))
    assert place == ResolvedServer(LOOPBACK, ("127.0.0.1", "::1"))


# -- the person's own word --------------------------------------------------------------------------------------------


@MANY
@given(ANY, st.sampled_from(["auto", "local", "cloud"]), st.booleans())
def test_the_persons_word_moves_a_server_only_as_far_as_it_may(address: Address, locality: Any, by_proxy: bool) -> None:
    options = ServerOptions(locality=locality)
    given: dict[str, Any] = {"resolver": resolving([str(address)])}
    if by_proxy:
        given["proxy"] = "http://127.0.0.1:3128"
    try:
        usual = at_once(open_endpoint("https://box.example.com", **given)).place
    except BackendError:
        with pytest.raises(BackendError):
            at_once(open_endpoint("https://box.example.com", **given, options=options))
        return
    told = at_once(open_endpoint("https://box.example.com", **given, options=options)).place
    assert told.addresses == usual.addresses
    if by_proxy or locality == "cloud":
        assert told.host_class is CLOUD
    elif locality == "local":
        assert told.host_class is (LAN if usual.host_class is CLOUD else usual.host_class)
    else:
        assert told == usual


# -- what a request holds ---------------------------------------------------------------------------------------------


def told(backend: HttpBackend, extra: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The fields of a request, and everything else that goes with it."""
    turn = a_turn(SECRET, parameters=Parameters(extra=extra), template_options={"enable_thinking": False})
    fields = json.loads(backend.body(turn))
    # A key for the provider's own prompt cache is made for the cloud.
    rest = {name: value for name, value in fields.items() if name != "prompt_cache_key"}
    return fields, json.dumps(rest) + repr(backend.headers(turn))


EXTRA = st.dictionaries(st.sampled_from([*sorted(LOCAL_EXTRAS), "id_slot", "top_a"]), st.integers(0, 9), max_size=4)
DIALECTS = st.sampled_from(tuple(map(backend_of, ORDER)))


@MANY
@given(DIALECTS, ANY, EXTRA, st.sampled_from(["auto", "local", "cloud"]), st.booleans())
def test_no_dialect_gives_a_cloud_host_anything_local(
    dialect: type[HttpBackend], address: Address, extra: dict[str, Any], locality: Any, by_proxy: bool
) -> None:
    options = ServerOptions(locality=locality)
    try:
        endpoint = at_once(
            open_endpoint(
                "https://box.example.com",
                resolver=resolving([str(address)]),
                options=options,
                proxy="http://127.0.0.1:3128" if by_proxy else None,
            )
        )
    except BackendError:
        return
    backend = greedy(dialect, endpoint, options=options)
    info = at_once(backend.identify())
    fields, everything = told(backend, extra)
    assert "id_slot" not in fields
    if info.host_class is CLOUD:
        assert not info.takes_local_extras
        assert not fields.keys() & LOCAL_EXTRAS
        assert SESSION not in everything
    else:
        assert locality != "cloud" and not by_proxy


@MANY
@given(DIALECTS, EXTRA, st.lists(PUBLIC | NEAR_V4, min_size=1, max_size=3), PUBLIC)
def test_a_name_that_moved_to_the_internet_gets_nothing_local_from_the_next_look_on(
    dialect: type[HttpBackend], extra: dict[str, Any], later: list[Address], public: Address
) -> None:
    moved = [str(address) for address in [*later, public]]
    endpoint = at_once(open_endpoint("https://box.example.com", resolver=resolving(["127.0.0.1"], moved)))
    assert endpoint.place.host_class is LOOPBACK
    backend = greedy(dialect, endpoint)
    assert at_once(backend.identify()).host_class is CLOUD
    fields, everything = told(backend, extra)
    assert not fields.keys() & LOCAL_EXTRAS and SESSION not in everything


KEY_HEADERS = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "x-auth-token",
    "cf-access-client-id",
    "cf-access-client-secret",
    "x-amz-security-token",
)


@MANY
@given(st.sampled_from(KEY_HEADERS), st.randoms(), ANY)
def test_a_key_among_the_headers_crosses_no_open_network_unencrypted(name: str, random: Any, address: Address) -> None:
    name = "".join(random.choice((letter, letter.upper())) for letter in name)
    options = ServerOptions(headers={"X-Team": "research", name: "Bearer hunter2"})
    try:
        plain = at_once(open_endpoint("http://box.example.com", resolver=resolving([str(address)]), options=options))
    except BackendError as error:
        assert "hunter2" not in error.sentence
        return
    assert plain.place.host_class in (LOOPBACK, TAILNET)


@pytest.mark.parametrize("name", ["X-Team", *SESSION_HEADERS])
async def test_a_header_that_holds_no_key_may_go_to_a_machine_of_the_network(name: str) -> None:
    endpoint = await open_endpoint("http://192.168.1.5", options=ServerOptions(headers={name: "x"}))
    assert endpoint.place.host_class is HostClass.LAN
