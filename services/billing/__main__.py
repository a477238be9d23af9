from services.billing.app import build
from tunery.runtime.process import main

main("billing", build)
