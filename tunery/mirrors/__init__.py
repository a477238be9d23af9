"""A job as other tools show it: what the command line and the services write, and where.

figures      parameters, figures of a step and summary of a job, as every mirror shows them
event_files  files that TensorBoard reads
mlflow_runs  runs of an MLflow server
wandb_runs   runs of W&B's client in its offline mode
wandb_files  such a run as one file, by a process of its own
"""
