"""The rules of deliveries, and of jobs that go to MLflow."""
