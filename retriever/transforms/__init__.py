"""Maps from an encoder's raw vectors to isotropic ones: one family a file, one protocol for all.

    transform = fit("whiten:dimension=256", vectors)
    transform.apply(vectors); transform.save(folder); load(folder)

Fitting a flow needs torch. Applying one does not.
"""

from retriever.transforms.base import Transform
from retriever.transforms.fitting import fit
from retriever.transforms.flow import Flow
from retriever.transforms.spec import FAMILIES, Spec, parse
from retriever.transforms.store import load

__all__ = [
    "FAMILIES",
    "Flow",
    "Spec",
    "Transform",
    "fit",
    "load",
    "parse",
]
