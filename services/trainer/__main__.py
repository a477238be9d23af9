from services.trainer.adapters.enrolment import enrol_or_exit
from services.trainer.app import build
from services.trainer.settings import STOP_MS_MAX
from tunery.platform.process import main

enrol_or_exit()
main("trainer", build, stop_ms_max=STOP_MS_MAX)
