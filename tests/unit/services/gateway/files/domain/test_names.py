"""Names of datasets and of their versions."""

import pytest

from services.gateway.files.domain.names import is_name, named_version


@pytest.mark.parametrize(
    ("reference", "version"),
    [("faq@2", ("faq", 2)), ("faq", None), ("faq@0", None), ("file-1", None), ("a b@1", None)],
)
def test_a_version_is_a_name_and_a_number(reference: str, version: tuple[str, int] | None) -> None:
    assert named_version(reference) == version


def test_a_name_begins_with_a_letter_or_digit() -> None:
    assert is_name("faq-2.1_x")
    assert not is_name("-faq")
    assert not is_name("a" * 65)
