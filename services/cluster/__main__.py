from services.cluster.app import build
from services.trainer.adapters.enrolment import enrol_or_exit
from services.trainer.settings import STOP_MS_MAX
from tunery.platform.process import main

# To the pool it is a node, and so it has a node's name, rights and keys.
enrol_or_exit()
main("trainer", build, stop_ms_max=STOP_MS_MAX)
