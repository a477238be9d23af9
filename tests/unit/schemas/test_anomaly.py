from msgspec.structs import replace

from schemas.anomaly import Anomaly, RecordAnomaly

DROP = Anomaly(kind="throughput_drop", attempt=2, window=60_000, measured_ppm=1, usual_ppm=2)


def test_the_key_is_of_attempt_kind_and_window_and_not_of_what_was_measured() -> None:
    assert DROP.key == "2/throughput_drop/60000"
    assert replace(DROP, measured_ppm=5, usual_ppm=6).key == DROP.key
    assert RecordAnomaly(job_id="ftjob-1", anomaly=DROP).attempt == 2
