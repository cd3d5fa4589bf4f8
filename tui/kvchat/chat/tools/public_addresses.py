"""Which addresses are the internet's own: IANA's registries of special-purpose addresses as one table.

Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890) and their multicast spaces. Python's own
`is_global` differs between its versions, and says nothing of addresses inside of addresses.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All of IPv6 that is given out on the internet."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""IPv4 as a network without it reaches it (NAT64, RFC 6052): the last 32 bits decide."""
_SPECIAL = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared by a provider's customers
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocols: DS-Lite, NAT64 discovery, anycast of PCP and TURN
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4 and 6a44
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
            "2001::/23",  # protocols: Teredo, benchmarks, anycast, ORCHID, drones
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "3ffe::/16",  # the 6bone, given back
            "3fff::/20",  # documentation
        ),
    )
)
"""What is not the internet, in IPv4 and in `_GLOBAL_UNICAST`. Outside of that are loopback, what is mapped (::ffff:),
compatible (::) and translated (::ffff:0:) from IPv4, local NAT64 (64:ff9b:1::/48), 100::/64, 5f00::/16, fc00::/7,
fe80::/10, fec0::/10 and ff00::/8."""
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""The middle of an address whose last 32 bits are an IPv4 one that a tunnel leads to (RFC 5214)."""


def is_public(address: str) -> bool:
    """Whether an address is one of the internet's own, and leads to no other one that is not."""
    found = ip_address(address)
    if isinstance(found, IPv6Address):
        if found in _TRANSLATED:
            return is_public(str(IPv4Address(int(found) & 0xFFFFFFFF)))
        if found not in _GLOBAL_UNICAST or int(found) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
    return not any(found in block for block in _SPECIAL)
