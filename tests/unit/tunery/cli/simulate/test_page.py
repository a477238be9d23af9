"""The page has the figures and their plots, and asks for nothing on the network."""

from tests.unit.tunery.cli.simulate.test_trace_player import HOUR, job
from tunery.cli.simulate.outcome import outcome
from tunery.cli.simulate.page import page
from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.trace_player import play


def test_a_page_stands_alone() -> None:
    jobs = (job(1, 3, 8), job(2, 1, 8, lane=0), job(3, 1, 4, at=HOUR, lane=2))
    played = {"as it is": play(jobs, POLICIES["tunery"], nodes=1, slots=8)}
    figures = {name: outcome(each, 8) for name, each in played.items()}
    shown = page("Simulation of <jobs>", ["One & two."], figures, played)
    assert shown.count("<svg") == 3
    assert "Simulation of &lt;jobs&gt;" in shown
    assert "<td>mean_wait_h</td>" in shown
    assert "premium" in shown
    assert "http" not in shown
    assert "src=" not in shown
