"""Addresses that webhooks must not be sent to, in every notation."""

import pytest

from services.notifier.domain.target import Forbidden, Target, check_address, parse

pytestmark = pytest.mark.security


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.5.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104  # an address to refuse, nothing is bound
        "255.255.255.255",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1%eth0",
        "fc00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
    ],
)
def test_our_own_network_is_forbidden(address: str) -> None:
    with pytest.raises(Forbidden):
        check_address(address, allow_private=False)


@pytest.mark.parametrize("address", ["192.0.0.192", "fec0::1", "3fff::1"])
def test_security_l3_networks_that_an_older_python_takes_for_public_are_forbidden(
    address: str,
) -> None:
    with pytest.raises(Forbidden, match="address is private"):
        check_address(address, allow_private=False)
    check_address(address, allow_private=True)


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "168.63.129.16", "fd00:ec2::254"],
)
def test_security_l3_metadata_of_a_cloud_is_forbidden_even_among_private_addresses(
    address: str,
) -> None:
    with pytest.raises(Forbidden, match="secrets"):
        check_address(address, allow_private=True)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_allowed(address: str) -> None:
    check_address(address, allow_private=False)


def test_private_mode_allows_loopback_but_not_multicast() -> None:
    for address in ("127.0.0.1", "::1", "192.168.1.1"):
        check_address(address, allow_private=True)
    with pytest.raises(Forbidden):
        check_address("224.0.0.1", allow_private=True)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/x", "https://"),
        ("ftp://example.com", "https://"),
        ("https://user:secret@example.com", "user name"),
        ("https:///x", "no host"),
        ("https://example.com:99999/", "not a URL"),
        ("https://[::1", "not a URL"),
        ("https://example.com/" + "x" * 3000, "longer than"),
        ("", "https://"),
    ],
)
def test_forbidden_urls_are_refused(url: str, reason: str) -> None:
    with pytest.raises(Forbidden, match=reason):
        parse(url, allow_private=False)


def test_ports_follow_the_scheme() -> None:
    assert parse("https://example.com/x", allow_private=False) == Target(
        scheme="https", host="example.com", port=443
    )
    assert parse("http://127.0.0.1:8080/", allow_private=True).port == 8080
