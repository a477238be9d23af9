from services.trainer.app import build
from services.trainer.settings import STOP_MS_MAX
from tunery.runtime.hosts.process import main

main("trainer", build, stop_ms_max=STOP_MS_MAX)
