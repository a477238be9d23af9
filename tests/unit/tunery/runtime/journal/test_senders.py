"""Security, findings C1 and C2: an owner decides no command whose sender may not send it."""

from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest

from schemas import errors
from schemas.account import AdjustInvoice, CreateKey, SuspendTenant
from schemas.answers import NUMBERED_ANSWERS, CountAnswers
from schemas.billing import InvoiceAdjustment
from schemas.envelope import Context, Envelope, Message, Rejected, Source, Tick
from schemas.keys import KeyTerms
from schemas.sealed import Sealed
from schemas.topics import ACCOUNT
from tunery.platform.bus.sender_keys import keys_of
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import SenderKeys, operator_keys
from tunery.runtime.journal.acceptance import Poison
from tunery.runtime.journal.decision import Decided, decide_record
from tunery.runtime.journal.fold import Fold
from tunery.runtime.verbs import Aggregate

pytestmark = pytest.mark.security

SECRET: Final = b"s" * 32
TENANT: Final = "acme"
OWNER: Final = keys_of(SECRET, "billing", signed_since=1_000)
CREDIT: Final = AdjustInvoice(
    adjustment=InvoiceAdjustment(
        reference="forged", amount_micro=-(10**12), currency="EUR", reason="goodwill"
    )
)
KEY: Final = CreateKey(
    terms=KeyTerms(
        key_id="key_1",
        name=Sealed(key_id="k", nonce=b"", ciphertext=b""),
        sha256="0" * 64,
        hint="beef",
        scopes=("admin",),
    )
)


def decide(decided: int, command: Message, context: Context) -> tuple[Message, ...]:
    return ()


def evolve(decided: int, event: Message, context: Context) -> int:
    return decided


ACCOUNTS: Final = Aggregate(ACCOUNT, 1, 0, int, decide, evolve)
REACTION: Final = Source("account", 0, 0, 10**9, 0)


def decided_as(
    body: Message | bytes, keys: SenderKeys | None, at: int = 1_000, **rest: Any
) -> Decided[int]:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    envelope = Envelope(id=str(uuid4()), key=TENANT, tenant=TENANT, body=msgspec.Raw(raw), **rest)
    value = msgspec.json.encode(envelope)
    value = value if keys is None else keys.sign(ACCOUNT.name, value)
    record = Record(partition_of(TENANT.encode()), 0, at, b"", value)
    decided = decide_record(ACCOUNTS, Fold(0), record, 0, OWNER)
    assert decided.entry.command_id == envelope.id
    return decided


def refusal(decided: Decided[int]) -> Rejected:
    (event,) = decided.events
    assert isinstance(event, Rejected)
    return event


NODE: Final = keys_of(SECRET, "node.gpu-07")
NUMBERED: Final = Source(f"{NUMBERED_ANSWERS}a-counter", 0, 0, 7, 0)
REFUSED: Final[dict[str, tuple[Message | bytes, SenderKeys | None, dict[str, Any], str]]] = {
    "a credit that nobody signed": (CREDIT, None, {}, "sender_unproven"),
    "a key signed with another secret": (
        KEY,
        keys_of(b"t" * 32, "gateway"),
        {},
        "sender_unproven",
    ),
    "a credit of a node": (CREDIT, NODE, {}, "sender_not_permitted"),
    "a key of a node": (KEY, NODE, {}, "sender_not_permitted"),
    "a credit of the notifier": (
        CREDIT,
        keys_of(SECRET, "notifier"),
        {},
        "sender_not_permitted",
    ),
    "a deadline that is not the owner's": (
        Tick(),
        keys_of(SECRET, "gateway"),
        {},
        "sender_not_permitted",
    ),
    "a reaction to a journal of others": (
        SuspendTenant(),
        keys_of(SECRET, "gateway"),
        {"source": REACTION},
        "sender_of_reaction",
    ),
    "a reaction to no journal, with nothing that can be read": (
        b'{"type":"Dance.v1"}',
        NODE,
        {"source": Source("x" * 1_000, 0, 0, 7, 0)},
        "sender_of_reaction",
    ),
    "numbered answers that nothing can be read of": (
        b'{"type":"Dance.v1"}',
        NODE,
        {"source": NUMBERED},
        "sender_of_reaction",
    ),
    "another command under the name of a counter": (
        SuspendTenant(),
        keys_of(SECRET, "gateway"),
        {"source": NUMBERED},
        "sender_of_reaction",
    ),
    "a reaction that nobody signed": (
        SuspendTenant(),
        None,
        {"source": REACTION},
        "sender_unproven",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_security_c2_a_command_of_a_wrong_sender_is_refused(case: str) -> None:
    """Only its id and the refusal reach the log: its source would hide reactions to come."""
    body, keys, rest, code = REFUSED[case]
    decided = decided_as(body, keys, **rest)
    refused = refusal(decided)
    assert (refused.code, refused.reason.code) == (errors.SENDER_REFUSED, code)
    assert (decided.entry.key, decided.entry.tenant, decided.entry.source) == ("", "", None)
    assert decided.entry.sender == (None if code == "sender_unproven" else keys and keys.sender)
    assert len(decided.value) < 1_000


@pytest.mark.parametrize("principal", ["gateway", "billing"])
def test_a_command_of_its_sender_is_decided_and_names_it(principal: str) -> None:
    body = CREDIT if principal == "gateway" else Tick()
    decided = decided_as(body, keys_of(SECRET, principal))
    assert decided.events == ()
    assert decided.entry.sender == principal
    assert decided.entry.tenant == TENANT


def test_a_command_of_an_operator_is_decided() -> None:
    """The secret of commands would let an operator sign as any service."""
    assert decided_as(CREDIT, operator_keys(SECRET, "operator")).entry.sender == "operator"


def test_the_owner_itself_reacts_to_its_journal() -> None:
    assert decided_as(Tick(), keys_of(SECRET, "billing"), source=REACTION).entry.source == REACTION


def test_a_command_of_before_there_were_keys_is_decided() -> None:
    assert decided_as(CREDIT, None, at=999).events == ()
    assert decided_as(CREDIT, None, at=999).entry.sender is None


def test_unreadable_commands_of_a_permitted_sender_are_malformed() -> None:
    decided = decided_as(b'{"type":"Dance.v1"}', keys_of(SECRET, "gateway"))
    assert refusal(decided).code == errors.MALFORMED


def test_a_reaction_of_the_owner_that_cannot_be_decided_still_stops_it() -> None:
    with pytest.raises(Poison):
        decided_as(b'{"type":"Dance.v1"}', keys_of(SECRET, "billing"), source=REACTION)


@pytest.mark.parametrize("principal", ["engine", "node.gpu-07"])
def test_counts_of_answers_have_numbers_of_their_own(principal: str) -> None:
    """Counts are sent again when in doubt, and the owner drops repeats by their number."""
    decided = decided_as(CountAnswers(uses=()), keys_of(SECRET, principal), source=NUMBERED)
    assert (decided.events, decided.entry.source) == ((), NUMBERED)
