from services.ingest.app import build
from tunery.runtime.hosts.process import main

main("ingest", build)
