"""Is the adapter better, or at least not worse, than its base?"""
