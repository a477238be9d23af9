from prometheus_client import REGISTRY

from tunery.runtime.health import Health


def running(host: str) -> float | None:
    return REGISTRY.get_sample_value("tunery_host_running", {"host": host})


def test_failing_host_is_named_until_it_runs() -> None:
    health = Health()
    health.mark_failing("projector views", "hung")
    health.mark_failing("feeds", "failed")
    assert dict(health.failing) == {"projector views": "hung", "feeds": "failed"}
    assert running("projector views") == 0
    health.mark_running("projector views")
    assert dict(health.failing) == {"feeds": "failed"}
    assert running("projector views") == 1
