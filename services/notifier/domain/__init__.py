"""The rules of deliveries: `message` (the bytes), `schedule` (retries), `target` (allowed URLs)."""
