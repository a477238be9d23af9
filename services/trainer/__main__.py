from services.trainer.app import build
from tunery.runtime.process import main

main("trainer", build)
