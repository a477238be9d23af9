from services.eval.app import build
from tunery.runtime.process import main

main("eval", build)
