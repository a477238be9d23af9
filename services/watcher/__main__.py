from services.watcher.app import build
from tunery.runtime.hosts.process import main

main("watcher", build)
