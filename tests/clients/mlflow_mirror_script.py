"""Reads a mirrored job by MLflow's own client: `mlflow_mirror_script.py JOB_ID URL [running]`."""

import json
import sys

from mlflow import MlflowClient

job_id, url, *is_running = sys.argv[1:]
client = MlflowClient(url)
experiments = [experiment.experiment_id for experiment in client.search_experiments()]
runs = client.search_runs(experiments, f"tags.`tunery.job_id` = '{job_id}'")
run = runs[0]
points = client.get_metric_history(run.info.run_id, "train/loss")
assert run.info.status == ("RUNNING" if is_running else "FINISHED")
print(
    json.dumps(
        {
            "runs": len(runs),
            "points": len(points),
            "losses": {str(point.step): point.value for point in points},
            "parameters": run.data.params,
            "summary": {
                name.removeprefix("tunery."): run.data.tags[name] for name in run.data.tags
            },
        }
    )
)
