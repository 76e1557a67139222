"""Transforms: maps from an encoder's raw vectors to isotropic vectors. All families have the same interface.

    transform = fit("whiten:dimension=256", vectors)
    transform.apply(vectors); transform.save(folder); load(folder)

Fitting a flow needs torch. Applying a fitted flow does not.
"""

from retriever.transforms.affine import Affine
from retriever.transforms.base import Transform, fit, load, load_transform
from retriever.transforms.bert_flow.bert_flow import BertFlow
from retriever.transforms.flow.flow import Flow
from retriever.transforms.spec import FAMILIES, Spec, parse

__all__ = ["FAMILIES", "Affine", "BertFlow", "Flow", "Spec", "Transform", "fit", "load", "load_transform", "parse"]
