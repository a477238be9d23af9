"""Orders of leases are opened by the node that they are sealed to, and by no other."""

import pytest

from schemas.assignments import LeaseOrder
from schemas.topics import POOL
from tests.unit.services.trainer.domain.test_evolve import WORK, lease_ref, member, placement
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.seal.abstract import SealBroken
from tunery.platform.seal.orders import open_order, seal_order
from tunery.runtime.bus.signing import SenderKeys, node_keys

pytestmark = pytest.mark.security

ORDER = LeaseOrder(lease=lease_ref(1), members=(member("a1"),), placement=placement(1), work=WORK)
SECRET = b"s" * 32
OF_SCHEDULER = keys_of(SECRET, "scheduler")


def test_a_node_opens_what_the_scheduler_seals_to_it() -> None:
    sealed = seal_order(ORDER, node_keys(OF_SCHEDULER, "node.a"))
    assert open_order(sealed, keys_of(SECRET, "node.a")) == ORDER
    assert sealed == seal_order(ORDER, node_keys(OF_SCHEDULER, "node.a"))
    assert "acme" not in sealed


@pytest.mark.parametrize("name", ["node.b", "node.a#2", "gateway"])
def test_no_other_sender_opens_it(name: str) -> None:
    sealed = seal_order(ORDER, node_keys(OF_SCHEDULER, "node.a"))
    with pytest.raises(SealBroken):
        open_order(sealed, keys_of(SECRET, name))


def test_a_damaged_order_and_one_for_a_node_without_keys_do_not_open() -> None:
    sealed = seal_order(ORDER, node_keys(OF_SCHEDULER, "node.a"))
    for text in ("", "!", sealed[:-8], sealed.swapcase()):
        with pytest.raises(SealBroken):
            open_order(text, keys_of(SECRET, "node.a"))
    with pytest.raises(SealBroken):
        open_order(sealed, SenderKeys())
    assert POOL.name in OF_SCHEDULER.nodes
