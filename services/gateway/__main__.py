"""`python -m services.gateway`."""

from services.gateway.app import build
from tunery.runtime.process import main

main("gateway", build)
