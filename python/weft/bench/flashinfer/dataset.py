"""Reads a data set: definitions, workloads, solutions, and the tensors of a workload."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_TYPES = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "float16": torch.float16,
          "bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8, "int16": torch.int16,
          "int32": torch.int32, "int64": torch.int64, "bool": torch.bool}
_IN_FILES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
             "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
             "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}


@dataclasses.dataclass(frozen=True)
class Definition:
    """What is computed: axes, inputs and outputs by name, and a reference in Python."""

    name: str
    op_type: str
    axes: dict[str, Any]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    reference: str

    def shape_of(self, spec: Any, axes: dict[str, int]) -> tuple[int, ...]:
        constants = {name: axis["value"] for name, axis in self.axes.items() if axis["type"] == "const"}
        return tuple({**constants, **axes}[axis] for axis in spec["shape"])


def dtype_of(name: str) -> torch.dtype:
    if name not in _TYPES:
        raise ValueError(f"dtype: {name!r}; known are {', '.join(_TYPES)}")
    return _TYPES[name]


def definitions(root: pathlib.Path) -> list[Definition]:
    """Of all files below definitions/, by name. Raises ValueError that names the file where one lacks a field."""
    made = []
    for path in sorted((root / "definitions").rglob("*.json")):
        text = json.loads(path.read_text())
        try:
            made.append(Definition(**{field.name: text[field.name] for field in dataclasses.fields(Definition)}))
        except KeyError as missing:
            raise ValueError(f"{path}: has no field {missing}") from missing
    return sorted(made, key=lambda definition: definition.name)


def workloads(root: pathlib.Path, definition: Definition) -> list[dict[str, Any]]:
    """The workloads of a definition: traces without solution and evaluation."""
    lines = (line for path in sorted((root / "workloads").rglob(f"{definition.name}.jsonl"))
             for line in path.read_text().splitlines() if line.strip())
    return [trace["workload"] for trace in map(json.loads, lines) if trace["definition"] == definition.name]


def solutions(root: pathlib.Path) -> Iterator[dict[str, Any]]:
    """All solutions of the data set."""
    for path in sorted((root / "solutions").rglob("*.json")):
        yield json.loads(path.read_text())


def read_safetensors(path: pathlib.Path) -> dict[str, Tensor]:
    """The tensors of a file: 8 bytes with the header's length, the header as JSON, the bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    made = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _IN_FILES:
            raise ValueError(f"{path}: {name} has type {entry['dtype']}; known are {', '.join(_IN_FILES)}")
        begin, end = entry["data_offsets"]
        raw = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]) or bytearray(8), dtype=torch.uint8)
        dtype = _IN_FILES[entry["dtype"]]
        count = math.prod(entry["shape"])
        made[name] = raw.view(dtype)[:count].reshape(entry["shape"])
    return made


def _random(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """As FlashInfer-Bench draws them."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        most = 128 if dtype == torch.int8 else 1024
        return torch.randint(-most, most, shape, generator=generator).to(dtype)
    made = torch.randn(shape, generator=generator)
    return made.clamp(-2, 2).to(dtype) if dtype.itemsize == 1 else made.to(dtype)


def inputs_of(root: pathlib.Path, definition: Definition, workload: dict[str, Any], seed: int,
              device: torch.device) -> list[Any]:
    """The inputs in the definition's order. probs of sampling are made a distribution, as FlashInfer-Bench does."""
    generator, made = torch.Generator().manual_seed(seed), []
    for name, spec in definition.inputs.items():
        given = workload["inputs"].get(name)
        if given is None:
            raise ValueError(f"{definition.name}: workload {workload['uuid']} has no input {name}")
        if given["type"] == "scalar":
            made.append(given["value"])
            continue
        shape, dtype = definition.shape_of(spec, workload["axes"]), dtype_of(spec["dtype"])
        if given["type"] == "random":
            x = _random(shape, dtype, generator)
            if definition.op_type == "sampling" and name == "probs":
                x = torch.softmax(x.float(), -1).to(dtype)
        elif given["type"] == "safetensors":
            path = pathlib.Path(given["path"])
            tensors = read_safetensors(path if path.is_absolute() else root / path)
            if given["tensor_key"] not in tensors:
                raise ValueError(f"{path}: has no tensor {given['tensor_key']}")
            x = tensors[given["tensor_key"]]
            if tuple(x.shape) != shape or x.dtype != dtype:
                raise ValueError(f"{path}: {given['tensor_key']} is {tuple(x.shape)} {x.dtype}; {definition.name} says "
                                 f"{shape} {dtype}")
        else:
            raise ValueError(f"{definition.name}: input {name} is {given['type']!r}; known are random, scalar and "
                             "safetensors")
        made.append(x.to(device))
    return made
