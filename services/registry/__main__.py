from services.registry.app import build
from tunery.platform.process import main

main("registry", build)
