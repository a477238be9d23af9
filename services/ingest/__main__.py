from services.ingest.app import build
from tunery.runtime.process import main

main("ingest", build)
