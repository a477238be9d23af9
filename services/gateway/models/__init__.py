"""Base models and fine-tuned versions.

routes: `/v1/models`, `/v1/bases` · responses: answers of the API · tables, projection: the
journal `model` as rows · base_folders: describes a base model's folder.
"""
