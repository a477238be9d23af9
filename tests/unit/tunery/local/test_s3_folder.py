"""Addresses of folders in object storage."""

import pytest

from tunery.local.s3_folder import parts_of


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://models/phi", ("models", "phi/")),
        ("s3://models/a/b/", ("models", "a/b/")),
        ("s3://models", ("models", "")),
        ("s3://models/", ("models", "")),
    ],
)
def test_first_hour_a_folder_is_a_prefix_that_ends_with_a_slash(
    url: str, parts: tuple[str, str]
) -> None:
    assert parts_of(url) == parts
