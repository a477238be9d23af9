"""Pages of a list."""

from services.gateway.web.responses import ListItem, Page, listing


def test_a_page_names_its_first_and_last_item() -> None:
    page = listing(Page[ListItem], [ListItem(id="a"), ListItem(id="b")], has_more=True)
    assert (page.first_id, page.last_id, page.has_more) == ("a", "b", True)


def test_an_empty_page_has_no_first_and_last_id() -> None:
    page = listing(Page[ListItem], [], has_more=False)
    assert page.model_dump() == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }
