"""Fine-tuning jobs: submitting them, reading them, following them.

submission, resolve: from a request to a job · bodies: requests · routes, event_routes,
checkpoint_routes, preview_routes: OpenAI's URLs · plain_routes, plain_bodies, plain_responses:
the plain URLs · responses, cost_responses, event_responses,
checkpoint_responses, statuses: answers of the API ·
tables, projection, pool_projection, messages: the journals `job` and `pool` as rows · event_ids:
identifiers that sort · feeds, streams: server-sent events · telemetry: steps and log lines ·
forecasts, queue_forecast: expected starts · results: metrics of an ended job as a file.
"""
