"""The digits that come with taut: 1797 scanned figures of 8 x 8 pixels.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak
(1998, UCI Machine Learning Repository, https://doi.org/10.24432/C50P49), licensed under CC BY 4.0;
the same numbers in the same order as scikit-learn's `load_digits`, stored as bytes from 0 to 16.
"""

from pathlib import Path

import numpy as np

from taut.data.labelled import LabelledSet, label_images

__all__ = ["read_digits"]


def read_digits() -> LabelledSet:
    """All 1797 digits, scaled from 0 ... 16 to [0, 1].

    Example:
        >>> read_digits()
        LabelledSet(1797 x 1 x 8 x 8, 10 classes, from digits)
    """
    with np.load(Path(__file__).with_name("digits.npz"), allow_pickle=False) as arrays:
        images, labels = arrays["images"][:, None], arrays["labels"]
    return label_images(images, labels, tuple("0123456789"), "digits", largest=16)
