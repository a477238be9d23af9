from services.engine.app import build
from tunery.platform.process import main

main("engine", build)
