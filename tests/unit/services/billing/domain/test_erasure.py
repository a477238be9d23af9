"""The end of a tenant: what it closes, in which order its parts go, and what is refused later."""

from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec
import pytest

from schemas.account import (
    ADMIN_SCOPE,
    CreateEndpoint,
    CreateKey,
    CreateTenant,
    EndpointDeleted,
    KeyRevoked,
    Limits,
    PlanTerms,
    ResumeTenant,
    RevokeKey,
)
from schemas.endpoints import EndpointTerms
from schemas.envelope import Context, Message, Rejected
from schemas.erasure import (
    ErasedPart,
    EraseTenant,
    ErasurePart,
    ErasurePartDone,
    RecordErasedPart,
    TenantErased,
    TenantErasureBegun,
)
from schemas.keys import KeyTerms
from schemas.sealed import Sealed
from services.billing.domain.decide import decide
from services.billing.domain.evolve import evolve
from services.billing.domain.state import INITIAL, Accounts

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
TERMS = PlanTerms(
    lane="standard",
    limits=Limits(soft_gpu_ms=1, hard_gpu_ms=2, concurrency=1),
    price_version="2026-11",
)


class Account:
    def __init__(self) -> None:
        self.state: Accounts = INITIAL
        self.at = 0
        self.when(CreateTenant(name=SEALED, terms=TERMS))

    def when(self, command: Message) -> tuple[Any, ...]:
        self.at += 1
        ctx = Context(
            at=self.at, key="acme", tenant="acme", command_id=str(UUID(int=1)), seq=self.at
        )
        events = decide(self.state, command, ctx)  # type: ignore[arg-type]  # any command
        for event in events:
            self.state = evolve(self.state, event, ctx)
        return events


def key(name: str, *scopes: str) -> CreateKey:
    terms = KeyTerms(
        key_id=name, name=SEALED, sha256=f"{ord(name[-1]):064x}", hint="…", scopes=scopes
    )
    return CreateKey(terms=terms)


def endpoint(name: str) -> CreateEndpoint:
    return CreateEndpoint(
        terms=EndpointTerms(
            endpoint_id=name,
            name=SEALED,
            url=SEALED,
            event_types=("fine_tuning.job.succeeded",),
        )
    )


def test_security_h4_an_erasure_closes_keys_and_endpoints_at_once() -> None:
    account = Account()
    for command in (key("key_1", "all"), key("key_2", "all"), endpoint("we_1")):
        account.when(command)
    account.when(RevokeKey(key_id="key_1"))
    revoked, deleted, begun = account.when(EraseTenant())
    assert (type(revoked), revoked.key_id) == (KeyRevoked, "key_2")
    assert deleted == EndpointDeleted(endpoint_id="we_1")
    assert begun == TenantErasureBegun(begins=("jobs",))
    assert account.when(EraseTenant()) == ()


@pytest.mark.parametrize(
    ("order", "begins"),
    [
        (("jobs", "models", "files"), (("models", "files"), (), ("key",))),
        (("jobs", "files", "models"), (("models", "files"), (), ("key",))),
    ],
)
def test_security_h4_the_key_goes_last_and_a_record_says_what_was_done(
    order: tuple[ErasurePart, ...], begins: tuple[tuple[ErasurePart, ...], ...]
) -> None:
    account = Account()
    account.when(EraseTenant())
    for part, following in zip(order, begins, strict=True):
        done = ErasurePartDone(part=part, begins=following)
        assert account.when(RecordErasedPart(part=part)) == (done,)
        assert account.when(RecordErasedPart(part=part)) == (), "a repeated report"
    done, erased = account.when(RecordErasedPart(part="key"))
    assert done == ErasurePartDone(part="key")
    assert isinstance(erased, TenantErased)
    assert erased.record.tenant == "acme"
    assert [gone.part for gone in erased.record.parts] == [*order, "key"]
    assert erased.record.parts[0] == ErasedPart(part="jobs", at=3)
    assert erased.sha256 == sha256(msgspec.json.encode(erased.record)).hexdigest()
    assert account.when(RecordErasedPart(part="key")) == ()


@pytest.mark.parametrize("command", [ResumeTenant(), key("key_9", "all"), endpoint("we_9")])
def test_security_h4_nothing_is_given_to_an_erased_tenant(command: Message) -> None:
    account = Account()
    account.when(EraseTenant())
    (refused,) = account.when(command)
    assert isinstance(refused, Rejected)
    assert refused.reason.code == "tenant_erased"


def test_security_h4_its_name_is_never_used_again() -> None:
    account = Account()
    account.when(EraseTenant())
    (refused,) = account.when(CreateTenant(name=SEALED, terms=TERMS))
    assert refused.reason.code == "tenant_exists"


def test_security_h4_operators_do_not_erase_the_tenant_of_their_keys() -> None:
    account = Account()
    account.when(key("key_1", ADMIN_SCOPE))
    (refused,) = account.when(EraseTenant())
    assert refused.reason.code == "tenant_of_operators"
    account.when(RevokeKey(key_id="key_1"))
    assert account.when(EraseTenant()) == (TenantErasureBegun(begins=("jobs",)),)


def test_security_h4_reports_without_an_erasure_change_nothing() -> None:
    assert Account().when(RecordErasedPart(part="jobs")) == ()
