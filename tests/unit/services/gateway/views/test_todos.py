from services.gateway.views.todos import MIRROR_FILES, RESULTS, result_file_id, results_id


def test_each_file_of_a_job_has_an_id_of_its_own_that_is_always_the_same() -> None:
    kinds = (RESULTS, *MIRROR_FILES)
    assert len({result_file_id("acme", "ftjob-1", kind) for kind in kinds}) == len(kinds)
    assert result_file_id("acme", "ftjob-1", RESULTS) == result_file_id("acme", "ftjob-1", RESULTS)
    assert results_id("acme", "ftjob-1") != results_id("acme", "ftjob-2")
