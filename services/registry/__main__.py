from services.registry.app import build
from tunery.runtime.hosts.process import main

main("registry", build)
