"""Scopes of a key, new ids, and sealed columns."""

from types import SimpleNamespace
from typing import cast

import pytest

from schemas.sealed import Sealed
from services.gateway.web.deps import Deps, Principal, require
from services.gateway.web.domain.errors import ApiError

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")


def test_a_key_without_the_scope_is_refused_by_its_name() -> None:
    principal = Principal("acme", "key-1", frozenset({"files.read"}))
    require(principal, "files.read")
    with pytest.raises(ApiError) as refusal:
        require(principal, "files.write")
    assert refusal.value.status == 403
    assert "'files.write'" in refusal.value.message


def test_a_general_scope_is_not_the_operators() -> None:
    with pytest.raises(ApiError):
        require(Principal("acme", "key-1", frozenset({"read", "write"})), "admin")


def test_an_identifier_is_its_prefix_and_twelve_random_bytes() -> None:
    deps = cast(Deps, SimpleNamespace(draw=lambda count: b"\xab" * count))
    assert Deps.fresh(deps, "file-") == "file-" + "ab" * 12


def test_an_empty_column_is_not_opened() -> None:
    opener = SimpleNamespace(open=lambda sealed, _field: "opened")
    deps = cast(Deps, SimpleNamespace(seal=opener))
    assert Deps.unseal(deps, SEALED, "name") == "opened"
    assert Deps.unseal(deps, None, "name") is None
