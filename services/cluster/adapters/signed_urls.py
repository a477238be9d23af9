"""URLs of single objects, signed with an account of object storage (S3's signature version 4)."""

import asyncio
from base64 import b64encode
from typing import Any, Final

from services.cluster.domain.link import SignedUrl, UrlRequest
from tunery.platform.blobs.s3 import S3Settings, connect, named_errors

VALID_S: Final = 900  # from then on the storage refuses it; a transfer that has begun goes on


class S3UrlSigner:
    """Implements `UrlSigner`."""

    def __init__(self, settings: S3Settings) -> None:
        self._bucket, self._client = settings.bucket, connect(settings)

    async def sign(self, request: UrlRequest) -> SignedUrl:
        """Return a URL of one object; to put it, of these bytes alone."""
        parameters: dict[str, Any] = {"Bucket": self._bucket, "Key": request.key}
        headers: dict[str, str] = {}
        if request.method == "PUT":
            checksum = b64encode(bytes.fromhex(request.sha256)).decode("ascii")
            parameters |= {"ContentLength": request.size, "ChecksumSHA256": checksum}
            headers = {"Content-Length": str(request.size), "x-amz-checksum-sha256": checksum}
        operation = "put_object" if request.method == "PUT" else "get_object"

        def sign() -> str:
            with named_errors(request.key):
                url: str = self._client.generate_presigned_url(
                    operation, Params=parameters, ExpiresIn=VALID_S
                )
            return url

        return SignedUrl(url=await asyncio.to_thread(sign), headers=headers)
