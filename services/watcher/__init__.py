"""Finds anomalies of trainings in their telemetry, with Faust; approximate, never for money."""
