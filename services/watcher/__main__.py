from services.watcher.app import build
from tunery.platform.process import main

main("watcher", build)
