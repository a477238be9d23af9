"""Destinations of webhooks: public addresses over TLS, so that none reaches our own network."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

URL_CHARACTERS_MAX: Final = 2_048
PORT_OF_SCHEME: Final = {"https": 443, "http": 80}
# 64:ff9b::/96 (RFC 6052) puts an IPv4 address into the last 32 bits
NAT64: Final = 0x64FF9B << 96
#: networks that older versions of Python take for public ones (RFC 6890, RFC 3879, RFC 9637)
NOT_GLOBAL: Final = tuple(map(ip_network, ("192.0.0.0/24", "fec0::/10", "3fff::/20")))
#: metadata servers of clouds; forbidden even where private addresses are allowed
METADATA: Final = frozenset(
    map(ip_address, ("169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"))
)


class Forbidden(Exception):
    """This URL is not called, now or later; the message says why and what would be.

    The message reaches logs and rows, which an erasure does not clean: it names neither the host
    nor an address.
    """


class Target(Struct, frozen=True, kw_only=True):
    scheme: str
    host: str
    port: int


def parse(url: str, *, allow_private: bool) -> Target:
    """Raises Forbidden. `allow_private` also allows plain http: it is for one machine alone."""
    if len(url) > URL_CHARACTERS_MAX:
        raise Forbidden(f"the URL is longer than {URL_CHARACTERS_MAX} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Forbidden("it is not a URL") from error
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes:
        raise Forbidden(f"the URL must begin with {schemes[0]}://")
    if parts.username is not None or parts.password is not None:
        raise Forbidden("the URL must not carry a user name or password")
    if not parts.hostname:
        raise Forbidden("the URL names no host")
    return Target(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port if port is not None else PORT_OF_SCHEME[parts.scheme],
    )


def check_address(text: str, *, allow_private: bool) -> None:
    """Raises Forbidden for an address of our own network, also inside an IPv6 address."""
    address = _inner(ip_address(text.partition("%")[0]))
    if address in METADATA:
        raise Forbidden("its address is where a cloud gives a machine its secrets")
    reserved = address.is_reserved and not address.is_loopback  # ::1 is in a reserved block
    if address.is_multicast or address.is_unspecified or reserved:
        raise Forbidden("its address cannot be one of a receiver")
    inside = not address.is_global or any(address in network for network in NOT_GLOBAL)
    if inside and not allow_private:
        raise Forbidden("its address is private; webhooks go to public ones only")


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address inside an IPv6 one (mapped, 6to4, NAT64), where there is one."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if int(address) >> 32 == NAT64 >> 32:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address
