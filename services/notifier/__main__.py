from services.notifier.app import build
from tunery.runtime.process import main

main("notifier", build)
