"""The rules of deliveries.

message     the bytes of a webhook
mail        a delivery as an e-mail
schedule    retries
target      allowed URLs
"""
