"""The synthetic trace depends on its seed alone, and whole nodes have most of its GPU time."""

from bench.whole_nodes import whole_node_trace


def test_a_seed_gives_the_same_jobs_in_which_whole_nodes_have_most_of_the_time() -> None:
    jobs = whole_node_trace(3, slots=64, hours=48, load=0.8)
    assert jobs == whole_node_trace(3, slots=64, hours=48, load=0.8)
    assert jobs != whole_node_trace(4, slots=64, hours=48, load=0.8)
    assert jobs == sorted(jobs, key=lambda job: job.submitted_at)
    needed_ms = sum(job.duration_ms * job.slots for job in jobs)
    whole_ms = sum(job.duration_ms * job.slots for job in jobs if job.slots >= 8)
    assert whole_ms > needed_ms / 2
