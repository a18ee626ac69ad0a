"""A user's own arrays as a data set, and what is wrong with those that cannot be one."""

import numpy as np
import pytest

from fedsynth.core.errors import UserError
from fedsynth.data import registry as datasets


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (7, 5, 4), np.uint8),
        "y_train": np.array([0, 1, 2, 2, 1, 0, 2], np.uint8),
        "x_test": rng.integers(0, 256, (2, 5, 4), np.uint8),
        "y_test": np.array([0, 2], np.uint8),
    }


def save(folder, arrays):
    np.savez(folder / "own.npz", **arrays)
    return f"file:{folder / 'own.npz'}"


def test_own_arrays_are_a_data_set(tmp_path, arrays):
    name = save(tmp_path, arrays)
    known = datasets.find(name)
    assert known.info.shape == (1, 5, 4)
    assert (known.train, known.test) == ((2, 2, 3), (1, 0, 1))
    assert not known.made
    images, labels = datasets.load(name, "train")
    assert (images[:, 0].numpy() == arrays["x_train"]).all()
    assert labels.tolist() == arrays["y_train"].tolist()


def test_own_arrays_in_colour(tmp_path, arrays):
    for key in ("x_train", "x_test"):
        arrays[key] = np.stack([arrays[key]] * 3, 1)
    name = save(tmp_path, arrays)
    assert datasets.find(name).info.shape == (3, 5, 4)
    assert len(datasets.find(name).info.mean) == 3
    assert (datasets.load(name, "test")[0].numpy() == arrays["x_test"]).all()


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("x_train", lambda a: a / 255, r"x_train must be uint8 .* it is float64 \[7, 5, 4\]"),
        ("x_train", lambda a: a[..., None], r"1 or 3 channels; it is uint8 \[7, 5, 4, 1\]"),
        ("x_test", lambda a: a[:, :3], "different shapes"),
        ("y_train", lambda a: a.astype(float), "y_train must be whole labels"),
        ("y_train", lambda a: a.astype(int) - 1, "y_train must be whole labels"),
        ("y_train", lambda a: np.eye(4)[a], "y_train must be whole labels"),
        ("y_train", lambda a: a[:-1], "7 images but 6 labels in train"),
        ("y_test", lambda a: a[:0], "y_test must be whole labels"),
        ("y_test", lambda _: None, "holds x_train, y_train, x_test; needed are"),
        ("y_test", lambda _: np.array([{}, {}]), "not a readable npz file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, arrays, key, change, message):
    arrays[key] = change(arrays[key])
    name = save(tmp_path, {k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(UserError, match=message):
        datasets.load(name, "train")


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("x_train", lambda a: holed(a, (2, 3, 1)), r"not finite at x_train\[2, 3, 1\]\.$"),
        (
            "x_test",
            lambda a: holed(holed(a, (0, 0, 1)), (1, 4, 2)),
            r"\[0, 0, 1\] and 1 more entries",
        ),
        ("x_train", lambda a: a / 255, r"it is float64 \[7, 5, 4\]\.$"),
        ("x_train", lambda a: np.stack([a] * 3, 3), r"Write x_train.transpose\(0, 3, 1, 2\)"),
        ("x_train", lambda a: a[:, :0], r"it is uint8 \[7, 0, 4\]"),
        ("x_train", lambda _: np.array("text"), r"x_train must be uint8 .* it is <U4 \[\]"),
        (
            "x_test",
            lambda a: np.stack([a] * 3, 1),
            r"different shapes .* \(1, 5, 4\) and \(3, 5, 4\)",
        ),
        (
            "y_train",
            lambda a: a.astype(int) * 10**9,
            r"y_train\[2\] is 2000000000, but there are 7",
        ),
        (
            "y_test",
            lambda a: a + 7,
            r"y_test\[1\] is 9, but .* 7 records to train on and 2 to test",
        ),
        ("y_train", lambda a: a[:, None], r"whole labels .* it is uint8 \[7, 1\]"),
    ],
)
def test_where_it_is_wrong_is_said_as_well(tmp_path, arrays, key, change, message):
    arrays[key] = change(arrays[key])
    with pytest.raises(UserError, match=message):
        datasets.find(save(tmp_path, arrays))


def holed(images, place):
    """Floats with a hole."""
    images = images / 255 if images.dtype == np.uint8 else images
    images[place] = np.nan
    return images


def test_facts_are_told_without_reading_an_image(tmp_path, arrays, monkeypatch):
    name = save(tmp_path, arrays)
    read = []
    whole = np.lib.format.read_array

    def watched(member, **named):
        read.append(member.name)
        return whole(member, **named)

    monkeypatch.setattr(np.lib.format, "read_array", watched)
    assert datasets.find(name).info.shape == (1, 5, 4)
    assert sorted(read) == ["y_test.npy", "y_train.npy"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_flipped_byte_is_noticed(tmp_path, arrays, compressed):
    """The archive's own checksums; what is read is what was written."""
    name = save(tmp_path, arrays)
    if compressed:
        np.savez_compressed(tmp_path / "own.npz", **arrays)
    path = tmp_path / "own.npz"
    content = bytearray(path.read_bytes())
    start = content.index(b"x_train.npy") + 80
    content[start + 70] ^= 0x55
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match=r"own.npz is not a readable npz file"):
        datasets.load(name, "train")


def truncated(path):
    path.write_bytes(path.read_bytes()[:300])


def not_an_archive(path):
    path.write_text("something else")


def one_array(path):
    np.save(path, np.zeros(3))
    path.with_suffix(".npz.npy").replace(path)


@pytest.mark.parametrize("damage", [truncated, not_an_archive, one_array])
def test_a_damaged_file_is_said_to_be_one(tmp_path, arrays, damage):
    name = save(tmp_path, arrays)
    damage(tmp_path / "own.npz")
    with pytest.raises(UserError, match=r"own.npz is not a readable npz file"):
        datasets.find(name)


def test_a_file_that_is_not_there():
    with pytest.raises(UserError, match=r"there is no file nowhere.npz"):
        datasets.find("file:nowhere.npz")
