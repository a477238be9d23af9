"""Base models and fine-tuned versions.

routes: `/v1/models`, `/v1/bases` · responses: objects of the API · projection: the journal
`model` into rows · base_folders: describes a base model's folder.
"""
