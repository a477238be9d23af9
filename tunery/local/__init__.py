"""The servers and services of one machine."""

from tunery.local.errors import LocalError
from tunery.local.stack import SERVERS, SERVICES, ServiceSpec, Stack, stack

__all__ = ["SERVERS", "SERVICES", "LocalError", "ServiceSpec", "Stack", "stack"]
