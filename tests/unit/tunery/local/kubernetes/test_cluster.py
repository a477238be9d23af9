"""Servers of the control plane that do not become ready end the start."""

import pytest

from tunery.local.errors import LocalError
from tunery.local.kubernetes.cluster import until


async def test_what_is_not_ready_in_time_is_named() -> None:
    await until("etcd", lambda: True, 0)
    with pytest.raises(LocalError, match="etcd of the cluster is not ready"):
        await until("etcd", lambda: False, 0)
