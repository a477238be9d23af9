"""Body of a request for a batch."""

from typing import Final, Literal

from schemas.batch import BatchEndpoint
from schemas.units import DAY_MS, Ms
from services.gateway.files.domain.bodies import ExpiresAfter
from services.gateway.web.domain.bodies import Body, Id, Metadata

WINDOW_MS: Final[Ms] = DAY_MS  # of a `completion_window` of 24h, the only one that OpenAI has


class BatchRequest(Body):
    """Request to answer the rows of a file that was uploaded with purpose `batch`.

    `output_expires_after`: when the files with answers and errors expire.
    """

    input_file_id: Id
    endpoint: BatchEndpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
