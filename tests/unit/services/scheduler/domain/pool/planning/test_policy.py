"""The product's policy keeps what is published."""

from services.scheduler.domain.pool.planning.policy import PRODUCT
from tests.unit.services.scheduler.domain.pool.planning.clusters import MINUTE


def test_the_bound_of_preemptions_is_the_published_one() -> None:
    assert (PRODUCT.loss_ppm, PRODUCT.loss_ms_max) == (50_000, 10 * MINUTE)
    assert (PRODUCT.ran_ms_min, PRODUCT.preemptions_max) == (10 * MINUTE, 3)
