"""Files, uploads in parts, and named datasets.

routes, upload_routes, dataset_routes: `/v1/files`, `/v1/uploads`, `/v1/datasets` · multipart: a
form whose file is streamed on · names: `faq@2` · responses: objects of the API · projection: the
journal `dataset` into rows · preview_tasks, previews, preview_worker: rows of a file looked into
by a process of its own.
"""
