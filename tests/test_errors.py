"""What is printed of somebody else's text."""

import pytest

from bscrit.errors import UserError, UserErrors, printable
from bscrit.fit.source import fit


@pytest.mark.parametrize("code", ["\x1b[2J", "\r", "\x07", "\x9b1A", "\u202e", "\x00"])
def test_control_characters_are_written_as_escapes(code):
    assert printable(f"a{code}b\n\tc é") == f"a{ascii(code[0])[1:-1]}{code[1:]}b\n\tc é"
    error = UserError(f"runs{code}.csv", f"is {code}", f"not {code}")
    for text in (str(error), str(UserErrors([error]))):
        assert code[0] not in text


def test_names_in_a_table_do_not_reach_the_terminal(tmp_path):
    table = tmp_path / "runs.csv"
    rows = [f"{size},{400 + 51200 // size},a\x1b[2Jb" for size in (8, 32, 128, 512)]
    table.write_text("\n".join(["batch_size,steps,workload", *rows]))
    text = str(fit(table))
    assert "\x1b" not in text
    assert "a\\x1b[2Jb" in text
