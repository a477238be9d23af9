"""Attributes of jobs by which usage and amounts are grouped."""

from services.gateway.billing.domain.usage import JobFacts
from services.gateway.billing.job_facts import job_facts
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_facts_are_those_of_the_tenants_own_jobs(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    tenant = client.headers["x-tenant"]
    job = (await submit(client, file_id, suffix="faq", metadata={"team": "search"})).json()
    facts = await job_facts(api.deps, tenant, {job["id"], "ftjob-none"})
    assert list(facts) == [job["id"]]
    known = facts[job["id"]]
    assert (known.model, known.suffix, known.metadata) == ("tiny-llama", "faq", {"team": "search"})
    assert known.key is not None
    assert await job_facts(api.deps, "other", [job["id"]]) == {}
    assert JobFacts().group(frozenset({"metadata[team]"}), "j").metadata == ("team", "")
