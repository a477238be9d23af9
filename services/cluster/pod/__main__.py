import sys

from services.cluster.pod.attempt import main

sys.exit(main())
