from services.billing.app import build
from tunery.runtime.hosts.process import main

main("billing", build)
