"""What a spec reads: values, defaults, overrides, and its published JSON Schema."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bscrit.errors import UserErrors
from bscrit.preflight import Preflight
from bscrit.spec import check, json_schema, parse_spec, read_spec
from bscrit.spec.tables import TABLES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "sweeps").rglob("*.toml"))
LEAST = {
    "workload": {"use": "quadratic"},
    "sweep": {"batch_sizes": [16, 4, 64], "targets": [0.5, 0.1], "max_examples": 6400},
}


def spec(**tables):
    """The least spec with some keys of some tables set."""
    names = {*LEAST, *tables}
    return parse_spec({name: {**LEAST.get(name, {}), **tables.get(name, {})} for name in names})


class TestValues:
    def test_defaults(self):
        found = spec()
        assert (found.name, found.workload.use, found.workload.settings) == ("spec", "quadratic", {})
        assert found.sweep.batch_sizes == (4, 16, 64)
        assert found.sweep.targets == (0.5, 0.1)
        assert (found.sweep.seeds, found.sweep.first_seed, found.sweep.max_steps) == (3, 0, None)
        assert (found.learning_rate.tune, found.learning_rate.guess) == ("race", None)
        assert (found.noise.source, found.noise.metric) == ("micro_batches", ("identity",))
        assert (found.noise.parts, found.noise.every) == (4, "auto")
        compute = found.compute
        assert (compute.executor, compute.workers, compute.device) == ("local", "auto", "auto")
        assert (compute.micro_batch, compute.dtype, compute.lanes) == (None, "float32", "auto")
        assert compute.threads == 1

    @pytest.mark.parametrize("value", [1e6, 1_000_000, "1e6", "1_000_000", " 1000000 "])
    def test_a_count_is_whole_however_it_is_written(self, value):
        read = spec(sweep={"max_examples": value}).sweep.max_examples
        assert read == 1_000_000
        assert type(read) is int

    @pytest.mark.parametrize("value", [1e-4, "1e-4"])
    def test_a_number_is_a_number_in_quotes_too(self, value):
        found = spec(
            learning_rate={"guess": value}, optimizer={"weight_decay": value}, sweep={"targets": [value]}
        )
        assert found.learning_rate.guess == found.optimizer.at(4)["weight_decay"] == found.sweep.targets[0]
        assert found.learning_rate.guess == 1e-4

    def test_settings_are_the_workloads_own_whatever_their_names(self):
        own = {"settings": 3, "folder": "x", "layers": [64, 64], "bias": True, "data": "digits"}
        assert spec(workload=own).workload.settings == own

    def test_budget_in_steps(self):
        assert spec().max_steps_at(4) == 1600
        assert spec(sweep={"max_examples": 6463}).max_steps_at(64) == 100
        assert spec(sweep={"max_steps": 50}).max_steps_at(4) == 50

    def test_frozen(self):
        with pytest.raises(ValueError, match="frozen"):
            spec().sweep.seeds = 4


class TestOptimizer:
    def test_sgd(self):
        assert spec().optimizer.at(4) == {
            "use": "sgd",
            "momentum": 0.0,
            "nesterov": False,
            "weight_decay": 0.0,
        }

    @pytest.mark.parametrize(("use", "decay"), [("adam", 0.0), ("adamw", 0.01)])
    def test_adam(self, use, decay):
        found = spec(optimizer={"use": use}).optimizer.at(4)
        assert found == {"use": use, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": decay}

    def test_values_follow_the_batch_size(self):
        found = spec(optimizer={"use": "adam", "beta2": "0.95 ** (batch_size / 64)"})
        assert found.optimizer.at(64)["beta2"] == 0.95
        assert found.optimizer.at(16)["beta2"] == pytest.approx(0.95**0.25)

    def test_first_guess(self):
        assert spec().first_guess() == pytest.approx(0.1)
        assert spec(optimizer={"momentum": "1 - 1 / batch_size"}).first_guess() == pytest.approx(0.025)
        assert spec(optimizer={"use": "adamw"}).first_guess() == 1e-3
        assert spec(learning_rate={"guess": 0.7}).first_guess() == 0.7


class TestSchedule:
    def test_only_declared_keys(self):
        assert spec().schedule.declared() == {"use": "constant"}
        assert spec(schedule={"warmup_examples": 640}).schedule.declared() == {
            "use": "constant",
            "warmup_examples": 640,
        }
        cosine = {"use": "cosine", "warmup_steps": 5, "horizon_steps": 1e2, "final": 0.1}
        assert spec(schedule=cosine).schedule.declared() == cosine

    def test_a_warmup_that_just_fits(self):
        spec(schedule={"warmup_steps": 100})
        spec(schedule={"warmup_examples": 6400})


class TestLearningRate:
    def test_grid(self):
        found = spec(learning_rate={"tune": "grid", "rates": [0.2, "0.1"]}).learning_rate
        assert found.rates == (0.1, 0.2)

    def test_rule(self):
        rule = {"tune": "rule", "base": 0.1, "base_batch_size": 32, "scaling": "sqrt"}
        found = spec(learning_rate=rule).learning_rate
        assert (found.base, found.base_batch_size, found.scaling) == (0.1, 32, "sqrt")


class TestTrial:
    def test_holds_resolved_values(self):
        found = spec(
            workload={"dimensions": 10},
            optimizer={"use": "adam", "beta2": "1 - 1 / batch_size"},
            schedule={"warmup_steps": 5},
            compute={"dtype": "float64"},
        ).trial(16, 0.01, 2, "f00d")
        assert (found.workload, found.settings, found.fingerprint) == (
            "quadratic",
            {"dimensions": 10},
            "f00d",
        )
        assert (found.batch_size, found.lr, found.seed, found.dtype) == (16, 0.01, 2, "float64")
        assert found.optimizer["beta2"] == 1 - 1 / 16
        assert found.schedule == {"use": "constant", "warmup_steps": 5}

    def test_the_key_is_that_of_the_values_not_of_how_they_are_written(self):
        plain = spec(optimizer={"momentum": 0.5}).trial(16, 0.01, 0)
        written = spec(
            optimizer={"momentum": "0.25 * 2", "use": "sgd"},
            sweep={"max_examples": 10**6, "seeds": 9},
            compute={"micro_batch": 8},
        ).trial(16, 0.01, 0)
        assert plain.key == written.key
        assert plain.key != spec(optimizer={"momentum": 0.6}).trial(16, 0.01, 0).key


class TestReading:
    def write(self, folder, text=""):
        path = folder / "mine.toml"
        path.write_text(
            '[workload]\nuse = "quadratic"\n[sweep]\nbatch_sizes = [4, 16, 64]\n'
            f"targets = [0.5]\nmax_examples = 6400\n{text}"
        )
        return path

    def test_name_and_folder(self, tmp_path):
        found = read_spec(self.write(tmp_path))
        assert (found.name, found.workload.folder) == ("mine", tmp_path)

    def test_a_byte_order_mark_and_windows_line_ends(self, tmp_path):
        path = self.write(tmp_path)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
        assert read_spec(str(path)).sweep.max_examples == 6400

    def test_overrides_are_toml_or_plain_strings(self, tmp_path):
        found = read_spec(
            self.write(tmp_path),
            [
                "sweep.batch_sizes=[64, 128]",
                "sweep.seeds = 5",
                "optimizer.use=adam",
                "optimizer.beta2=0.95 ** (batch_size / 64)",
                "workload.data=digits",
                "workload.bias=true",
                'workload.text="a = b"',
                "workload.odd=1\nuse = 3",
            ],
        )
        assert (found.sweep.batch_sizes, found.sweep.seeds) == ((64, 128), 5)
        assert found.optimizer.at(64)["beta2"] == 0.95
        own = {"data": "digits", "bias": True, "text": "a = b", "odd": "1\nuse = 3"}
        assert found.workload.settings == own

    def test_the_last_override_of_a_key_counts(self, tmp_path):
        assert read_spec(self.write(tmp_path), ["sweep.seeds=5", "sweep.seeds=6"]).sweep.seeds == 6

    def test_a_choice_on_the_command_line_drops_keys_of_the_file_that_only_other_choices_have(self, tmp_path):
        path = self.write(
            tmp_path,
            "[optimizer]\nmomentum = 0.9\nweight_decay = 0.1\n"
            '[schedule]\nuse = "cosine"\nwarmup_steps = 3\nhorizon_steps = 50\n',
        )
        changed = read_spec(path, ["optimizer.use=adam", "schedule.use=constant"])
        assert changed.optimizer.at(4)["weight_decay"] == 0.1
        assert changed.schedule.declared() == {"use": "constant", "warmup_steps": 3}
        assert changed.source.dropped == (
            f'{path} [optimizer] momentum = 0.9 is left out: use = "adam" has none',
            f'{path} [schedule] horizon_steps = 50 is left out: use = "constant" has none',
        )
        assert "momentum" not in changed.source.to_toml()
        assert read_spec(path, ["optimizer.use=sgd"]).source.dropped == ()
        assert read_spec(path, ["optimizer.weight_decay=0"]).optimizer.at(4)["momentum"] == 0.9

    @pytest.mark.parametrize(
        ("text", "override", "where"),
        [
            ("", "optimizer.momentum=0.9", "--set optimizer.momentum=0.9"),
            ("[optimizer]\nmomentom = 0.9", "optimizer.beta1=0.5", "[optimizer] momentom = 0.9"),
        ],
    )
    def test_what_was_set_or_misspelled_stays_an_error(self, tmp_path, text, override, where):
        path = self.write(tmp_path, text)
        with pytest.raises(UserErrors) as caught:
            read_spec(path, ["optimizer.use=adam", override])
        (error,) = caught.value.errors
        assert error.where.removeprefix(f"{path} ") == where

    def test_a_class_beside_the_spec(self, tmp_path):
        (tmp_path / "mine_too.py").write_text("import absent_module\nclass Mine:\n    pass\n")
        assert read_spec(self.write(tmp_path), ["workload.use=mine_too:Mine"]).workload.use == "mine_too:Mine"
        assert "mine_too" not in sys.modules

    def test_a_class_in_an_installed_package_is_not_imported(self, tmp_path):
        code = (
            "import sys; from bscrit.spec import read_spec;"
            f"read_spec({str(self.write(tmp_path))!r}, ['workload.use=bscrit.engine.workload:Workload']);"
            "assert not {'torch', 'pandas', 'scipy', 'matplotlib', 'bscrit.train'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class TestFacts:
    def test_nothing_to_say(self):
        assert check(spec(), Preflight(untrained_value=2.0, examples=64)) == ([], [])

    @pytest.mark.parametrize(
        ("tables", "facts", "where", "what", "hint"),
        [
            (
                {},
                {"examples": 63, "unit": "image"},
                "[sweep] batch_sizes = [16, 4, 64]",
                "64 is more than the data set has: 63 images",
                "above 63",
            ),
            (
                {},
                {"untrained_value": 0.5},
                "[sweep] targets = [0.5, 0.1]",
                "0.5 is met before training",
                "below 0.5",
            ),
            (
                {"compute": {"micro_batch": 32}},
                {"splits": False},
                "[compute] micro_batch = 32",
                "would split batches of 64",
                "raise it to 64",
            ),
            ({}, {"problems": ("is odd",)}, '[workload] use = "quadratic"', "is odd", ""),
        ],
    )
    def test_errors(self, tables, facts, where, what, hint):
        (error,), _ = check(spec(**tables), Preflight(**{"untrained_value": 10.0, **facts}))
        assert error.where == f"spec.toml {where}"
        assert what in error.what
        assert hint in error.remedy

    @pytest.mark.parametrize(
        ("compute", "facts", "where", "what"),
        [
            ({}, {"examples": 2}, '[sweep] batch_sizes = "auto"', "fewer than 3 to choose from"),
            (
                {"micro_batch": 8},
                {"splits": False, "examples": 100},
                "[compute] micro_batch = 8",
                "batches of 91",
            ),
        ],
    )
    def test_errors_where_the_sweep_chooses_its_batch_sizes(self, compute, facts, where, what):
        chosen = spec(sweep={"batch_sizes": "auto"}, compute=compute, noise={"source": "none"})
        (error,), _ = check(chosen, Preflight(**{"untrained_value": 10.0, **facts}))
        assert error.where == f"spec.toml {where}"
        assert what in error.what

    def test_an_error_in_what_was_set_names_the_command_line(self, tmp_path):
        path = TestReading().write(tmp_path)
        (error,), _ = check(
            read_spec(path, ["sweep.batch_sizes=[4,8,999]"]), Preflight(untrained_value=10.0, examples=64)
        )
        assert error.where == "--set sweep.batch_sizes=[4, 8, 999]"

    @pytest.mark.parametrize(
        ("tables", "facts", "warning"),
        [
            ({"sweep": {"batch_sizes": [4, 8]}}, {}, "batch_sizes = [4, 8]: fewer than three"),
            ({"sweep": {"seeds": 1}}, {}, "seeds = 1: one seed"),
            ({}, {"splits": False}, "no noise scale is measured"),
            ({"schedule": {"use": "linear", "horizon_steps": 99}}, {}, "horizon_steps = 99: the rate is 0"),
        ],
    )
    def test_warnings(self, tables, facts, warning):
        errors, (found,) = check(spec(**tables), Preflight(**{"untrained_value": 10.0, **facts}))
        assert errors == []
        assert warning in found


class TestAuto:
    def test_the_word_lists_no_batch_size(self):
        found = spec(sweep={"batch_sizes": "auto"}).sweep
        assert (found.auto, found.batch_sizes, found.precision, found.max_total_examples) == (
            True,
            (),
            0.1,
            None,
        )
        assert not spec().sweep.auto

    def test_candidates_are_powers_of_the_root_of_two_within_budget_and_data(self):
        chosen = spec(sweep={"batch_sizes": "auto"})
        assert chosen.candidates()[:12] == (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64)
        assert chosen.candidates()[-1] == 512
        assert chosen.candidates(45)[-1] == 45
        assert spec().candidates(45) == spec().beginning(45) == (4, 16, 64)

    def test_what_was_written_is_read_again(self, tmp_path):
        chosen = spec(sweep={"batch_sizes": "auto", "precision": 0.3, "max_total_examples": 10**6})
        (tmp_path / "spec.toml").write_text(chosen.source.to_toml())
        assert read_spec(tmp_path / "spec.toml").sweep == chosen.sweep

    def test_the_command_line_needs_no_quotes(self, tmp_path):
        path = TestReading().write(tmp_path)
        assert read_spec(path, ["sweep.batch_sizes=auto", "sweep.precision=0.2"]).sweep.auto

    def test_the_schema_knows_the_word(self):
        def holds(batch_sizes):
            data = {**LEAST, "sweep": {**LEAST["sweep"], "batch_sizes": batch_sizes}}
            return jsonschema.Draft202012Validator(json_schema()).is_valid(data)

        assert holds("auto")
        assert holds([4, "16"])
        assert not any(map(holds, ["all", [], [0], ["auto"], 4]))


class TestSchema:
    def test_the_published_file_is_current(self):
        published = (ROOT / "docs" / "spec.schema.json").read_text("utf-8")
        current = json.dumps(json_schema(), indent=1) + "\n"
        assert published == current, "bscrit schema > docs/spec.schema.json"

    def test_it_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(json_schema())

    def test_every_key_is_described(self):
        for table in json_schema()["$defs"].values():
            assert table["description"]
            assert all(key["description"] for key in table["properties"].values())

    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_examples_validate_and_are_read(self, path):
        jsonschema.validate(tomllib.loads(path.read_text("utf-8")), json_schema())
        assert read_spec(path).name == path.stem

    def test_the_examples_were_found(self):
        assert {"quadratic", "digits", "own"} <= {path.stem for path in EXAMPLES}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"sweep": {"seeds": 0}},
            {"sweep": {"seeds": True}},
            {"sweep": {"sedes": 3}},
            {"sweep": {"targets": []}},
            {"optimizer": {"momentum": 1}},
            {"optimizer": {"beta1": 0.9}},
            {"learning_rate": {"tune": "grid"}},
            {"learning_rate": {"tune": "race", "rates": [0.1]}},
            {"compute": {"workers": "many"}},
            {"compute": {"device": "gpu"}},
            {"workload": {"a": {"b": 1}}},
            {"swep": {}},
        ],
    )
    def test_it_refuses_what_the_reader_refuses(self, wrong):
        data = {**LEAST, **{name: {**LEAST.get(name, {}), **table} for name, table in wrong.items()}}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(data, json_schema())
        with pytest.raises(UserErrors):
            parse_spec(data)


KEYS = sorted({key for models in TABLES.values() for model in models for key in model.model_fields})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=8)
    | st.sampled_from(
        ["auto", "sgd", "adam", "cosine", "grid", "rule", "1e-4", "batch_size / 8", "json:tool"]
    )
).filter(lambda value: value is not None)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=5)
ANY = VALUES | st.dictionaries(st.text(max_size=5), SCALARS, max_size=2)
ANY_TABLE = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), ANY, max_size=5)
ANY_SPEC = st.dictionaries(st.sampled_from([*TABLES]) | st.text(max_size=6), ANY_TABLE | ANY, max_size=7)


@settings(max_examples=300, deadline=None)
@given(ANY_SPEC, st.booleans())
def test_any_tables_are_a_spec_or_a_list_of_errors(data, with_least):
    if with_least:
        tables = {name: table for name, table in data.items() if isinstance(table, dict)}
        data = {**tables, **{name: {**table, **tables.get(name, {})} for name, table in LEAST.items()}}
    try:
        found = parse_spec(data)
    except UserErrors as raised:
        found, errors = None, raised.errors
    else:
        errors = ()
        assert len(found.trial(found.sweep.batch_sizes[0], 0.1, found.sweep.first_seed).key) == 8
    assert found is not None or errors
    for error in errors:
        assert error.where
        assert error.what
        assert error.remedy
        assert not re.search(
            r"pydantic\.dev|[Ii]nput should|validation error|type=", error.what + error.remedy
        )
