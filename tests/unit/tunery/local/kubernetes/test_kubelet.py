"""Times of the kubelet are those of Kubernetes; tests/kubernetes has all else of it."""

from datetime import UTC, datetime, timedelta

from tunery.local.kubernetes.kubelet import timestamp


def test_times_are_read_as_kubernetes_does() -> None:
    read = datetime.strptime(timestamp(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - read) < timedelta(seconds=60)
