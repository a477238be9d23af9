"""Keys do not appear in logs, and errors name the tenant."""

from tunery.platform.seal.abstract import DataKey, KeyDestroyed, SealError


def test_a_key_is_printed_without_its_secret() -> None:
    text = repr(DataKey("acme.1", b"very secret"))
    assert "acme.1" in text
    assert "secret" not in text


def test_the_error_of_a_destroyed_key_names_the_tenant() -> None:
    error = KeyDestroyed("acme")
    assert isinstance(error, SealError)
    assert error.tenant == "acme"
    assert "acme" in str(error)
