from hypothesis import given
from hypothesis import strategies as st

from tunery.runtime.seal.memory import MemoryKeyStore
from tunery.runtime.seal.sealer import Sealer


@given(st.text(), st.text(min_size=1, max_size=20).filter(lambda t: "\ud800" not in t))
def test_any_text_of_any_tenant_opens_as_it_was(text: str, tenant: str) -> None:
    sealer = Sealer(MemoryKeyStore())
    try:
        text.encode()
        tenant.encode()
    except UnicodeEncodeError:
        return
    assert sealer.open(sealer.seal(tenant, text, "name"), "name") == text
