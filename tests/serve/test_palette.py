"""The colours of the map can be told apart, by people with any kind of colour vision, on light and on dark ground.

Colour blindness is simulated with the matrices of Machado, Oliveira and Fernandes (2009) for severity 1. Differences
are distances in OKLab (Ottosson 2020), where 0.02 can just be seen side by side.
"""

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from retriever.maps.topics import MOST_CLUSTERS
from retriever.serve.app import PAGE

Colours = NDArray[np.float64]

VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
LMS += [[0.0883024619, 0.2817188376, 0.6299787005]]
LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
LAB += [[0.0259040371, 0.7827717662, -0.8086757660]]


def palette(name: str) -> Colours:
    text = (PAGE / "palette.js").read_text(encoding="utf-8")
    found = re.search(rf"const {name} = \[(.*?)\];", text)
    assert found
    colours = re.findall(r"#(..)(..)(..)", found[1])
    rgb = np.array([[int(channel, 16) / 255 for channel in colour] for colour in colours])
    return np.asarray(np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4))


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("name", ["LIGHT", "DARK"])
def test_all_colours_differ(name: str, vision: str) -> None:
    seen = np.clip(palette(name) @ np.array(VISION[vision]).T, 0, 1)
    assert len(seen) == MOST_CLUSTERS
    lab = np.cbrt(seen @ np.array(LMS).T) @ np.array(LAB).T
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=2)[np.triu_indices(len(lab), 1)]
    assert distances.min() > 0.1


@pytest.mark.parametrize(("name", "ground"), [("LIGHT", 1.0), ("DARK", 0.0122)])
def test_all_colours_stand_out_from_the_ground(name: str, ground: float) -> None:
    luminance = palette(name) @ np.array([0.2126, 0.7152, 0.0722])
    contrast = (np.maximum(luminance, ground) + 0.05) / (np.minimum(luminance, ground) + 0.05)
    assert contrast.min() > 1.8
