from __future__ import annotations

from plotted import make_fit, make_record

from bscrit.fit.runs import at_one_rate, by_batch_size, targets, winners


def test_winners_are_the_measuring_runs() -> None:
    records = [
        make_record(8, 0.1),
        make_record(8, 0.2, role="measure", seed=1),
        make_record(8, 0.2, role="measure", seed=2, status="failed"),
    ]
    assert winners(records) == [records[1]]


def test_the_lowest_search_run_stands_in() -> None:
    records = [
        make_record(8, 0.1, meets=300),
        make_record(8, 0.2, meets=100),
        make_record(8, 0.4, status="diverged"),
    ]
    assert winners(records) == [records[1]]


def test_records_are_grouped_by_ascending_batch_size() -> None:
    groups = by_batch_size([make_record(64, 0.1), make_record(8, 0.1), make_record(64, 0.2)])
    assert {size: len(group) for size, group in groups.items()} == {8: 1, 64: 2}
    assert list(groups) == [8, 64]


def test_targets_come_from_the_fits_else_from_the_orders() -> None:
    assert targets([make_fit(target=1.0), make_fit(target=3.0), make_fit(target=None)], []) == [3.0, 1.0]
    assert targets([], [make_record(8, 0.1)]) == [0.5]


def test_one_rate_is_that_of_the_hardest_target() -> None:
    records = [make_record(8, lr, role="measure", seed=seed) for lr in (0.1, 0.2) for seed in (1, 2)]
    fits = [make_fit([8], [100], target=goal, lrs=[lr]) for goal, lr in ((1.0, 0.1), (0.5, 0.2))]
    assert at_one_rate(records, fits) == records[2:]
    assert at_one_rate(records, fits[:1]) == records[:2]


def test_one_rate_is_that_of_the_lowest_run_where_no_fit_tells() -> None:
    slow, fast = make_record(8, 0.1, meets=300), make_record(8, 0.2, meets=100)
    elsewhere = make_fit([16, 8], [100, 100], lrs=[0.1, 0.7])
    assert at_one_rate([slow, fast], [elsewhere]) == [fast]
    assert at_one_rate([slow, fast], []) == [fast]
