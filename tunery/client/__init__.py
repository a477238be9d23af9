"""The API from Python: `Api`, and `AsyncApi` for callers with an event loop.

asynchronous  the calls, for callers with an event loop
api           the same calls without one, written from `asynchronous`
shapes        the objects that calls return
wire          errors, requests and responses, which both clients share
"""

from tunery.client.api import Api
from tunery.client.asynchronous import AsyncApi
from tunery.client.wire import ApiRefusal, Unreachable

__all__ = ["Api", "ApiRefusal", "AsyncApi", "Unreachable"]
