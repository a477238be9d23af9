"""The demo's webhook receiver takes any POST, as much of it as it allows, and answers 204."""

import httpx
import pytest

from tunery.cli.demo.receiver import BODY_BYTES_MAX, receiving


def test_posts_are_kept_in_order_with_their_headers_in_lower_case() -> None:
    with receiving() as receiver, httpx.Client() as client:
        for number in range(3):
            answer = client.post(
                receiver.url, content=b"body %d" % number, headers={"Webhook-Id": f"msg-{number}"}
            )
            assert (answer.status_code, answer.content) == (204, b"")
        assert [post.body for post in receiver.received] == [b"body 0", b"body 1", b"body 2"]
        assert [post.headers["webhook-id"] for post in receiver.received] == [
            "msg-0",
            "msg-1",
            "msg-2",
        ]


def test_a_body_is_read_up_to_its_limit() -> None:
    with receiving() as receiver:
        httpx.post(receiver.url, content=bytes(BODY_BYTES_MAX + 5))
        assert len(receiver.received[0].body) == BODY_BYTES_MAX


def test_only_posts_are_taken_and_two_receivers_have_ports_of_their_own() -> None:
    with receiving() as first, receiving() as second:
        assert first.port != second.port
        assert httpx.get(first.url).status_code == 501
        httpx.post(second.url)
        assert (len(first.received), len(second.received)) == (0, 1)


def test_its_port_is_free_again_afterwards() -> None:
    with receiving() as receiver:
        url = receiver.url
    with pytest.raises(httpx.ConnectError):
        httpx.post(url, timeout=2)
