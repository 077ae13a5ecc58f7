from __future__ import annotations

from plotted import make_fit, make_record

from bscrit.plot.runs import by_batch_size, targets, winners


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
