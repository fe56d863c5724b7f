"""The gallery: figures in the style of `taut.plotting`, examples in the order of their numbers."""

import re
from pathlib import Path
from typing import Any

from sphinx_gallery.scrapers import figure_rst

from taut.plotting import Figure


def taut_figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The figures that a block of an example made, as images of its page."""
    names = vars(block_vars["fake_main"])
    shown: set[int] = block_vars.setdefault("shown", set())
    images = []
    for figure in [value for value in names.values() if isinstance(value, Figure)]:
        if id(figure) in shown:
            continue
        shown.add(id(figure))
        path = Path(next(block_vars["image_path_iterator"]))
        path.write_bytes(figure.render("png"))
        images.append((str(path), figure.alt))
    return "".join(figure_rst([path], gallery_conf["src_dir"], alt) for path, alt in images)


class ByNumber:
    """Sorts examples by the number in their names, so that plot_2_... comes before plot_10_..."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> int:
        """The number of an example."""
        return int(re.findall(r"\d+", filename)[0])
