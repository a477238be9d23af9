"""The second account of keys: when it objects, and when it does not."""

from schemas.lease_keys import LeaseHolder, LeaseKeysRequested, LeaseKeysSealed, LeaseNeeds
from simulator.control_plane.key_books import KeyBooks
from tests.unit.services.trainer.domain.test_evolve import closed, granted


def holder(incarnation: str) -> LeaseHolder:
    return LeaseHolder(
        lease=1, tenant="acme", job_id="job1", attempt=1, node_id="a", incarnation=incarnation
    )


def asks(incarnation: str = "a1") -> LeaseKeysRequested:
    return LeaseKeysRequested(holder=holder(incarnation), public_key="a" * 64, needs=LeaseNeeds())


def gets(incarnation: str = "a1") -> LeaseKeysSealed:
    return LeaseKeysSealed(holder=holder(incarnation), sealed_keys="s")


def violations(*events: object) -> int:
    books = KeyBooks()
    for event in events:
        books.enter(event)
    return len(books.violations)


def test_the_holder_of_an_open_lease_may_have_its_keys() -> None:
    assert violations(granted(), asks(), gets(), closed(1)) == 0


def test_other_agents_get_no_keys_and_none_does_after_the_end() -> None:
    assert violations(granted(), asks("b1")) == 1
    assert violations(granted(), gets()) == 1, "keys without a request"
    assert violations(granted(), asks(), closed(1), gets()) == 1
    assert violations(asks()) == 1
