"""Stream `job`: one tenant's quota, holds and jobs.

state       what is remembered of a tenant
decide      what a client may do, and where a fact leads
submitting  what has to be true for a submission
sweeps      the next job, the next rung and the end of a sweep, and its budget
sweep_state the fold of sweeps
serving     serving pools: the next term of a replica, and why there is none
serving_state the fold of serving pools
erasure     the end of everything that is open, for a tenant that is erased
erasure_state the fold of erasures
admission   the hold of a submission against what the month has left
phases      what a client's change means in each state of a job
attempts    facts about the open attempt, as events of the job
steps       the life of a job after its hold: placement, evaluation, registration, end
policy      what follows from how an attempt ended
budgets     monthly budgets: what they refuse, totals, alerts
ended       jobs that ended, until they are forgotten
quota       months and holds as arithmetic
evolve      the fold of the journal
"""
