"""`Synthesizer`: the manners of scikit-learn, and a release like that of any run."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fedsynth
from fedsynth.api.synthesizer import NotFittedError, Synthesizer
from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets
from fedsynth.experiment.scenario import party_records
from fedsynth.privacy.ledger import read_entries

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

X = np.random.default_rng(0).integers(0, 256, (300, 8, 8), dtype=np.uint8)
Y = np.repeat(["cat", "dog", "fox"], 100)
SMALL = {"spc": 4}


@pytest.fixture(scope="module")
def fitted() -> Synthesizer:
    """A tiny release of images."""
    some = Synthesizer("ldpdc", epsilon=2, delta=1e-3, settings=SMALL, noise_seed=1)
    assert some.fit(X, Y) is some
    return some


def test_parameters_are_those_of_scikit_learn() -> None:
    settings = {"spc": 4}
    some = Synthesizer("ldpdc", epsilon=3, settings=settings)
    assert some.get_params()["settings"] is settings
    copy = clone(some)
    assert copy is not some
    assert copy.get_params() == some.get_params()
    assert some.set_params(epsilon=5).epsilon == 5
    with pytest.raises(UserError, match="Did you mean 'epsilon'"):
        some.set_params(delta=0.1, epsilom=1)
    assert some.delta == 1e-5  # none is set
    assert repr(some) == "Synthesizer('ldpdc', epsilon=5, settings={'spc': 4})"
    assert not [name for name in vars(some) if name.endswith("_")]


def test_nothing_is_released_before_fit() -> None:
    for call in (Synthesizer().sample, lambda: Synthesizer().save("x")):
        with pytest.raises(NotFittedError, match="call fit"):
            call()
    assert issubclass(NotFittedError, UserError)


def test_the_release_has_ledger_policy_and_certificate(fitted: Synthesizer) -> None:
    assert 1.9 < fitted.epsilon_ <= 2.0001
    assert fitted.classes_.tolist() == ["cat", "dog", "fox"]
    verdict = fitted.release_.certificate
    assert verdict.body["schema"]["data"]["name"] == "records"
    assert str(fitted.folder_) not in str(verdict.body)
    entries = read_entries(fitted.folder_ / "ledger.jsonl")
    assert entries
    (policy,) = fitted.folder_.rglob("party.yaml")
    assert "epsilon: 2" in policy.read_text()


def test_records_are_not_written_and_not_kept_under_a_name(fitted: Synthesizer) -> None:
    raw = X.tobytes()[:64]
    files = [path for path in fitted.folder_.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if raw in path.read_bytes()]
    assert not [name for name in datasets._registry if name.startswith("file:")]


def test_nothing_holds_the_records_after_fit() -> None:
    records = X.copy()
    alive = weakref.ref(records)
    some = Synthesizer("ldpdc", delta=1e-3, settings=SMALL).fit(records, Y)
    del records
    gc.collect()
    assert alive() is None
    assert party_records.cache_info().currsize == 0  # copies of them
    assert len(some.sample()[1]) == 12


def test_samples_are_chosen_from_the_release(fitted: Synthesizer) -> None:
    images, labels = fitted.sample()
    assert images.shape == (12, 1, 8, 8)
    assert images.min() >= 0
    assert images.max() <= 1
    assert labels.tolist() == np.repeat(["cat", "dog", "fox"], 4).tolist()
    some, names = fitted.sample(5, random_state=3)
    again, _ = fitted.sample(5, random_state=3)
    assert (some == again).all()
    known = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    assert [known[image.tobytes()] for image in some] == names.tolist()
    assert len(fitted.sample(50, replace=True)[1]) == 50
    for wrong in (13, -1, 2.5, True):
        with pytest.raises(UserError, match=f"n={wrong}"):
            fitted.sample(wrong)  # type: ignore[arg-type]


def test_a_saved_release_can_be_checked_elsewhere(fitted: Synthesizer, tmp_path: Path) -> None:
    file = fitted.save(tmp_path / "saved")
    loaded = fedsynth.load(file)
    assert not loaded.certificate.problems
    assert (loaded.images == fitted.release_.images).all()
    for wrong in (tmp_path / "saved", tmp_path / "x.npz"):
        with pytest.raises(UserError, match="must be a new folder"):
            fitted.save(wrong)


def test_equal_public_facts_and_other_records_are_another_release(fitted: Synthesizer) -> None:
    """No cache answers with the records of an earlier fit."""
    same = clone(fitted).fit(X, Y)
    assert (same.release_.images == fitted.release_.images).all()
    other = clone(fitted).fit(255 - X, Y)
    assert not (other.release_.images == fitted.release_.images).all()


def test_a_temporary_folder_goes_with_the_object() -> None:
    some = Synthesizer("ldpdc", delta=1e-3, settings=SMALL).fit(X, Y)
    folder = some.folder_
    assert folder.is_dir()
    del some
    gc.collect()
    assert not folder.exists()


def test_a_named_folder_stays_and_takes_one_release(tmp_path: Path) -> None:
    some = Synthesizer("ldpdc", delta=1e-3, settings=SMALL, folder=tmp_path / "run").fit(X, Y)
    assert len(fedsynth.load(tmp_path / "run").releases) == 1
    with pytest.raises(UserError, match="is not empty"):
        some.fit(X, Y)


def test_a_table_comes_back_as_a_table() -> None:
    table = pd.DataFrame({"age": [30, 61] * 200, "ward": ["n", "s"] * 200, "ill": [0, 1] * 200})
    schema = {"age": (18, 90), "ward": ["n", "s"]}
    some = Synthesizer("dp_merf", preset="smoke", schema=schema, settings={"steps": 4})
    rows, ill = some.fit(table, "ill").sample(20)
    assert rows.columns.tolist() == ["age", "ward"]
    assert rows["age"].between(18, 90).all()
    assert rows["age"].dtype == np.int64
    assert rows["ward"].isin(["n", "s"]).all()
    assert set(ill.tolist()) <= {0, 1}
    frame = some.release_.to_pandas()
    assert frame.columns.tolist() == ["age", "ward", "label"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"method": "ldpd"}, "Did you mean 'ldpdc'"),
        ({"method": "upper_bound"}, "not a private method"),
        ({"method": "gs_wgan,psg"}, "unknown method"),
        ({"epsilon": -1}, "epsilon=-1.0 must be above 0"),
        ({"epsilon": [1, 2]}, "one epsilon"),
        ({"delta": 2}, "delta=2.0 must be below 1"),
        ({"relation": "add"}, "relation='add' is unknown"),
        ({"preset": "laptp"}, "Did you mean 'laptop'"),
        ({"settings": {"scp": 4}}, "Did you mean 'spc'"),
        ({"settings": 3}, "must be a mapping"),
        ({"name": "../x"}, "name='../x'"),
        ({"name": 5}, "name=5"),
        ({"folder": 5}, "folder=5 is not a path"),
    ],
)
def test_wrong_parameters_are_refused_by_fit(keys: dict, message: str, tmp_path: Path) -> None:
    arguments = {"method": "ldpdc", "folder": tmp_path / "run", **keys}
    with pytest.raises(UserError, match=message):
        Synthesizer(**arguments).fit(X, Y)
    assert not (tmp_path / "run").exists()
