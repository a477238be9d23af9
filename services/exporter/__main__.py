from services.exporter.app import build
from tunery.runtime.hosts.process import main

main("exporter", build)
