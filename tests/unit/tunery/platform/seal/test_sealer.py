import re

from hypothesis import example, given
from hypothesis import strategies as st

from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer


def test_security_a_mac_is_verified_and_makes_no_key() -> None:
    keys = MemoryKeyStore()
    sealer = Sealer(keys)
    assert not sealer.verify("stranger", "text", "00")
    assert keys.find("stranger") is None
    mac = sealer.hmac("acme", "text")
    assert sealer.verify("acme", "text", mac)
    assert not sealer.verify("acme", "text2", mac)
    assert not sealer.verify("acme", "text", "ü")


@example("")
@given(st.text(alphabet="abc.-_ü", max_size=64))
def test_a_word_is_always_sealed_to_the_same_letters_and_opens_with_its_key(word: str) -> None:
    keys = MemoryKeyStore()
    sealer = Sealer(keys)
    sealed = sealer.seal_word("acme", word)
    assert sealed == Sealer(keys).seal_word("acme", word)
    assert re.fullmatch("[a-z2-7]+", sealed)
    assert sealer.open_word("acme", sealed) == word
    keys.rotate("acme")
    assert sealer.seal_word("acme", word) == sealed
    assert sealer.open_word("nobody", sealed) is None
    assert keys.find("nobody") is None
    changed = ("b" if sealed[0] == "a" else "a") + sealed[1:]
    for damaged in (changed, sealed[1:], "", "a", "!"):
        assert sealer.open_word("acme", damaged) is None
    keys.destroy("acme")
    assert sealer.open_word("acme", sealed) is None


@example("", "/")
@given(st.text(), st.text(min_size=1, max_size=20).filter(lambda t: "\ud800" not in t))
def test_any_text_of_any_tenant_opens_as_it_was(text: str, tenant: str) -> None:
    sealer = Sealer(MemoryKeyStore())
    try:
        text.encode()
        tenant.encode()
    except UnicodeEncodeError:
        return
    assert sealer.open(sealer.seal(tenant, text, "name"), "name") == text
