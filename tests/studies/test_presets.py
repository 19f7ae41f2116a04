from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from fedrecgel.errors import ConfigError
from fedrecgel.methods import METHODS
from fedrecgel.runs.config import read_config
from fedrecgel.studies.presets import Presets


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    (tmp_path / "demo.toml").write_text('[method]\nname = "fedrecgel"\nrho_co = 0.3\nserver_lr = 0.9\n')
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "fedncf.toml").write_text(
        "# Found by hand,\n# on Sunday.\n"
        '[data]\nname = "demo"\n[method]\nname = "fedncf"\nserver_lr = 0.007\n[run]\nrounds = 33\n'
    )
    return tmp_path


def test_published_takes_the_radii_of_the_data_set_and_nothing_else(configs: Path) -> None:
    origin = Presets(configs).origin("demo", "fedrecgel", "published", 3)
    method = origin.config.to_dict()["method"]
    assert (method["rho_co"], method["server_lr"], origin.config.run.seed) == (0.3, 1e-3, 3)
    assert "demo.toml" in origin.about
    assert Presets(configs).origin("demo", "fedncf", "published", 0).about == "released settings"
    assert Presets(configs).origin("demo", "popularity", "published", 0).about == "defaults"


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if "released" in kind.variants])
def test_published_settings_do_not_follow_the_defaults(name: str, tmp_path: Path) -> None:
    """Those that repeat a paper start from `released`, the files of this repository too."""
    wanted = asdict(METHODS[name](**METHODS[name].variants["released"]))  # type: ignore[arg-type]
    found = Presets(tmp_path).origin("demo", name, "published", 0).config.method
    assert (found.variant, asdict(found.build())) == ("released", wanted)
    files = [path for path in Path("configs").rglob("*.toml") if f'name = "{name}"' in path.read_text()]
    assert all(read_config(path).method.variant == "released" for path in files)


def test_tuned_takes_the_file_of_the_method_and_says_so(configs: Path) -> None:
    origin = Presets(configs).origin("demo", "fedncf", "tuned", 1)
    assert origin.config.to_dict()["method"]["server_lr"] == 0.007
    assert origin.config.run.rounds == 33
    assert origin.about == (configs / "demo" / "fedncf.toml").as_posix()
    assert (origin.heading, origin.trials) == ("Found by hand, on Sunday.", None)


def test_a_file_says_of_how_many_trials_its_values_are_the_best(configs: Path) -> None:
    path = configs / "demo" / "fedncf.toml"
    path.write_text(path.read_text().replace("Found by hand,", "FedNCF: the best of 24 trials of 30 rounds,"))
    assert Presets(configs).origin("demo", "fedncf", "tuned", 0).trials == 24
    assert Presets(configs).origin("demo", "fedncf", "published", 0).trials == 0


def test_long_trains_more_clients_for_longer(configs: Path) -> None:
    config = Presets(configs).origin("demo", "fedrecgel", "long", 0).config
    method = config.to_dict()["method"]
    assert (method["fraction"], method["server_lr"], method["rho_co"], config.run.rounds) == (0.5, 5e-3, 0.3, 200)


@pytest.mark.parametrize("name", METHODS)
def test_long_is_for_every_method_and_says_what_it_sets(name: str, configs: Path) -> None:
    """A method whose server has no rate takes the rest; references and ceilings stay as they are."""
    origin = Presets(configs).origin("demo", name, "long", 0)
    method, kind = origin.config.to_dict()["method"], METHODS[name]
    if kind.kind != "federated":
        assert origin == Presets(configs).origin("demo", name, "published", 0)
        return
    assert (method["fraction"], origin.config.run.rounds) == (0.5, 200)
    has_rate = "server_lr" in method
    assert method.get("server_lr", 5e-3) == 5e-3
    assert ("half of the clients, server rate 0.005, 200 rounds" in origin.about) == has_rate
    assert ("half of the clients, 200 rounds" in origin.about) != has_rate


def test_a_reference_needs_one_round(configs: Path) -> None:
    assert Presets(configs, rounds=7).origin("demo", "popularity", "tuned", 0).config.run.rounds == 1
    assert Presets(configs, rounds=7).origin("demo", "fedncf", "tuned", 0).config.run.rounds == 7


def test_a_hyper_parameter_goes_to_the_methods_that_have_it(configs: Path) -> None:
    presets = Presets(configs, overrides=(("method", "gmf_dim", 4), ("evaluation", "every", 2)))
    presets.check(["fedncf", "popularity"])
    assert presets.origin("demo", "fedncf", "published", 0).config.to_dict()["method"]["gmf_dim"] == 4
    assert presets.origin("demo", "popularity", "published", 0).config.evaluation.every == 2
    with pytest.raises(ConfigError, match="gmf_dim"):
        presets.check(["popularity"])
