from services.registry.app import build
from tunery.runtime.process import main

main("registry", build)
