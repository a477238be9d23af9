from services.notifier.app import build
from tunery.runtime.hosts.process import main

main("notifier", build)
