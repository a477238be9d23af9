from services.exporter.app import build
from tunery.platform.process import main

main("exporter", build)
