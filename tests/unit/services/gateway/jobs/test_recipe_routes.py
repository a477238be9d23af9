"""A job's recipe over HTTP, and run again."""

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_a_job_that_is_run_again_by_its_recipe_is_resolved_to_the_same(
    api: ControlPlane,
) -> None:
    client, file_id = await ready(api)
    options = {
        "suffix": "faq",
        "metadata": {"team": "search"},
        "lora": {"rank": 4, "target_modules": ["q_proj"]},
        "training": {"learning_rate": 3e-4, "max_steps": 7, "batch_size": 4, "accumulation": 2},
        "budget": {"max_gpu_hours": 5},
        "placement": {"spot": False},
    }
    first = (await submit(client, file_id, **options)).json()
    shown = (await client.get(f"/v1/fine_tuning/jobs/{first['id']}/recipe")).json()
    recipe = shown["recipe"]
    assert (shown["job_id"], recipe.pop("version")) == (first["id"], 1)
    again = (await client.post("/v1/fine_tuning/jobs", json=recipe)).json()
    other = (await client.get(f"/v1/fine_tuning/jobs/{again['id']}/recipe")).json()["recipe"]
    assert other == {"version": 1, **recipe}
    for name in ("seed", "placement", "eval", "metadata", "user_provided_suffix", "model"):
        assert again[name] == first[name], name
