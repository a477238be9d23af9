"""Parts of `bench.core`: the event core beside the bare client."""
