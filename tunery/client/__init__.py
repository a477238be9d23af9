"""The API from Python: `Api`, and `AsyncApi` for callers with an event loop."""

from tunery.client.api import Api
from tunery.client.asynchronous import AsyncApi
from tunery.client.wire import Refused, Unreachable

__all__ = ["Api", "AsyncApi", "Refused", "Unreachable"]
