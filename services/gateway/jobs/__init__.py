"""Fine-tuning jobs: submitting them, reading them, following them.

* `submission_routes`, `submission`: gather the facts about a request, send the command
* `requested`, `node_choice`, `resolve`: pure; from a request and the facts to a job
* `routes`, `event_routes`, `checkpoint_routes`, `preview_routes`: OpenAI's URLs
* `integrations`: tools that a job's figures are written for
* `mixtures`: further files that a job trains on
* `evaluation_routes`, `evaluations`: imported adapters, and further runs of the gate
* `starts`: own versions and checkpoints that a training may begin with
* `job_filter`: which jobs a list shows
* `plain_routes`, `plain_bodies`, `plain_responses`: the plain URLs
* `node_routes`, `enrolment_routes`: the machines that run jobs, for operators; how they join
* `grader_routes`, `score_endpoint`: graders, checked and tried; models that give scores
* `configuration`: what makes the result of a job, as a hash; earlier jobs with the same one
* `plan_routes`, `plan_responses`, `standing`: settings, nodes and refusals of a plan
* `sweep_routes`, `sweep_bodies`, `sweep_responses`, `sweep_tables`, `sweep_projection`: sweeps;
  `sweep_turns`: what configurations of one job have in common
* `recipes`, `recipe_routes`: the configuration of a job as a document that can be run again
* `deps`: dependencies of these routes
* `bodies`: bodies of requests
* `responses`, `cost_responses`, `event_responses`, `checkpoint_responses`, `variant_responses`,
  `statuses`: responses
* `gate_report_routes`, `gate_report`, `gate_judge`, `gate_benchmarks`, `gate_plots`:
  what the gate found as a page
* `gate_responses`: what the gate found, by which rule, and what it could not see
* `progress`: how far a job is, and when it ends
* `past_jobs`: what jobs that have succeeded teach about the time of the next one
* `tables`, `projection`, `pool_projection`, `placement_projection`, `messages`: the journals `job`
  and `pool` as rows
* `anomaly_words`: what an anomaly is called
* `event_ids`: identifiers that sort by time
* `feeds`, `streams`: server-sent events
* `telemetry`: steps and log lines as rows; `telemetry_senders`: which of them count
* `queue_view`, `queue_reading`: why jobs wait and until when, by the planner from rows
* `queue_routes`, `queue_responses`: that of one job, and the whole queue for operators
* `results`, `result_contents`: the metrics of an ended job as files
"""
