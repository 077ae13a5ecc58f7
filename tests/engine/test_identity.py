"""Identity of what a workload trains: what changes it, and what does not."""

import itertools
import sys

import pytest
from own import write_module

from bscrit.engine.identity import fingerprint, sources
from bscrit.engine.loading import load_workload

_numbers = itertools.count()


@pytest.fixture
def identity(tmp_path, monkeypatch):
    """The fingerprint of a user's class as a fresh worker finds it; `name` is its module's."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"identified_{next(_numbers)}"

    def identity(top="", untrained="", **inside):
        write_module(tmp_path, name, top, **inside)
        for module in [m for m, kind in sys.modules.items() if str(tmp_path) in str(kind)]:
            del sys.modules[module]
        sys.dont_write_bytecode = True
        return fingerprint(f"{name}:Mine", load_workload(f"{name}:Mine", {}), untrained)

    yield identity
    sys.dont_write_bytecode = False


@pytest.mark.parametrize(
    "top", ["import NET", "from NET import make", "def later():\n    import NET", "import NET.deep as d"]
)
def test_a_module_that_is_imported_from_the_folder_is_part_of_it(tmp_path, identity, top):
    net = f"net_{next(_numbers)}"
    (tmp_path / net).mkdir()
    (tmp_path / net / "__init__.py").write_text("from . import deep\ndef make(): return 8\n")
    (tmp_path / net / "deep.py").write_text("WIDTH = 8\n")
    before = identity(top.replace("NET", net))
    assert identity(top.replace("NET", net)) == before
    (tmp_path / net / "deep.py").write_text("WIDTH = 64\n")
    assert identity(top.replace("NET", net)) != before


def test_a_file_that_is_not_imported_is_no_part_of_it(tmp_path, identity):
    before = identity()
    (tmp_path / "other.py").write_text("x = 1\n")
    assert identity() == before


def test_the_source_the_first_batch_and_the_untrained_model_are_part_of_it(tmp_path, identity):
    data = tmp_path / "data.txt"
    data.write_text("1.0")
    reads = f"return torch.ones(size, 5) * float(open({str(data)!r}).read()), torch.ones(size)"
    before = identity(batch=reads)
    assert identity(batch=reads) == before
    data.write_text("0.2")
    assert identity(batch=reads) != before
    data.write_text("-1.0")
    assert identity(batch=reads) != before
    assert identity(batch="size = size") != identity()
    assert identity(untrained="6 1.1") != identity(untrained="7 1.1")


def test_rounding_of_threads_is_no_part_of_it(identity, monkeypatch):
    rounds = "x, y = self.draw(generator(1), size); return x * (1 + float(os.environ['ROUNDING'])), y"
    prints = []
    for rounding in ("1e-7", "-1e-7", "0.01"):
        monkeypatch.setenv("ROUNDING", rounding)
        prints.append(identity(batch=rounds))
    assert prints[0] == prints[1] != prints[2]


def test_modules_of_the_tool_and_installed_ones_are_left_out(tmp_path, identity):
    identity("import bscrit.words, numpy")
    module = next(m for m, kind in sys.modules.items() if str(tmp_path) in str(kind))
    assert list(sources(module)) == [module]


def test_a_batch_that_only_larger_sizes_can_draw(identity):
    refuses = "if size < 64: raise ValueError('whole sequences only')"
    assert identity(batch=refuses) == identity(batch=refuses)
    assert identity(batch=refuses) != identity(
        batch=refuses + "\nreturn torch.ones(size, 5), torch.ones(size)"
    )


def test_the_data_of_a_built_in_workload_are_part_of_its_identity_and_its_source_is_not():
    one, other = (load_workload("quadratic", {"dimensions": 7}) for _ in range(2))
    assert fingerprint("quadratic", one, "1") == fingerprint("quadratic", other, "2")
    other.fingerprint = lambda: "other data"
    assert fingerprint("quadratic", one) != fingerprint("quadratic", other)


def test_the_type_of_a_batch_is_part_of_it(identity):
    texts = [
        f"return torch.ones(size, 5).to({kind}), torch.ones(size)" for kind in ("torch.long", "torch.bool")
    ]
    assert identity(batch=texts[0]) != identity(batch=texts[1])
