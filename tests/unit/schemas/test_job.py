"""Messages of `job` that carry a part with the job's id name the job themselves."""

from schemas.job import PlacementWanted, RegistrationWanted, WorkDescribed
from schemas.model import Lineage, VersionTerms
from simulator.control_plane.samples import POOL, TRAINED, describe, request


def test_the_job_of_a_message_is_that_of_its_part() -> None:
    described = WorkDescribed(pool=POOL, description=describe("ftjob-1").description)
    wanted = PlacementWanted(pool=POOL, placement=request("ftjob-2").placement)
    lineage = Lineage(
        job_id="ftjob-3",
        base_id="smol",
        base_sha256="b" * 64,
        dataset_version="v1",
        training_sha256="1" * 64,
        config_sha256="5" * 64,
        steps=40,
        verdict="pass",
        scores_sha256="4" * 64,
    )
    terms = VersionTerms(model_id="ft:smol", series="smol/series", lineage=lineage)
    registration = RegistrationWanted(terms=terms, adapter=TRAINED.adapter)
    messages = (described, wanted, registration)
    assert [message.job_id for message in messages] == ["ftjob-1", "ftjob-2", "ftjob-3"]
