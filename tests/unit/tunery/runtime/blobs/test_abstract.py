"""Keys of blobs, and errors that name them."""

import pytest

from tunery.runtime.blobs.abstract import (
    KEY_BYTES_MAX,
    BlobCorrupt,
    BlobError,
    BlobExists,
    BlobMissing,
    BlobTooLarge,
    blob_key,
    check_key,
)

SHA = "ab" + "0" * 62


@pytest.mark.parametrize("suffix", ["", ".jsonl"])
def test_a_key_is_named_by_content_below_its_tenant(suffix: str) -> None:
    key = blob_key("acme", "files", SHA, suffix)
    assert key == f"t/acme/files/ab/{SHA}{suffix}"
    check_key(key)


@pytest.mark.parametrize("key", ["a", "t/acme/x y", "t/.hidden/...", "k" * KEY_BYTES_MAX])
def test_keys_of_printable_characters_are_accepted(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    "key",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b"),
        *("ü", "a\nb", "a\0", "a\x7f", "k" * (KEY_BYTES_MAX + 1)),
    ],
)
def test_keys_that_a_storage_would_refuse_or_confuse_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not a key"):
        check_key(key)


@pytest.mark.parametrize(
    "error",
    [BlobMissing("t/k"), BlobExists("t/k"), BlobTooLarge("t/k"), BlobCorrupt("t/k", "aa", "bb")],
)
def test_errors_name_the_key(error: BlobError) -> None:
    assert "t/k" in str(error)
    assert vars(error)["key"] == "t/k"


def test_corruption_names_both_hashes() -> None:
    assert str(BlobCorrupt("k", "aa", "bb")) == "blob k has SHA-256 bb, expected aa"
