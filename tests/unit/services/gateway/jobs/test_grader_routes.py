"""Routes of graders, with OpenAI's requests and responses."""

from openai.types.fine_tuning.alpha import GraderRunResponse

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.tunery.graders.test_grader import CHECK, MULTI, SCORE

ROOT = "/v1/fine_tuning/alpha/graders"


async def test_a_grader_is_validated_and_run(api: ControlPlane) -> None:
    client = await api.tenant()
    checked = await client.post(f"{ROOT}/validate", json={"grader": MULTI})
    assert checked.json() == {"grader": MULTI}
    body = {"grader": MULTI, "model_sample": "Paris", "item": {"answer": "Paris"}}
    answer = await client.post(f"{ROOT}/run", json=body)
    assert answer.status_code == 200
    run = GraderRunResponse.model_validate(answer.json())
    assert (run.reward, run.sub_rewards) == (1.0, {"city": 1.0, "alike": 1.0})
    failed = (await client.post(f"{ROOT}/run", json={**body, "item": {}})).json()
    assert failed["reward"] == 0
    assert failed["metadata"]["errors"]["invalid_variable_error"]
    assert failed["metadata"]["details"] == {"invalid_variable_error": "the row has no item.answer"}


async def test_the_refusal_of_a_grader_names_the_field(api: ControlPlane) -> None:
    client = await api.tenant()
    for grader, param, said in (
        ({**CHECK, "operation": "regex"}, "grader.operation", "must be one of"),
        ({"type": "python", "source": "x"}, "grader.type", "code of tenants is never run"),
        (SCORE, "grader", "no endpoint for such models is configured"),
    ):
        answer = await client.post(f"{ROOT}/validate", json={"grader": grader})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param)
        assert said in error["message"]
