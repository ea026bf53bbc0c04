#!/usr/bin/env python3
"""Checks what the sources include.

1. A folder of src/ includes its own files and those of lower layers, never those of another folder of its layer.
2. Public headers (weft/...) belong to a layer too.
3. Host files include of tile/ only what SHARED lists; the rest is for kernels and generated text.
4. Kernel code (tile/, and every kernels/ folder) includes no header of the C++ standard library: it is compiled
   once per instruction set, and an inline function of such a header would be kept from one copy for all.
5. Folders that are the same for every backend name none, not even in comments.
--self-test shows that each rule can fail.
"""
import pathlib
import re
import sys
import tempfile

LAYERS = {"base": 0, "device": 1, "tile": 1, "jit": 2, "attention": 3, "ops": 3, "models": 3, "decode": 4, "cli": 6}
PUBLIC = {"error.h": 0, "tensor.h": 0, "dlpack.h": 0, "device.h": 1, "jit.h": 2, "attention.h": 3, "levels.h": 3,
          "block_sparse.h": 3, "quest.h": 3, "ops.h": 3, "model.h": 3}
SHARED = {"attention/abi.h": {"tile/abi/leaf.h"},
          "attention/params.h": {"tile/abi/leaf.h"},
          "attention/cpu/leaf.h": {"tile/abi/leaf.h"},
          "attention/reference/hooks.h": {"tile/abi/leaf.h", "tile/abi/reference_leaf.h"}}
NEUTRAL = ("attention/plan/", "attention/reference/", "attention/variant/")
BACKEND = re.compile(r"cpu|cuda", re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def problems(root):
    found = []
    sources = sorted(p for folder in ("include", "src") for p in (root / folder).rglob("*") if p.suffix in (".h", ".cpp"))
    for path in sources:
        relative = path.relative_to(root).as_posix()
        public = relative.startswith("include/weft/")
        inner = relative.removeprefix("include/" if public else "src/")
        folder = inner.split("/")[0]
        layers, key = (PUBLIC, inner.removeprefix("weft/")) if public else (LAYERS, folder)
        if key not in layers:
            found.append(f"{relative}: no layer is known for it; add it to tools/check_layers.py")
            continue
        layer = layers[key]
        kernel = not public and (folder == "tile" or "/kernels/" in "/" + inner)
        text = path.read_text()
        if inner.startswith(NEUTRAL) and (named := BACKEND.search(text)):
            line = text.count("\n", 0, named.start()) + 1
            found.append(f"{relative}:{line}: '{named.group()}' in a folder that is the same for every backend")
        for match in INCLUDE.finditer(text):
            angle, target = match.groups()
            where = f"{relative}:{text.count(chr(10), 0, match.start(2)) + 1}"
            if angle == "<":
                if kernel and "." not in target:
                    found.append(f"{where}: kernel code includes <{target}> of the standard library")
                continue
            top, _, rest = target.partition("/")
            if top == "weft":
                if rest not in PUBLIC:
                    found.append(f"{where}: no layer is known for {target}; add it to tools/check_layers.py")
                elif PUBLIC[rest] > layer:
                    found.append(f"{where}: {target} belongs to a higher layer than {key}")
                continue
            if public:
                found.append(f"{where}: a public header includes {target}, which is not installed")
            elif top not in LAYERS:
                found.append(f"{where}: {target} is not written from src/ on")
            elif top != folder and LAYERS[top] >= layer:
                kind = "another folder of its layer" if LAYERS[top] == layer else "a higher layer"
                found.append(f"{where}: {folder} includes {target} of {kind}")
            elif top == "tile" and not kernel and target not in SHARED.get(inner, ()):
                found.append(f"{where}: a host file includes {target}; only kernels and generated text may")
    return found


def self_test():
    cases = {  # file, text, part of the complaint (none: allowed)
        "lower layer": ("src/jit/a.cpp", '#include "base/check.h"\n#include "weft/device.h"\n#include <vector>\n', None),
        "own folder": ("src/ops/gemm/a.cpp", '#include "ops/rope.h"\n', None),
        "kernel vocabulary": ("src/attention/cpu/kernels/a.h", '#include "tile/cpu/vec.h"\n#include <immintrin.h>\n', None),
        "shared struct": ("src/attention/params.h", '#include "tile/abi/leaf.h"\n', None),
        "higher layer": ("src/base/a.cpp", '#include "device/cpu/module.h"\n', "base includes device"),
        "same layer": ("src/ops/a.cpp", "\n#include \"attention/leaf.h\"\n", "src/ops/a.cpp:2: ops includes attention"),
        "higher public header": ("src/device/a.cpp", '#include "weft/attention.h"\n', "weft/attention.h belongs to a higher"),
        "public to private": ("include/weft/ops.h", '#include "base/check.h"\n', "public header includes base/check.h"),
        "tile in host file": ("src/attention/run.cpp", '#include "tile/cpu/vec.h"\n', "a host file includes tile/cpu"),
        "abi in host file": ("src/ops/a.cpp", '#include "tile/abi/leaf.h"\n', "a host file includes tile/abi"),
        "std in kernel": ("src/ops/kernels/a.h", "#  include <vector>\n", "includes <vector>"),
        "std in tile": ("src/tile/cpu/a.h", "#include <cmath>\n", "includes <cmath>"),
        "relative": ("src/ops/a.cpp", '#include "rope.h"\n', "not written from src/ on"),
        "backend named": ("src/attention/reference/a.cpp", "\n// As the CPU does.\n", "a.cpp:2: 'CPU' in a folder"),
        "backend in its folder": ("src/attention/cpu/a.cpp", "// As the CPU does.\n", None),
        "unknown folder": ("src/extra/a.cpp", "", "no layer is known"),
    }
    failed = 0
    for name, (file, text, complaint) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / file
            path.parent.mkdir(parents=True)
            path.write_text(text)
            found = problems(pathlib.Path(folder))
            good = not found if complaint is None else len(found) == 1 and complaint in found[0]
            if not good:
                failed += 1
                print(f"self-test '{name}': {found}")
    return failed


def main():
    if "--self-test" in sys.argv:
        return 1 if self_test() else 0
    found = problems(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
