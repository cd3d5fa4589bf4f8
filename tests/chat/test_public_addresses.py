"""Which addresses count as the internet: a row for each block of IANA's registries, and for what hides one."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_address, ip_network

import pytest

from corpus import corpus
from kvchat.chat.tools.public_addresses import is_public

SPECIAL = re.findall(
    r"\S+",
    """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29
192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.88.99.0/24 192.88.99.2/32
192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 255.255.255.255/32
::1/128 ::/128 ::/96 ::ffff:0:0/96 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32
2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28
2001:30::/28 2001:db8::/32 2002::/16 3ffe::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
400::/6 800::/5 1000::/4 4000::/3 6000::/3 8000::/3 a000::/3 c000::/3 e000::/4
""",
)
"""Of the registries of special-purpose addresses, of multicast, and of what of IPv6 is not given out."""
PUBLIC = re.findall(
    r"\S+",
    """
1.1.1.1 8.8.8.8 9.9.9.9 93.184.215.14 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0
192.31.196.1 192.52.193.1 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0 192.175.48.1 198.17.255.255 198.20.0.0
223.255.255.255 2001:200::1 2001:4860:4860::8888 2001:db7:ffff::1 2001:db9::1 2003::1 2606:4700::1111
2620:4f:8000::1 2a00:1450:4001:80b::200e 3fff:1000::1 3fef::1 64:ff9b::8.8.8.8 64:ff9b::101:101
""",
)
INSIDE = ("127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "192.0.2.1")


@corpus("block", SPECIAL)
def test_nothing_of_a_special_block_is_public(block: str) -> None:
    net = ip_network(block)
    middle = net.network_address + net.num_addresses // 2
    found = [one for one in (net[0], middle, net[-1]) if is_public(str(one))]
    assert not found


@corpus("address", PUBLIC)
def test_what_borders_on_one_is(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("inner", INSIDE)
@corpus(
    "way",
    [
        "::ffff:{a}:{b}",  # mapped
        "::{a}:{b}",  # compatible
        "::ffff:0:{a}:{b}",  # translated (SIIT)
        "64:ff9b::{a}:{b}",  # NAT64
        "64:ff9b:1::{a}:{b}",  # NAT64 of a network's own
        "2002:{a}:{b}::1",  # 6to4
        "2001:0:808:808:0:0:{not_a}:{not_b}",  # Teredo: the client, its bits turned
        "2001:0:{a}:{b}::1",  # Teredo: its server
        "2a00:1450::5efe:{a}:{b}",  # ISATAP
        "2a00:1450::200:5efe:{a}:{b}",
    ],
)
def test_no_address_hides_one_that_is_not_public(way: str, inner: str) -> None:
    value = int(IPv4Address(inner))
    a, b = value >> 16, value & 0xFFFF
    address = way.format(a=f"{a:x}", b=f"{b:x}", not_a=f"{a ^ 0xFFFF:x}", not_b=f"{b ^ 0xFFFF:x}")
    assert not is_public(str(ip_address(address)))


def test_a_zone_changes_nothing() -> None:
    assert not is_public("fe80::1%eth0") and not is_public("::1%lo")
