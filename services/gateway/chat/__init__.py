"""Answers of base models and versions, in OpenAI's shapes."""
