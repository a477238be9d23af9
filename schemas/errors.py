"""Stable error codes: what a caller may rely on. Messages may change, codes may not."""

from typing import Final

# rejections by deciders, shown to clients as `error.code`
NOT_FOUND: Final = "not_found"
ALREADY_EXISTS: Final = "already_exists"
ILLEGAL_STATE: Final = "illegal_state"
IDEMPOTENCY_CONFLICT: Final = "idempotency_conflict"
SUSPENDED: Final = "tenant_suspended"
CONCURRENCY_LIMIT: Final = "concurrency_limit_exceeded"
FORBIDDEN: Final = "insufficient_permissions"
QUOTA_EXCEEDED: Final = "quota_exceeded"
HARD_LIMIT: Final = "hard_limit_exceeded"
BUDGET_TOO_SMALL: Final = "budget_too_small"
BUDGET_EXCEEDED: Final = "budget_exceeded"
SPEND_CAP: Final = "spend_cap_exceeded"
FILE_REJECTED: Final = "invalid_training_file"
EXAMPLES: Final = "invalid_n_examples"
FILE_IN_USE: Final = "file_in_use"
UNKNOWN_BASE: Final = "model_not_found"
BASE_CHANGED: Final = "base_changed"
STAGE_CONFLICT: Final = "stage_conflict"
STALE_TOKEN: Final = "stale_token"  # noqa: S105  # a fencing token, not a secret
MALFORMED: Final = "malformed_command"
SENDER_REFUSED: Final = "sender_refused"
INVITATION_REFUSED: Final = "invitation_refused"
TOO_LARGE: Final = "command_too_large"
INTERNAL: Final = "internal_error"

# why a job failed
BUDGET_EXHAUSTED: Final = "budget_exhausted"
OUT_OF_MEMORY: Final = "out_of_memory"
DIVERGED: Final = "diverged"
BAD_DATA: Final = "bad_data"
USER_ERROR: Final = "user_error"
PLATFORM: Final = "platform_error"
ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"
