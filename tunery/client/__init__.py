"""The API from Python: `Api`, and `AsyncApi` for callers with an event loop."""

from tunery.client.api import Api
from tunery.client.asynchronous import AsyncApi
from tunery.client.wire import ApiRefusal, Unreachable

__all__ = ["Api", "ApiRefusal", "AsyncApi", "Unreachable"]
