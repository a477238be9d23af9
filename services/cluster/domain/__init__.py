"""Pure code for a lease in a cluster: manifests, stages, and checks of messages of its pod."""
