"""The rules of deliveries, and of jobs that go to MLflow.

message     the bytes of a webhook
mail        a delivery as an e-mail
schedule    retries
target      allowed URLs
mirrored    a job as its run shows it, and its retries
"""
