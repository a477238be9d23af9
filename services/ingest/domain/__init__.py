"""Files, their validation, and the prepared caches that jobs train on."""
