"""A wrong spec of each kind: where, what and the remedy."""

import pytest

from bscrit.errors import UserErrors
from bscrit.spec import read_spec

GOOD = {
    "workload": ['use = "quadratic"'],
    "sweep": ["batch_sizes = [4, 16, 64]", "targets = [0.5, 0.1]", "max_examples = 6400"],
}


def errors_of(folder, text, overrides=()):
    path = folder / "x.toml"
    path.write_text(text) if isinstance(text, str) else path.write_bytes(text)
    with pytest.raises(UserErrors) as caught:
        read_spec(path, overrides)
    return [(e.where.removeprefix(f"{path}").strip(), e.what, e.remedy) for e in caught.value.errors]


def good_but(table, *lines):
    """A good spec in which lines of one table are added, or replace those of the same keys."""
    keys = {line.partition("=")[0].strip() for line in lines}
    tables = {name: list(kept) for name, kept in GOOD.items()}
    kept = [line for line in tables.get(table, []) if line.partition("=")[0].strip() not in keys]
    tables[table] = [*kept, *lines]
    return "\n".join(line for name, body in tables.items() for line in (f"[{name}]", *body))


def only(errors):
    (error,) = errors
    return error


@pytest.mark.parametrize(
    ("table", "line", "what", "remedy"),
    [
        ("sweep", "batch_sizes = [0]", "item 1, 0, is out of range", "at least 1"),
        ("sweep", "batch_sizes = []", "is empty", "at least one batch size"),
        ("sweep", "batch_sizes = [4, 16, 4]", "holds 4 twice", "once"),
        ("sweep", "batch_sizes = [4, 2.5]", "item 2, 2.5, must be a whole number", "for example 2"),
        ("sweep", "batch_sizes = [4, true]", "item 2, true, must be a whole number, not a boolean", "quotes"),
        ("sweep", 'batch_sizes = [4, "8k"]', 'item 2, "8k", must be a whole number, not a string', "units"),
        ("sweep", "batch_sizes = [[4]]", "item 1, [4], must be a whole number, not a list", "brackets"),
        ("sweep", 'batch_sizes = "4, 8"', "must be a list, not a string", "batch_sizes = [...]"),
        ("sweep", "batch_sizes = 4", "must be a list, not a number", "batch_sizes = [...]"),
        ("sweep", 'batch_sizes = "Auto"', "must be a list, not a string", '[...], or "auto"'),
        ("sweep", "precision = 0.1", "has no meaning where batch sizes are listed", 'batch_sizes to "auto"'),
        ("sweep", "max_total_examples = 10000", "has no meaning where batch sizes are listed", "remove it"),
        ("sweep", "precision = 0", "is out of range", "at least 0.01 and at most 1"),
        ("sweep", "precision = 10", "is out of range", "at least 0.01 and at most 1"),
        ("sweep", "max_total_examples = 0", "is out of range", "at least 1"),
        ("sweep", "targets = []", "is empty", "at least one target"),
        ("sweep", "targets = [0.1, 0.5]", "rises from 0.1 to 0.5", "[0.5, 0.1]"),
        ("sweep", "targets = [-0.0, 0.0]", "holds 0 twice", "last: [0]"),
        ("compute", 'executor = "locl"', "is not an executor that is known", "did you mean 'local'?"),
        ("sweep", "targets = [0.5, 0.5]", "holds 0.5 twice", "once"),
        ("sweep", "targets = [inf]", "item 1, inf, must be finite", "1e-4"),
        ("sweep", 'targets = ["nan"]', 'item 1, "nan", must be finite', "1e-4"),
        ("sweep", 'metric = " "', "is no name of a metric", "a key of what `evaluate` returns"),
        ("sweep", 'metric = "step"', "is the name of another column of curve.csv", "another name"),
        ("sweep", 'metric = "lr"', "is the name of another column of curve.csv", "another name"),
        ("sweep", "validation_examples = 0", "is out of range", "at least 1"),
        ("sweep", "seeds = 0", "is out of range", "at least 1"),
        ("sweep", "seeds = -1", "is out of range", "at least 1"),
        ("sweep", "seeds = 1.5", "must be a whole number", "for example 2"),
        ("sweep", "seeds = 2020-01-01", "must be a whole number, not a date or time", "1e-4"),
        ("sweep", "first_seed = -1", "is out of range", "at least 0"),
        ("sweep", "max_examples = 1e+300", "is too large", "2**53"),
        ("sweep", "max_examples = 63", "is less than one batch at batch size 64", "raise it"),
        ("sweep", "max_steps = 0", "is out of range", "at least 1"),
        ("sweep", "seed = 3", "is not a key of [sweep]", "did you mean 'seeds'?"),
        ("sweep", "settings = 3", "is not a key of [sweep]", "known: batch_sizes"),
        ("sweep", '"" = 3', "is not a key of [sweep]", "known: batch_sizes"),
        ("workload", "settings = nan", "must be finite", "settings are numbers"),
        ("sweep", "momentum = 0.9", "is not a key of [sweep]", "it belongs below [optimizer]"),
        ("optimizer", "lr = 0.1", "is not a key of [optimizer]", "the rate is tuned at each batch size"),
        ("optimizer", 'use = "adamW"', "is not", "did you mean 'adamw'?"),
        ("optimizer", "momentum = 1", "is out of range", "at least 0 and below 1"),
        ("optimizer", "momentum = true", "must be a number, not a boolean", "without quotes"),
        ("optimizer", "momentum = [0.9]", "must be a number, not a list", "brackets"),
        ("optimizer", "momentom = 0.9", "is not a key of [optimizer]", "did you mean 'momentum'?"),
        ("optimizer", 'momentum = "batchsize / 9"', "'batchsize' is not known", "did you mean 'batch_size'?"),
        ("optimizer", 'momentum = "1 - 8 / batch_size"', "is -1 at batch size 4", "min and max"),
        ("optimizer", 'momentum = "batch_size / 16"', "is 1 at batch size 16 and 1 more", "below 1"),
        (
            "optimizer",
            'momentum = "1 / (20 - batch_size - 16)"',
            "divides by zero at batch size 4 and 2 more",
            "to the divisor",
        ),
        ("optimizer", 'weight_decay = "1/0"', "divides by zero", "to the divisor"),
        ("optimizer", "weight_decay = -0.5", "is out of range", "at least 0"),
        ("optimizer", "nesterov = true", "needs momentum, which is 0 at batch size 4", "set momentum"),
        ("optimizer", "nesterov = 1", "must be a boolean, not a number", "true, false"),
        ("optimizer", 'nesterov = "true"', "must be a boolean, not a string", "without quotes"),
        ("optimizer", "beta2 = 0.99", 'has no meaning where use = "sgd"', '"adam" or "adamw"'),
        ("optimizer", 'use = "adm"', "is not a choice that is known", "did you mean 'adam'?"),
        ("optimizer", "use = 3", "is not a choice that is known", "known: adam, adamw, rmsprop, sgd"),
        ("schedule", "warmup_steps = -1", "is out of range", "at least 0"),
        (
            "schedule",
            "warmup_steps = 101",
            "is 101 steps at batch size 64, where the budget is 100 steps",
            "shorten",
        ),
        (
            "schedule",
            "warmup_examples = 6401",
            "is 1,601 steps at batch size 4, where the budget is 1,600 steps",
            "shorten",
        ),
        ("schedule", "final = 0.1", 'has no meaning where use = "constant"', '"cosine" or "linear"'),
        ("learning_rate", "rates = [0.1]", 'has no meaning where tune = "race"', 'set tune to "grid"'),
        ("learning_rate", "guess = 0", "is out of range", "above 0"),
        ("learning_rate", 'tune = "racing"', "is not a choice that is known", "did you mean 'race'?"),
        ("noise", "parts = 1", "is out of range", "at least 2"),
        ("noise", 'source = "rank"', "is not a choice that is known", "known: examples, micro_batches, none"),
        ("noise", "every = 0", "is out of range", "at least 1"),
        ("compute", 'device = "gpu"', "is not a device", "cuda"),
        ("compute", "device = 0", "must be a string, not a number", "quotes"),
        ("compute", 'workers = "many"', "must be a whole number or 'auto', not a string", "3"),
        ("compute", "workers = 0", "is out of range", "at least 1"),
        ("compute", 'dtype = "float16"', "is not a choice that is known", "did you mean 'bfloat16'"),
        ("compute", 'lanes = "vamp"', "is not a choice that is known", "did you mean 'vmap'?"),
        ("compute", "micro_batch = 0", "is out of range", "at least 1"),
        ("workload", 'use = "quadratc"', "is not a workload that is known", "did you mean 'quadratic'?"),
        ("workload", "use = 3", "must be a string, not a number", "quotes"),
        ("workload", 'use = "my.py:Mine"', "neither beside the spec nor installed", "put py.py beside"),
        ("workload", 'use = "a/my:Mine"', "not of the form module:Class", "my_module:MyWorkload"),
        (
            "workload",
            'use = "absent_module:Mine"',
            "neither beside the spec nor installed",
            "absent_module.py",
        ),
        ("workload", "dims = nan", "must be finite", "settings are numbers"),
        ("workload", "sizes = [[1, inf]]", "must be finite", "settings are numbers"),
        ("workload", "deep = {a = 1}", "must not hold a table", "settings are numbers"),
        ("workload", "day = 2020-01-01", "must not hold a date or time", "settings are numbers"),
        ("workload", "huge = 0xfffffffffffffffffff", "is too large", "64 bits"),
    ],
)
def test_one_wrong_line(tmp_path, table, line, what, remedy):
    where, found, hint = only(errors_of(tmp_path, good_but(table, line)))
    value = line if "0xff" not in line else "huge = 0xfffffffffffffffffff"
    assert where == f"[{table}] {value}"
    assert what in found
    assert remedy in hint


@pytest.mark.parametrize(
    ("table", "lines", "where", "what", "remedy"),
    [
        ("optimizer", ['use = "adam"', "eps = 0"], "[optimizer] eps = 0", "out of range", "above 0"),
        (
            "optimizer",
            ['use = "adam"', "momentum = 0.9"],
            "[optimizer] momentum = 0.9",
            'no meaning where use = "adam"',
            '"sgd"',
        ),
        (
            "optimizer",
            ['use = "adamw"', 'beta2 = "batch_size"'],
            '[optimizer] beta2 = "batch_size"',
            "is 4 at batch size 4 and 2 more",
            "below 1",
        ),
        ("schedule", ['use = "cosine"'], "[schedule]", 'use = "cosine" needs a horizon', "horizon_steps"),
        (
            "schedule",
            ["warmup_steps = 3", "warmup_examples = 9"],
            "[schedule]",
            "both warmup_steps and warmup_examples",
            "keep the one",
        ),
        (
            "schedule",
            ['use = "linear"', "horizon_steps = 9", "horizon_examples = 9"],
            "[schedule]",
            "both horizon_steps and horizon_examples",
            "keep the one",
        ),
        (
            "schedule",
            ['use = "linear"', "warmup_steps = 50", "horizon_examples = 640"],
            "[schedule] horizon_examples = 640",
            "is 40 steps at batch size 16, where the warm-up is 50 steps",
            "longer",
        ),
        ("learning_rate", ['tune = "grid"'], "[learning_rate]", "rates is missing", "rates to try"),
        (
            "learning_rate",
            ['tune = "grid"', "rates = []"],
            "[learning_rate] rates = []",
            "is empty",
            "at least one rate",
        ),
        (
            "learning_rate",
            ['tune = "grid"', "rates = [0.1, -1]"],
            "[learning_rate] rates = [0.1, -1]",
            "item 2, -1, is out of range",
            "above 0",
        ),
        (
            "learning_rate",
            ['tune = "rule"', "base = 0.1", 'scaling = "linear"'],
            "[learning_rate]",
            "base_batch_size is missing",
            "batch size at which",
        ),
        (
            "learning_rate",
            ['tune = "rule"', "base = 0.1", "base_batch_size = 8", 'scaling = "root"'],
            '[learning_rate] scaling = "root"',
            "not a choice",
            "known: linear, sqrt",
        ),
    ],
)
def test_one_wrong_table(tmp_path, table, lines, where, what, remedy):
    place, found, hint = only(errors_of(tmp_path, good_but(table, *lines)))
    assert place == where
    assert what in found
    assert remedy in hint


def test_a_horizon_errs_only_where_it_is_too_short(tmp_path):
    lines = ['use = "linear"', "warmup_steps = 50", "horizon_examples = 12800"]
    read = good_but("schedule", *lines)
    (tmp_path / "x.toml").write_text(read)
    assert read_spec(tmp_path / "x.toml").schedule.declared()["horizon_examples"] == 12800


def test_missing_tables_and_keys(tmp_path):
    assert errors_of(tmp_path, "") == [
        ("", "[workload] is missing", "add it, with use"),
        ("", "[sweep] is missing", "add it, with batch_sizes, targets, max_examples"),
    ]
    where, what, remedy = only(errors_of(tmp_path, good_but("sweep").replace("max_examples = 6400", "")))
    assert (where, what) == ("[sweep]", "max_examples is missing")
    assert remedy.startswith("max_examples: most examples")


def test_tables_that_are_none(tmp_path):
    assert errors_of(tmp_path, "noise = 3\nseeds = 5\nodd = 1\n[swep]\n" + good_but("sweep")) == [
        ("seeds = 5", "stands outside of any table", "it belongs below [sweep]"),
        ("odd = 1", "stands outside of any table", "put it below the [table] it belongs to"),
        (
            "[swep]",
            "is not a table of a spec",
            "did you mean 'sweep'? known: "
            "compute, learning_rate, noise, optimizer, schedule, sweep, workload",
        ),
        (
            "noise = 3",
            "must be a table, not a number",
            "write [noise] on a line of its own, and its keys below",
        ),
    ]
    where, what, _ = only(errors_of(tmp_path, 'optimizer = "sgd"\n' + good_but("sweep")))
    assert (where, what) == ('optimizer = "sgd"', "must be a table, not a string")


def test_all_errors_come_at_once_those_between_tables_too(tmp_path):
    text = good_but("sweep", "targets = [0.1, 0.5]", "seeds = 0", "sedes = 3", "max_examples = 0")
    text += '\n[optimizer]\nnesterov = 3\nmomentum = "batch_size"\n[schedule]\nwarmup_steps = 10\n'
    text += '[compute]\ndevice = "gpu"\n[learning_rate]\ntune = "grid"'
    found = [(where, what.split()[0]) for where, what, _ in errors_of(tmp_path, text, ["noise.parts=0", "x"])]
    assert found == [
        ("--set x", "is"),
        ("[optimizer] nesterov = 3", "must"),
        ("[sweep] targets = [0.1, 0.5]", "rises"),
        ("[sweep] seeds = 0", "is"),
        ("[sweep] max_examples = 0", "is"),
        ("[sweep] sedes = 3", "is"),
        ("[learning_rate]", "rates"),
        ("--set noise.parts=0", "is"),
        ('[compute] device = "gpu"', "is"),
        ('[optimizer] momentum = "batch_size"', "is"),
    ]


def test_what_was_repaired_to_look_further_makes_no_errors_of_its_own(tmp_path):
    text = good_but("sweep", 'targets = "x"', "max_examples = true")
    text += '\n[optimizer]\nmomentum = 2\nnesterov = true\n[schedule]\nuse = "cosine"\nhorizon_steps = 0'
    wheres = [where for where, _, _ in errors_of(tmp_path, text)]
    assert wheres == [
        "[optimizer] momentum = 2",
        "[schedule] horizon_steps = 0",
        '[sweep] targets = "x"',
        "[sweep] max_examples = true",
    ]


def test_an_unknown_optimizer_is_one_error_whatever_metric_the_noise_has(tmp_path):
    text = good_but("noise", 'metric = ["identity", "adam"]')
    assert only(errors_of(tmp_path, f"{text}\n[optimizer]\nuse = 'adamm'"))[0] == '[optimizer] use = "adamm"'
    assert only(errors_of(tmp_path, f"optimizer = 3\n{text}"))[0] == "optimizer = 3"
    assert only(errors_of(tmp_path, text))[1] == "names adam, whose second moments sgd does not have"


def test_long_values_are_cut(tmp_path):
    where, _, _ = only(errors_of(tmp_path, good_but("sweep", f"targets = {[0.1] * 500}")))
    assert len(where) < 100
    assert where.endswith("...")


@pytest.mark.parametrize(
    ("override", "where", "what", "remedy"),
    [
        ("sweep.seeds", "--set sweep.seeds", "not of the form table.key=value", "--set sweep.seeds=5"),
        ("seeds=3", "--set seeds=3", "not of the form table.key=value", "--set sweep.seeds=5"),
        ("workload.a.b=3", "--set workload.a.b=3", "not of the form table.key=value", "--set sweep.seeds=5"),
        ("swep.seeds=3", "--set swep.seeds=3", "'swep' is not a table", "did you mean 'sweep'?"),
        ("sweep.sedes=3", "--set sweep.sedes=3", "is not a key of [sweep]", "did you mean 'seeds'?"),
        ("sweep.seeds=0", "--set sweep.seeds=0", "is out of range", "at least 1"),
        ("sweep.seeds=many", '--set sweep.seeds="many"', "must be a whole number, not a string", "quotes"),
        ("sweep.targets=[0.1", '--set sweep.targets="[0.1"', "must be a list, not a string", "[...]"),
        ("optimizer.beta1=0.5", "--set optimizer.beta1=0.5", 'no meaning where use = "sgd"', "adam"),
        ("optimizer.momentum=batch_size", '--set optimizer.momentum="batch_size"', "is 4 at", "below 1"),
        ("schedule.warmup_steps=101", "--set schedule.warmup_steps=101", "is 101 steps at", "shorten"),
    ],
)
def test_a_wrong_override(tmp_path, override, where, what, remedy):
    place, found, hint = only(errors_of(tmp_path, good_but("sweep"), [override]))
    assert place == where
    assert what in found
    assert remedy in hint


@pytest.mark.parametrize(
    ("text", "place", "what", "remedy"),
    [
        ("[sweep]\nseeds = abc\n", "line 2, column 9", "invalid value in `seeds = abc`", "quotes"),
        ("[sweep\nseeds = 3", "line 1, column 7", "expected ']'", "[name]"),
        ("[sweep]\nt = [1\ns = 3\n", "line 3, column 1", "unclosed array", "close the list"),
        ("[sweep]\na = 1\na = 2", "line 3, column 6", "cannot overwrite a value", "remove one"),
        ("[sweep]\n[sweep]", "line 2, column 7", "cannot declare ('sweep',) twice", "join the two"),
        ('a = "x\n', "line 1, column 7", "illegal character", "close the string"),
        ('a = "C:\\mine"', "line 1, column 10", "unescaped", "single quotes"),
        ("seeds 3", "line 1, column 7", "expected '='", "key = value"),
        ("a = " + "[" * 3000, "", "too large to read", "shorten"),
        ("a = " + "9" * 5000, "", "too large to read", "shorten"),
        (b"a = 1\nb = '\xff'", "line 2", "not UTF-8", "save it as UTF-8"),
    ],
)
def test_files_that_are_not_toml(tmp_path, text, place, what, remedy):
    where, found, hint = only(errors_of(tmp_path, text))
    assert where.removeprefix(", ") == place
    assert what in found
    assert remedy in hint


class TestMissingFile:
    def error(self, path):
        with pytest.raises(UserErrors) as caught:
            read_spec(path)
        return only(caught.value.errors)

    def test_files_nearby_are_named(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "sweeps").mkdir()
        for name in ("pyproject.toml", "sweeps/digits.toml", "sweeps/other.toml"):
            (tmp_path / name).touch()
        error = self.error("sweeps/digit.toml")
        assert (error.where, error.what) == ("sweeps/digit.toml", "there is no such file")
        assert (
            error.remedy == "did you mean 'sweeps/digits.toml'? known: sweeps/digits.toml, sweeps/other.toml"
        )
        assert "sweeps/digits.toml" in self.error("digits.toml").remedy

    def test_none_nearby(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert "no .toml file nearby" in self.error("nowhere/x.toml").remedy

    def test_a_folder(self, tmp_path):
        assert self.error(tmp_path).what == "is a folder"

    def test_no_path_at_all(self):
        assert "cannot be read" in self.error("a\0b").what


class TestOwnClass:
    def error(self, folder, use, **files):
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        return only(errors_of(folder, good_but("workload", f'use = "{use}"')))

    def test_the_nearest_file(self, tmp_path):
        _, what, remedy = self.error(tmp_path, "spiral:Spirals", spirals="class Spirals: pass")
        assert "'spiral' that is neither beside the spec nor installed" in what
        assert remedy.startswith("did you mean 'spirals'?")

    def test_the_nearest_class(self, tmp_path):
        source = "import math\ndef helper(): pass\nclass Spirals: pass\nclass Other: pass\n"
        _, what, remedy = self.error(tmp_path, "spirals:Spiral", spirals=source)
        assert what == "names a class 'Spiral' that spirals.py does not define"
        assert remedy == "did you mean 'Spirals'? known: Other, Spirals"

    @pytest.mark.parametrize("source", ["from x import *", "if True:\n    class Mine: pass", "class Mine:"])
    def test_a_file_that_only_running_could_tell_about_is_left_alone(self, tmp_path, source):
        (tmp_path / "own_file.py").write_text(source)
        (tmp_path / "x.toml").write_text(good_but("workload", 'use = "own_file:Mine"'))
        assert read_spec(tmp_path / "x.toml").workload.use == "own_file:Mine"

    def test_a_package_beside_the_spec(self, tmp_path):
        (tmp_path / "pack").mkdir()
        (tmp_path / "pack" / "__init__.py").touch()
        _, what, _ = self.error(tmp_path, "pack.absent:Mine")
        assert "'pack.absent'" in what


@pytest.mark.parametrize(
    ("table", "lines", "what", "remedy"),
    [
        (
            "sweep",
            ["max_total_examples = 6399"],
            "is less than max_examples = 6400",
            "raise it to many times",
        ),
        (
            "sweep",
            ["max_examples = 19"],
            "leaves 1 batch size to choose from, fewer than 3",
            "list the batch",
        ),
        ("sweep", ["max_steps = 1", "max_examples = 9"], "leaves 0 batch sizes to choose from", "raise it"),
        ("optimizer", ['momentum = "1 - 4 / batch_size"'], "is -3 at batch size 1 and 2 more", "min and max"),
        ("optimizer", ["nesterov = true"], "needs momentum, which is 0 at batch size 1", "set momentum"),
    ],
)
def test_where_the_sweep_chooses_its_batch_sizes(tmp_path, table, lines, what, remedy):
    text = good_but(table, *lines).replace("batch_sizes = [4, 16, 64]", 'batch_sizes = "auto"')
    found = only(errors_of(tmp_path, text))
    assert what in found[1]
    assert remedy in found[2]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('direction = "up"', "contradicts train_loss, which falls"),
        ("validation_examples = 9", "has no meaning"),
    ],
)
def test_a_metric_of_training_is_a_loss_and_is_not_evaluated(tmp_path, line, what):
    targets = ["targets = [0.1, 0.5]"] if "up" in line else []
    error = only(errors_of(tmp_path, good_but("sweep", 'metric = "train_loss"', line, *targets)))
    assert error[1].startswith(what)
    assert "remove it" in error[2]
