"""The key and the model that an answer is counted for."""

from msgspec.structs import replace

from schemas.training import BlobFile
from services.gateway.chat.asking import asker
from services.gateway.web.deps import Principal
from tests.unit.services.gateway.chat.scripted_engine import QUESTION

CALLER = Principal("acme", "key_1", frozenset())
FILE = BlobFile(name="a", blob="b", sha256="ab" * 32, bytes=1)


def test_a_base_model_is_counted_by_its_id_and_a_version_by_its_name() -> None:
    base = QUESTION.model
    assert asker(CALLER, base, "its alias").model == base.base_id
    assert asker(CALLER, replace(base, adapter=(FILE,)), "ft:tiny").model == "ft:tiny"
    assert asker(CALLER, base, "tiny").key_id == "key_1"
