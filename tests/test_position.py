"""Steps and examples of a run advance together."""

from bscrit.position import Position


def test_a_batch_size_that_changes_along_a_run_adds_what_each_update_consumed():
    position = Position()
    for batch_size in (4, 4, 16, 64):
        position = position.after(batch_size)
    assert position == Position(steps=4, examples=88)
