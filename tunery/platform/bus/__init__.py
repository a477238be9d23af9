"""The log on Apache Kafka, and who may use it."""
