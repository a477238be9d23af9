"""Names of models: sealed on the log, shown to their tenant, those of before as they are."""

import pytest

from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.model_names import logged_name, sealed_suffix, shown_names
from tunery.platform.seal.sealer import Sealer

SHOWN = "ft:tiny:acme:faq:12345678"
ENDS = ("12345678", "production", "12345678:ckpt-step-40")


def shown(seal: Sealer, tenant: str | None, text: str) -> str:
    return shown_names(seal, tenant, text.encode()).decode()


@pytest.mark.parametrize("end", ENDS)
def test_security_h4_the_log_has_a_name_without_its_suffix(end: str) -> None:
    seal, name = Sealer(MemoryKeyStore()), f"ft:tiny:acme:questions:{end}"
    logged = logged_name(seal, "acme", name)
    assert "questions" not in logged
    assert logged.startswith("ft:tiny:acme:~")
    assert logged.endswith(f":{end}")
    assert logged_name(seal, "acme", logged) == logged
    assert shown(seal, "acme", f'{{"a": "{logged}", "b": "{logged}"}}') == (
        f'{{"a": "{name}", "b": "{name}"}}'
    )


@pytest.mark.parametrize(
    "name", ["tiny", "ft:tiny:acme::12345678", "ft:tiny:other:faq:12345678", "ft:tiny:acme", ""]
)
def test_what_has_no_suffix_of_the_tenant_stays_as_it_is(name: str) -> None:
    assert logged_name(Sealer(MemoryKeyStore()), "acme", name) == name


def test_a_model_without_a_suffix_has_none_on_the_log() -> None:
    assert sealed_suffix(Sealer(MemoryKeyStore()), "acme", "") == ""


def test_security_h4_a_suffix_is_gone_with_the_key_of_its_tenant() -> None:
    keys = MemoryKeyStore()
    seal = Sealer(keys)
    logged = logged_name(seal, "acme", SHOWN)
    keys.destroy("acme")
    assert shown(seal, "acme", logged) == logged


def test_security_h4_a_suffix_is_not_shown_to_others_nor_with_another_key() -> None:
    seal = Sealer(MemoryKeyStore())
    logged = logged_name(seal, "acme", SHOWN)
    assert shown(seal, "other", logged) == logged
    assert shown(seal, None, logged) == SHOWN
    moved = logged.replace(":acme:", ":other:")
    seal.hmac("other", "it has a key")
    assert shown(seal, None, moved) == moved
    assert shown(seal, None, "ft:tiny:acme:~aa:1") == "ft:tiny:acme:~aa:1"
