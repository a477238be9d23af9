"""Notices that a cloud takes its machine away, asked for at its metadata server.

AWS: two minutes before, at `spot/instance-action`, with a session token (IMDSv2); before that it
may recommend to leave the machine, at `events/recommendations/rebalance`. Google: thirty seconds
before, at `instance/preempted`.
"""

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias

import httpx

from schemas.units import Ms
from services.trainer.ports import NoticeSource, NoticesUnavailable

Cloud: TypeAlias = Literal["aws", "gcp"]
URLS: Final[dict[Cloud, str]] = {
    "aws": "http://169.254.169.254",
    "gcp": "http://metadata.google.internal",
}
TIMEOUT_S: Final = 2
AWS_NOTICE_MS: Final[Ms] = 120_000
GCP_NOTICE_MS: Final[Ms] = 30_000
TOKEN_S: Final = 21_600
UNAUTHORIZED, MISSING = 401, 404


class NoNotices:
    """Machine that no cloud takes away."""

    async def left_ms(self) -> Ms | None:
        """Return None: there is no notice."""
        return None

    async def is_at_risk(self) -> bool:
        """Return False: its provider takes no machine away."""
        return False

    async def close(self) -> None:
        """There is no connection."""


class MetadataServer:
    """A connection to a cloud's metadata server."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT_S)

    async def close(self) -> None:
        await self._client.aclose()


class AwsNotices(MetadataServer):
    """`{"action": "terminate", "time": "2026-11-22T08:22:00Z"}`, and 404 before that."""

    _token = ""

    async def left_ms(self) -> Ms | None:
        """Return the time until the interruption by the server's clock; the machine's may be wrong.

        None: no interruption is announced. Raises NoticesUnavailable.
        """
        try:
            response = await self._page("spot/instance-action")
            return None if response is None else _left_ms(response)
        except (httpx.HTTPError, ValueError, TypeError, KeyError) as error:
            raise NoticesUnavailable(f"{type(error).__name__}: {error}") from error

    async def is_at_risk(self) -> bool:
        """Return whether there is a rebalance recommendation. Raises NoticesUnavailable."""
        try:
            return await self._page("events/recommendations/rebalance") is not None
        except httpx.HTTPError as error:
            raise NoticesUnavailable(f"{type(error).__name__}: {error}") from error

    async def _page(self, path: str) -> httpx.Response | None:
        """A page of the machine's metadata; None: there is none."""
        if not self._token:
            self._token = await self._new_token()
        headers = {"X-aws-ec2-metadata-token": self._token}
        response = await self._client.get(f"/latest/meta-data/{path}", headers=headers)
        if response.status_code == UNAUTHORIZED:
            self._token = ""
        if response.status_code == MISSING:
            return None
        return response.raise_for_status()

    async def _new_token(self) -> str:
        response = await self._client.put(
            "/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_S)}
        )
        response.raise_for_status()
        return response.text


class GcpNotices(MetadataServer):
    """The word TRUE once the machine is being taken away."""

    async def left_ms(self) -> Ms | None:
        """Raises NoticesUnavailable."""
        try:
            response = await self._client.get(
                "/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"}
            )
            response.raise_for_status()
        except httpx.HTTPError as error:
            raise NoticesUnavailable(f"{type(error).__name__}: {error}") from error
        return GCP_NOTICE_MS if response.text.strip() == "TRUE" else None

    async def is_at_risk(self) -> bool:
        """Return False: Google gives no earlier warning."""
        return False


def notices_of(cloud: Cloud | None, url: str) -> NoticeSource:
    """The notices of a cloud, at its own metadata server or at another URL."""
    if cloud is None:
        return NoNotices()
    return (AwsNotices if cloud == "aws" else GcpNotices)(url or URLS[cloud])


def _left_ms(response: httpx.Response) -> Ms:
    ends_at = datetime.fromisoformat(response.json()["time"])
    now = parsedate_to_datetime(response.headers["date"])
    return min(AWS_NOTICE_MS, max(0, round((ends_at - now).total_seconds() * 1_000)))
