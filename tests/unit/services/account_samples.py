"""Events of the account stream, for tests of its decider and of its rows."""

from schemas.account import DeliveryDue, EndpointCreated, WebhookEvent
from schemas.endpoints import EndpointTerms
from schemas.sealed import Sealed

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
OTHER = Sealed(key_id="k", nonce=b"n", ciphertext=b"d")
ENDPOINT = EndpointCreated(
    terms=EndpointTerms(
        endpoint_id="we-1", name=SEALED, url=SEALED, event_types=("a",), secret_version=1
    )
)
DUE = DeliveryDue(
    delivery_id="wd-1",
    endpoint_id="we-1",
    url=SEALED,
    secret_version=1,
    event=WebhookEvent(
        event_id="evt-1",
        event_type="fine_tuning.job.succeeded",
        object_id="ftjob-1",
        created_at=900_000,
    ),
)
