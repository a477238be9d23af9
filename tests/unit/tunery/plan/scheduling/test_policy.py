"""The product's policy keeps what is published."""

from tests.unit.tunery.plan.scheduling.clusters import MINUTE
from tunery.plan.scheduling.policy import PRODUCT


def test_the_bound_of_preemptions_is_the_published_one() -> None:
    assert (PRODUCT.loss_ppm, PRODUCT.loss_ms_max) == (50_000, 10 * MINUTE)
    assert (PRODUCT.ran_ms_min, PRODUCT.preemptions_max) == (10 * MINUTE, 3)
