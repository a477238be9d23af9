"""How a service lives: log, journal, hosts of the five verbs, blobs, sealed fields, clock."""
