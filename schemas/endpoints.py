"""Terms of webhook endpoints, and messages of `account` that confirm their addresses.

An endpoint may be an e-mail address. Its only mail is a code until the tenant confirms the address
with that code, which its reader has to pass on. So tenants cannot mail people who did not ask for
it.
"""

import re
from typing import Final

from schemas.envelope import Message, Part, Sha256
from schemas.sealed import Sealed

CONFIRMATION_REQUESTED: Final = "webhook_endpoint.confirmation_requested"  # type of its event
MAIL_SCHEME: Final = "mailto:"
# RFC 5321 allows more, but ASCII without quotes, comments, `%` and `!` has one meaning everywhere
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM = "[A-Za-z0-9_+=&'~-]+"
_MAIL_URL: Final = re.compile(
    rf"{MAIL_SCHEME}(?=.{{1,254}}\Z)(?=[^@]{{1,64}}@)"
    rf"({_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?)"
)


def mail_address(url: str) -> str | None:
    """Return the address of a `mailto` URL; None: another URL, or not exactly one plain address."""
    match = _MAIL_URL.fullmatch(url)
    return match and match[1]


class Confirmation(Part):
    """Code that confirms the address of an endpoint."""

    # hash of the code, which is derived from the tenant's key, the endpoint and its address
    code_sha256: Sha256
    delivery_id: str  # the delivery that mails the code


class EndpointTerms(Part):
    """A webhook endpoint. The tenant's key, its id and version give its signing secret."""

    endpoint_id: str
    name: Sealed  # what its tenant calls it
    url: Sealed  # destination of its deliveries
    event_types: tuple[str, ...]  # what it subscribes to; at least one
    secret_version: int = 1  # counts its signing secrets
    # confirmation of its address; None: there is nothing to confirm
    confirmation: Confirmation | None = None


class EndpointChange(Part):
    """New terms of a webhook endpoint. What is None stays as it is."""

    name: Sealed | None = None  # what its tenant calls it from now on
    url: Sealed | None = None  # destination of later deliveries
    event_types: tuple[str, ...] | None = None  # what it subscribes to from now on
    # confirmation of the new `url`; None with it: there is nothing to confirm
    confirmation: Confirmation | None = None


# --- commands
class ConfirmEndpoint(Message):
    """The reader of the mail at an endpoint's address confirms the endpoint."""

    endpoint_id: str
    code_sha256: Sha256  # hash of the code that was mailed to the address


# --- events
class EndpointConfirmed(Message):
    """The address is confirmed. The endpoint gets deliveries of later events."""

    endpoint_id: str
