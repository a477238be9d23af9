from services.ingest.app import build
from tunery.platform.process import main

main("ingest", build)
