"""Responses to OpenAI's URLs that are not served here."""

from services.gateway.unknown_urls import ALTERNATIVES


def test_every_alternative_has_a_path_prefix_and_a_sentence() -> None:
    for prefix, text in ALTERNATIVES.items():
        assert prefix.startswith("/v1/")
        assert text.endswith(".")
