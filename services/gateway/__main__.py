"""`python -m services.gateway`."""

from services.gateway.app import build
from tunery.platform.process import main

main("gateway", build)
