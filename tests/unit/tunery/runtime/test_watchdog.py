import asyncio

from tunery.runtime.watchdog import HostWatch, beat, next_item, watched_host, watched_loop

LOOKS_MAX = 2


def looks(watch: HostWatch, count: int) -> list[str]:
    """The names of the loops that the last of `count` looks calls silent."""
    names: list[str] = []
    for _ in range(count):
        names = [reports.name for reports in watch.look(LOOKS_MAX)]
    return names


def test_loop_that_reports_between_looks_is_never_silent() -> None:
    watch = HostWatch("host")
    context = watch.context()
    for _ in range(10):
        context.run(beat, "working")
        assert looks(watch, 1) == []


def test_host_without_loops_is_watched_as_a_whole() -> None:
    watch = HostWatch("host")
    assert looks(watch, LOOKS_MAX + 1) == []  # the first look finds it new
    assert looks(watch, 1) == ["host"]


def test_one_silent_loop_is_named_while_others_report() -> None:
    watch = HostWatch("host")

    def enter() -> None:
        with watched_loop("hangs"):
            for _ in range(LOOKS_MAX + 2):
                with watched_loop("works"):
                    beat("working")
                    silent = watch.look(LOOKS_MAX)
            assert [(reports.name, reports.activity) for reports in silent] == [
                ("hangs", "starting")
            ]

    watch.context().run(enter)


def test_loop_that_has_ended_is_not_watched() -> None:
    watch = HostWatch("host")

    def enter() -> None:
        with watched_loop("over"):
            beat("waiting")

    context = watch.context()
    context.run(enter)
    for _ in range(5):
        context.run(beat, "waiting")
        assert looks(watch, 1) == []


def test_reports_without_a_watch_go_nowhere() -> None:
    with watched_loop("nothing"):
        beat("working")
        assert watched_host() is None


async def test_waiting_for_an_item_reports_and_returns_it() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    watch = HostWatch("host")
    waiting = asyncio.create_task(next_item(queue), context=watch.context())
    await asyncio.sleep(0)
    assert looks(watch, 1) == []
    queue.put_nowait(7)
    assert await waiting == 7
