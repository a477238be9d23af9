"""`python -m services.gateway`."""

from services.gateway.app import build
from tunery.runtime.hosts.process import main

main("gateway", build)
