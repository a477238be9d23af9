"""Base models and fine-tuned versions.

* `routes`: `/v1/models`, `/v1/bases`; `base_file_routes`: `/v1/models/{id}/files`
* `gate_routes`: `/v1/gate/policies`, and the quarantine of a version
* `benchmark_routes`: `/v1/gate/benchmarks`
* `download_routes`: `/v1/downloads`, URLs of files without an API key
* `release_routes`: approvals, the history of a version, whether a base model is unchanged
* `bodies`, `responses`: bodies of requests and of responses
* `tables`, `projection`: the journal `model` as rows
* `names`: names such as `ft:base:tenant:suffix:12345678`
* `base_folders`: describes a base model's folder
"""
