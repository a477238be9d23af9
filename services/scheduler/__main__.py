from services.scheduler.app import build
from tunery.platform.process import main

main("scheduler", build)
