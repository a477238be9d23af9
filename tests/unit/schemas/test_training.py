"""A work's id follows from its content alone."""

import msgspec
from msgspec.structs import replace

from schemas.training import HYPER_ADDED, WORK_ADDED, EvalWork, TrainWork, Work, work_id_of
from simulator.control_plane.samples import HYPER, WORK


def test_equal_works_have_one_id_and_any_change_gives_another() -> None:
    same: Work = msgspec.json.decode(msgspec.json.encode(WORK), type=Work)
    assert same == WORK
    assert work_id_of(same) == work_id_of(WORK)
    smaller = replace(WORK, hyper=replace(HYPER, batch_size=HYPER.batch_size // 2))
    assert work_id_of(smaller) != work_id_of(WORK)


def test_the_id_does_not_follow_the_order_of_fields() -> None:
    fields = msgspec.to_builtins(WORK)
    shuffled = dict(reversed(list(fields.items())))
    assert work_id_of(msgspec.convert(shuffled, TrainWork)) == work_id_of(WORK)


def test_a_field_that_came_later_changes_no_id_at_its_default() -> None:
    for name in HYPER_ADDED:
        other = replace(WORK, hyper=replace(HYPER, **{name: 7}))
        assert work_id_of(other) != work_id_of(WORK), name
        default = replace(other, hyper=replace(other.hyper, **{name: HYPER_ADDED[name]}))
        assert work_id_of(default) == work_id_of(WORK), name


def test_the_ids_of_known_works_are_for_ever() -> None:
    """Placements on journals refer to them."""
    evaluation = EvalWork(
        base_id="b",
        base_sha256="0" * 64,
        base_path="bases/b",
        prepared=WORK.prepared,
        max_length=512,
        seed=1,
        adapter=(),
    )
    assert (
        work_id_of(evaluation) == "f258a0bc9d6cb35d756cee07a5a5af7cdbe9b560b484f728e9e107dedc374126"
    )
    for name, default in WORK_ADDED[EvalWork].items():
        other = replace(evaluation, **{name: 7})
        assert work_id_of(other) != work_id_of(evaluation), name
        assert work_id_of(replace(other, **{name: default})) == work_id_of(evaluation), name
    assert work_id_of(WORK) == "c91f30f465d4fa937ea16956379eb3686cd634c4b3deb639f3e44b09a5de8954"
