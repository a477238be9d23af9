"""Notices of clouds, from servers on loopback that answer as their metadata servers do."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from services.trainer.adapters.notices import AwsNotices, GcpNotices, NoNotices, notices_of
from services.trainer.ports import NoticeSource, NoticesUnavailable

ACTION = "/latest/meta-data/spot/instance-action"
PREEMPTED = "/computeMetadata/v1/instance/preempted"


class Metadata(HTTPServer):
    """`pages` by path; tokens of AWS are counted, and the last one is good."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, str] = {}
        self.tokens = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:  # a name of http.server
        assert self.path == "/latest/api/token"
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.server.tokens += 1
        self._answer(200, f"token-{self.server.tokens}")

    def do_GET(self) -> None:  # a name of http.server
        flavour, token = self.headers["Metadata-Flavor"], self.headers["X-aws-ec2-metadata-token"]
        if flavour != "Google" and token != f"token-{self.server.tokens}":
            self._answer(401, "")
        elif self.path in self.server.pages:
            self._answer(200, self.server.pages[self.path])
        else:
            self._answer(404, "")

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def date_time_string(self, timestamp: float | None = None) -> str:
        return "Sun, 22 Nov 2026 08:20:30 GMT"

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # as there
        """Say nothing."""


@contextmanager
def metadata() -> Iterator[Metadata]:
    server = Metadata()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def left_ms(source: NoticeSource) -> int | None:
    try:
        return await source.left_ms()
    finally:
        await source.close()


@pytest.mark.parametrize(
    ("time", "expected_ms"),
    [
        ("2026-11-22T08:22:00Z", 90_000),
        ("2026-11-22T08:20:00Z", 0),
        ("2027-11-22T08:22:00Z", 120_000),
    ],
)
async def test_aws_says_when_by_its_own_clock(time: str, expected_ms: int) -> None:
    with metadata() as server:
        source = AwsNotices(server.url)
        assert await source.left_ms() is None
        server.pages[ACTION] = f'{{"action": "terminate", "time": "{time}"}}'
        assert await left_ms(source) == expected_ms
        assert server.tokens == 1


async def test_a_token_of_aws_that_has_expired_is_renewed() -> None:
    with metadata() as server:
        source = AwsNotices(server.url)
        assert await source.left_ms() is None
        server.tokens += 1
        with pytest.raises(NoticesUnavailable, match="401"):
            await source.left_ms()
        assert await left_ms(source) is None


@pytest.mark.parametrize("page", ["", "[]", '{"action": "stop"}', '{"time": "soon"}'])
async def test_an_answer_that_is_none_is_no_notice(page: str) -> None:
    with metadata() as server:
        server.pages[ACTION] = page
        with pytest.raises(NoticesUnavailable):
            await left_ms(AwsNotices(server.url))


async def test_google_gives_thirty_seconds() -> None:
    with metadata() as server:
        source = GcpNotices(server.url)
        with pytest.raises(NoticesUnavailable, match="404"):
            await source.left_ms()
        server.pages[PREEMPTED] = "FALSE\n"
        assert await source.left_ms() is None
        server.pages[PREEMPTED] = "TRUE\n"
        assert await left_ms(source) == 30_000


async def test_without_a_cloud_there_are_no_notices_and_without_a_server_no_answers() -> None:
    assert isinstance(notices_of(None, ""), NoNotices)
    assert await left_ms(notices_of(None, "")) is None
    with pytest.raises(NoticesUnavailable):
        await left_ms(notices_of("gcp", "http://127.0.0.1:9"))


async def test_a_rebalance_recommendation_is_a_warning() -> None:
    with metadata() as server:
        source = AwsNotices(server.url)
        assert not await source.is_at_risk()
        server.pages["/latest/meta-data/events/recommendations/rebalance"] = (
            '{"noticeTime": "2026-11-22T08:17:03Z"}'
        )
        assert await source.is_at_risk()
        assert await source.left_ms() is None, "the machine stays for now"
        server.tokens += 1  # the token has expired
        with pytest.raises(NoticesUnavailable):
            await source.is_at_risk()
        assert await source.is_at_risk()
        await source.close()


async def test_other_sources_give_no_early_warning() -> None:
    for source in (NoNotices(), GcpNotices("http://127.0.0.1:9")):
        assert not await source.is_at_risk()
        await source.close()
