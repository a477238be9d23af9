from tunery.ml.shares import RankShare, deal, length_of


def test_tensors_are_dealt_by_their_size() -> None:
    """The largest first, each to the rank that has least; equal ones in their order."""
    assert deal([1, 5, 3, 3, 4], 2) == [1, 0, 1, 0, 1]
    assert deal([2, 2, 2], 4) == [0, 1, 2]
    assert deal([7, 1], 1) == [0, 0]
    sizes = [256 * 64, *[64 * 64, 64 * 16, 64 * 16, 64 * 192, 64] * 6]
    held = [
        sum(size for size, owner in zip(sizes, deal(sizes, 4), strict=True) if owner == rank)
        for rank in range(4)
    ]
    assert max(held) < 1.05 * sum(sizes) / 4


def test_what_lies_between_two_places_of_a_share() -> None:
    share = RankShare(1, [5, 9, 0, 4, 2], [1, 0, 1, 1, 1])
    assert (share.numbers, share.size) == ([0, 2, 3, 4], 11)
    assert share.between(0, 3) == [(0, slice(0, 3))]
    assert share.between(3, 10) == [(0, slice(3, 5)), (3, slice(0, 4)), (4, slice(0, 1))]
    assert share.between(10, 99) == [(4, slice(1, 2))]
    assert length_of(share.between(3, 10)) == 7
    assert RankShare(2, [5], [0]).between(0, 9) == share.between(11, 20) == []
