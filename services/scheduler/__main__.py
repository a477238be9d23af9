from services.scheduler.app import build
from tunery.runtime.process import main

main("scheduler", build)
