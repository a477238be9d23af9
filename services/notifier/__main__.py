from services.notifier.app import build
from tunery.platform.process import main

main("notifier", build)
