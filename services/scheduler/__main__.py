from services.scheduler.app import build
from tunery.runtime.hosts.process import main

main("scheduler", build)
