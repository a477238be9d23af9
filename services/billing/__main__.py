from services.billing.app import build
from tunery.platform.process import main

main("billing", build)
