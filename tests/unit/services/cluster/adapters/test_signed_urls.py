"""URLs of single objects, which are signed without a server."""

from base64 import b64encode
from urllib.parse import parse_qs, urlsplit

from services.cluster.adapters.signed_urls import VALID_S, S3UrlSigner
from services.cluster.domain.link import UrlRequest
from tunery.platform.blobs.s3 import S3Settings

SIGNER = S3UrlSigner(S3Settings("http://127.0.0.1:1", "access", "secret-of-a-test", "tunery"))


async def test_a_url_reads_one_object_for_minutes() -> None:
    signed = await SIGNER.sign(UrlRequest(method="GET", key="t/acme/prepared/x"))
    url = urlsplit(signed.url)
    assert (url.path, signed.headers) == ("/tunery/t/acme/prepared/x", {})
    assert parse_qs(url.query)["X-Amz-Expires"] == [str(VALID_S)]


async def test_security_a_url_writes_these_bytes_and_no_others() -> None:
    sha256 = "ab" * 32
    request = UrlRequest(method="PUT", key="t/acme/adapters/j/1/x", size=5, sha256=sha256)
    signed = await SIGNER.sign(request)
    signed_headers = parse_qs(urlsplit(signed.url).query)["X-Amz-SignedHeaders"]
    assert "content-length" in signed_headers[0]
    checksum = b64encode(bytes.fromhex(sha256)).decode()
    assert signed.headers == {"Content-Length": "5", "x-amz-checksum-sha256": checksum}
    assert "x-amz-checksum-sha256" in signed_headers[0] or checksum in parse_qs(
        urlsplit(signed.url).query
    ).get("x-amz-checksum-sha256", [])
