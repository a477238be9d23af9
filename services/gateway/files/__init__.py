"""Files, uploads in parts, and named datasets.

routes, upload_routes, dataset_routes: `/v1/files`, `/v1/uploads`, `/v1/datasets` · multipart: a
form whose file is streamed on · names: `faq@2` · responses: answers of the API · tables,
projection: the journal `dataset` as rows · preview_tasks, previews, preview_worker: the rows of a
file, inspected by a process of its own.
"""
