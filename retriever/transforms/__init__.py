"""Transforms: maps from an encoder's raw vectors to isotropic vectors. All families have the same interface.

    transform = fit("whiten:dimension=256", vectors)
    transform.apply(vectors); transform.save(folder); load(folder)

Fitting a flow needs torch. Applying a fitted flow does not.
"""

from retriever.transforms.base import Transform
from retriever.transforms.families import fit, load
from retriever.transforms.flow.flow import Flow
from retriever.transforms.spec import FAMILIES, Spec, parse

__all__ = ["FAMILIES", "Flow", "Spec", "Transform", "fit", "load", "parse"]
