from services.eval.app import build
from tunery.runtime.hosts.process import main

main("eval", build)
