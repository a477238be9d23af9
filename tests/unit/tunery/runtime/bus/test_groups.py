from tunery.runtime.bus.groups import owner_group, processor_group, reactor_group


def test_the_name_of_a_group_says_whose_it_is() -> None:
    assert owner_group("job") == "tunery.job.owner"
    assert reactor_group("eval", "job") == "tunery.eval.reacts.job"
    assert processor_group("watcher") == "tunery.watcher.processes"
