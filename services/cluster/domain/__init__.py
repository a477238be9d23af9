"""A lease in a cluster, pure: its manifests, its stages, and what its pod may say."""
