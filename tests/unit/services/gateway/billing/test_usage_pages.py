"""Pages of sums in buckets of time."""

from services.gateway.billing.usage_pages import BucketPage, PageOfBuckets
from services.gateway.views.ports import Buckets
from services.gateway.web.domain.responses import Deleted


def test_a_bucket_without_use_is_there_and_empty() -> None:
    results = {24: [Deleted(id="a", object="file")]}
    asked = PageOfBuckets(Buckets("hour_utc", 24, 49, 24), following=72)
    page = asked.response(BucketPage[Deleted], lambda hour: results.get(hour, ()))
    first, second = page.data
    assert (first.start_time, first.end_time) == (86_400, 172_800)
    assert first.results == results[24]
    assert (second.start_time, second.results) == (172_800, [])
    assert (page.has_more, page.next_page) == (True, "page_72")


def test_the_last_page_names_no_other() -> None:
    page = PageOfBuckets(Buckets("hour_utc", 0, 24, 24), None).response(
        BucketPage[Deleted], lambda _: ()
    )
    assert (page.has_more, page.next_page) == (False, None)
