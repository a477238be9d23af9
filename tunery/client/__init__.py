"""A small typed client of Tunery's API, synchronous, over httpx. The `openai` SDK works as well."""

from tunery.client.api import Api, Refused, Unreachable

__all__ = ["Api", "Refused", "Unreachable"]
