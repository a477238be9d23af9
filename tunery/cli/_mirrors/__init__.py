"""What `tunery job mirror` writes, and where.

figures      parameters, figures of a step and summary of a job, as every mirror shows them
copying      follows a job and writes it to mirrors
event_files  files that TensorBoard reads
mlflow_runs  runs of an MLflow server
wandb_runs   runs of W&B's client in its offline mode
"""
