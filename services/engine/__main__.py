from services.engine.app import build
from tunery.runtime.hosts.process import main

main("engine", build)
