from services.eval.app import build
from tunery.platform.process import main

main("eval", build)
