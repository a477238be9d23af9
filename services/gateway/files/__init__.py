"""Files, uploads in parts, and named datasets.

* `routes`, `upload_routes`, `dataset_routes`: `/v1/files`, `/v1/uploads`, `/v1/datasets`
* `deps`: what they are given
* `bodies`, `responses`: requests and answers
* `tables`, `projection`: the journal `dataset` as rows
* `multipart`: a form whose file is streamed on
* `names`: a file called `faq@2`
* `preview_tasks`, `previews`, `preview_worker`: rows inspected by a process of its own
"""
