"""Files, uploads in parts, and named datasets.

* `routes`, `upload_routes`, `dataset_routes`: `/v1/files`, `/v1/uploads`, `/v1/datasets`
* `storage_routes`: what a tenant keeps, and may keep
* `base_folder_routes`: folders of base models out of uploaded files
* `deps`: dependencies of these routes
* `bodies`, `responses`: bodies of requests and of responses
* `tables`, `projection`: the journal `dataset` as rows
* `multipart`: multipart forms whose file is streamed to object storage
* `names`: names of versions such as `faq@2`
* `preview_tasks`, `previews`, `preview_worker`: rows inspected by a process of its own
"""
