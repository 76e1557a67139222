"""Read the weights of a DistilBERT from an ONNX file, in float32 or quantised to 8 bits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

PREFIX = "distilbert."


def encoder_weights(content: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the encoder's weights in float32, by their names in transformers.

    The ONNX export dropped the names of matrices. Each matrix is therefore named after the node that multiplies with
    it.
    """
    import onnx

    graph = onnx.load_model_from_string(content).graph
    value = _values(graph)
    made_by = {output: node for node in graph.node for output in node.output}
    found: dict[str, NDArray[Any]] = {}
    for node in graph.node:
        if PREFIX.strip(".") not in node.name:
            continue
        if node.op_type == "MatMul" and (matrix := value(node.input[1])) is not None:
            found[node.name.strip("/").replace("/MatMul", "").replace("/", ".") + ".weight"] = matrix.T
        if node.op_type in ("Add", "Gather", "LayerNormalization"):
            for name in node.input:
                maker = made_by.get(name)
                source = (maker.input[0] if maker and maker.input else name).removesuffix("_quantized")
                if source.startswith(PREFIX) and (weight := value(name)) is not None:
                    found[source] = weight
    return {name.removeprefix(PREFIX): np.ascontiguousarray(found[name], np.float32) for name in sorted(found)}


def _values(graph: "GraphProto") -> Callable[[str], NDArray[Any] | None]:
    """Return a function that takes a name in the graph and returns its constant.

    A quantised constant is dequantised. The function returns None if the name is not a constant.
    """
    from onnx import numpy_helper

    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made_by = {output: node for node in graph.node for output in node.output}

    def value(name: str) -> NDArray[Any] | None:
        if name in stored:
            return stored[name]
        node = made_by.get(name)
        if node is None or node.op_type not in ("Identity", "DequantizeLinear"):
            return None
        given = value(node.input[0])
        if given is None or node.op_type == "Identity":
            return given
        return dequantised(given, stored[node.input[1]], stored[node.input[2]], _axis(node))

    return value


def dequantised(given: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], axis: int) -> NDArray[np.float32]:
    """Return (q - zero) * scale in float32.

    There is one scale for all values, or one scale for each channel along the axis.
    """
    if scale.ndim:
        shape = [1] * given.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return np.asarray((given.astype(np.float32) - zero.astype(np.float32)) * scale, np.float32)


def _axis(node: "NodeProto") -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 1)
