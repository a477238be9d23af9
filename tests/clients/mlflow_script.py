"""Reads a model back by MLflow's own client: `mlflow_script.py NAME@ALIAS`, in an empty folder."""

import json
import sys

import mlflow
from mlflow import MlflowClient

name, _, alias = sys.argv[1].partition("@")
client = MlflowClient()
version = client.get_model_version_by_alias(name, alias)
run = client.get_run(version.run_id)
folder = mlflow.artifacts.download_artifacts(f"models:/{name}@{alias}", dst_path="downloaded")
print(
    json.dumps(
        {
            "version": version.version,
            "tags": version.tags,
            "params": run.data.params,
            "folder": folder,
        }
    )
)
