"""The command line. `main` finds the commands, one module or package for each.

up, down, status, logs, doctor, env
                                 the stack of this machine
upgrade                          who runs which release, and the end of an upgrade
data, benchmarks, grader         checks of training files and of graders, without a server
file, job, sweep, model, base    over the API: training
gate, deploy, serving            over the API: what the gate allows, what answers in a stage
session                          over the API: trainings with a loop at the client
chat                             over the API: ask models
suggest, mcp                     what to train with a file, and why; the API for an assistant
import                           an account of OpenAI: its files and jobs, and recipes for them
console                          opens the web console, signed in
tenant, key, webhook, mlflow     over the API: accounts
audit                            who did what; the log of it, exported and verified
budget, usage, invoice, prices   over the API: money
node, queue                      over the API: machines, and what waits for them
kafka, postgres, s3              rights on Kafka, in PostgreSQL and in object storage
encryption                       data keys of tenants, and root keys
backup, restore                  the whole installation, copied while it works
journal, replay, reconcile       the log: inspect it, rebuild all state from it, compare bills
demo                             the whole loop, with a killed node
simulate                         a trace of jobs, played through the planner
completion                       completion for shells
_api, _options                   what the commands share
_gate_benchmarks                 what the gate asks: import, list
_model_exports                   other formats of a downloaded adapter
_engine_check                    what an engine of a version can do
_mlflow                          an MLflow server: a downloaded model in its registry
_job_files                       files that options of a job name
_job_mirror                      a job in TensorBoard, MLflow and W&B
_job_report                      a job as one HTML file
_import_report                   moved models beside the old ones
_billing_terms                   billing terms as names and values
_job_lists, _job_view, _plan_view, _queue_view, _stack_view, _tables, _watch
                                 how jobs, queues, stacks and tables look in a terminal
_recipes, _yaml                  recipes in files
_production_checks               what `doctor --production` asks of an installation
_unnamed                         objects that no record of the log names, for `s3`
_rights                          what `kafka`, `postgres` and `s3` share
_verification                    servers and parts that `replay` and `reconcile` compare
"""
