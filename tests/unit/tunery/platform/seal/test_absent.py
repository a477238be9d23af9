import pytest

from tunery.platform.seal.absent import NoKeys
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer


def test_security_m3_a_service_without_keys_neither_seals_nor_opens_nor_destroys() -> None:
    sealed = Sealer(MemoryKeyStore()).seal("acme", "secret", "name")
    sealer = Sealer(NoKeys("scheduler"))
    for use in (
        lambda: sealer.seal("acme", "secret", "name"),
        lambda: sealer.open(sealed, "name"),
        lambda: sealer.hmac("acme", "secret"),
        lambda: sealer.destroy("acme"),
    ):
        with pytest.raises(RuntimeError, match="scheduler has no keys of tenants"):
            use()
