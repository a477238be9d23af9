"""Specification of a job after its training has left one of several variants."""

from msgspec.structs import replace

from schemas.submission import Variant
from simulator.control_plane.samples import spec

SPEC = spec()
LEFT = Variant(
    run_id="b", hyper=replace(SPEC.hyper, rank=99), auto=("alpha",), configuration="hash"
)


def test_a_job_takes_on_the_settings_of_the_variant_that_is_left() -> None:
    several = replace(SPEC, variants=(Variant(run_id="a", hyper=SPEC.hyper), LEFT))
    left = several.of_variant(1)
    assert (left.hyper.rank, left.auto, left.configuration) == (99, ("alpha",), "hash")
    assert (
        replace(left, hyper=several.hyper, auto=several.auto, configuration=several.configuration)
        == several
    )


def test_what_is_no_variant_changes_nothing() -> None:
    assert SPEC.of_variant(None) is SPEC
    several = replace(SPEC, variants=(LEFT,))
    for number in (-1, 1, None):
        assert several.of_variant(number) is several
