#!/usr/bin/env python3
"""Checks what the sources include.

1. A folder of src/ includes its own files and those of lower layers, never those of another folder of its layer.
2. Public headers (weft/...) belong to a layer too.
3. Host files include of tile/ only what SHARED lists; the rest is for kernels and generated text.
4. Kernel code (tile/, and every kernels/ folder) includes no header of the C++ standard library: it is compiled
   once per instruction set, and an inline function of such a header would be kept from one copy for all.
5. Folders that are the same for every backend name none, not even in comments; the rest of attention/ does so but for
   where backends are registered.
6. Host code that serves every backend (attention/, jit/, loop/, sparse/, ops/, models/, decode/, but for a backend's own
   folder, and kernels/ and ops/gemm/, which are the CPU's) includes no device, runtime or kernel vocabulary of one, but
   for where operators find their backend.
7. A folder of one backend includes nothing of another's; toolchains may (jit/, but for jit/cuda/, which runs kernels).
--self-test shows that each rule can fail.
"""
import pathlib
import re
import sys
import tempfile

LAYERS = {"base": 0, "device": 1, "tile": 1, "jit": 2, "loop": 2, "attention": 3, "sparse": 3, "ops": 3, "models": 3,
          "decode": 4, "serve": 5, "bench": 6, "cli": 7}
PUBLIC = {"version.h": 0, "error.h": 0, "tensor.h": 0, "dlpack.h": 0, "weight_type.h": 0, "device.h": 1, "jit.h": 2,
          "attention.h": 3, "levels.h": 3, "merge.h": 3, "page_table.h": 3, "plan.h": 3, "block_sparse.h": 3,
          "quest.h": 3, "ops.h": 3, "sparse.h": 3, "sparse_files.h": 3, "sparse_program.h": 3, "model.h": 3, "serve.h": 5}
SUFFIXES = (".h", ".cpp", ".cuh")
SHARED = {"attention/abi.h": {"tile/abi/leaf.h"},
          "attention/params.h": {"tile/abi/leaf.h"},
          "attention/cpu/leaf.h": {"tile/abi/leaf.h"},
          "jit/cuda/tensor_map.h": {"tile/abi/tensor_map.h"},
          "ops/draw.h": {"tile/abi/draw.h"},
          "attention/reference/hooks.h": {"tile/abi/leaf.h", "tile/abi/reference_leaf.h"}}
NEUTRAL = ("attention/plan/", "attention/reference/", "attention/variant/")
BACKEND = re.compile(r"cpu|cuda", re.IGNORECASE)
REGISTRATION = "attention/backend.cpp"
SERVES_ALL = ("attention", "jit", "loop", "sparse", "ops", "models", "decode")
OPERATORS_BACKENDS = "ops/backend.cpp"
OF_CPU, OF_CUDA = re.compile(r"/(cpu|host|gemm)/"), re.compile(r"/(cuda|nvrtc)/")
OF_A_BACKEND = re.compile(r"^(tile|device|jit)/(cpu|cuda)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)


def problems(root):
    found = []
    sources = sorted(p for folder in ("include", "src") for p in (root / folder).rglob("*") if p.suffix in SUFFIXES)
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
        of_cuda = OF_CUDA.search("/" + inner)
        of_cpu = not of_cuda and (OF_CPU.search("/" + inner) or "/kernels/" in inner)
        kernel = not public and (folder == "tile" or "/kernels/" in "/" + inner)
        text = path.read_text()
        neutral = inner.startswith(NEUTRAL) or (inner.startswith("attention/") and inner.count("/") == 1)
        if neutral and inner != REGISTRATION and (named := BACKEND.search(text)):
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
            elif (folder != "jit" or inner.startswith("jit/cuda/")) and (of_cuda and OF_CPU.search(target) or of_cpu and OF_CUDA.search(target)):
                found.append(f"{where}: a folder of one backend includes {target} of another")
            elif (folder in SERVES_ALL and not (of_cpu or of_cuda or inner == OPERATORS_BACKENDS)
                  and OF_A_BACKEND.match(target)):
                found.append(f"{where}: {target} is of one backend; {folder}/ serves all")
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
        "tile in host file": ("src/serve/a.cpp", '#include "tile/cpu/vec.h"\n', "a host file includes tile/cpu"),
        "abi in host file": ("src/ops/a.cpp", '#include "tile/abi/leaf.h"\n', "a host file includes tile/abi"),
        "std in kernel": ("src/ops/kernels/a.h", "#  include <vector>\n", "includes <vector>"),
        "std in tile": ("src/tile/cpu/a.h", "#include <cmath>\n", "includes <cmath>"),
        "backend in a neutral folder": ("src/attention/plan/a.cpp", "// As on the CPU\n", "'CPU' in a folder"),
        "backend beside backends": ("src/attention/run.cpp", "\n// cuda\n", "src/attention/run.cpp:2: 'cuda'"),
        "registration": ("src/attention/backend.cpp", "const Backend& cpu_backend();\n", None),
        "device of a backend": ("src/decode/a.cpp", '#include "device/cpu/cpuid.h"\n', "is of one backend"),
        "kernels in a toolchain": ("src/jit/a.cpp", '#include "device/cuda/driver.h"\n', "is of one backend"),
        "backend's own folder": ("src/attention/cpu/a.cpp", '#include "device/cpu/cpuid.h"\n', None),
        "host toolchain": ("src/jit/host/a.cpp", '#include "device/cpu/cpuid.h"\n', None),
        "device in operators": ("src/ops/a.cpp", '#include "device/cpu/futex.h"\n', "is of one backend"),
        "card in operators": ("src/ops/a.cpp", '#include "device/cuda/card.h"\n', "is of one backend"),
        "operators' backends": ("src/ops/backend.cpp", '#include "device/cuda/card.h"\n', None),
        "CPU's products": ("src/ops/gemm/a.cpp", '#include "device/cpu/futex.h"\n', None),
        "CPU's kernels": ("src/ops/kernels/a.cpp", '#include "device/cpu/built_isas.h"\n#include "tile/cpu/vec.h"\n', None),
        "CPU's device on a card": ("src/attention/cuda/a.cpp", '#include "device/cpu/cpuid.h"\n', "of another"),
        "CPU's folder on a card": ("src/attention/cuda/a.cpp", '#include "attention/cpu/rounding.h"\n', "of another"),
        "CPU's kernels on a card": ("src/attention/cuda/kernels/a.h", '#include "tile/cpu/vec.h"\n', "of another"),
        "CPU's products on a card": ("src/ops/cuda/a.cpp", '#include "ops/gemm/linear.h"\n', "of another"),
        "card's device on the CPU": ("src/attention/cpu/a.cpp", '#include "device/cuda/card.h"\n', "of another"),
        "card's folder on the CPU": ("src/attention/cpu/a.cpp", '#include "attention/cuda/text.h"\n', "of another"),
        "card's kernels on the CPU": ("src/attention/cpu/kernels/a.h", '#include "tile/cuda/mma.h"\n', "of another"),
        "card's runtime on the CPU": ("src/attention/cpu/a.cpp", '#include "jit/cuda/runtime.h"\n', "of another"),
        "card's runtime in a folder for all": ("src/decode/a.cpp", '#include "jit/cuda/runtime.h"\n', "is of one backend"),
        "card's runtime": ("src/jit/cuda/a.cpp", '#include "device/cuda/card.h"\n#include "jit/nvrtc/module.h"\n', None),
        "CPU's toolchain in a card's runtime": ("src/jit/cuda/a.cpp", '#include "jit/host/module.h"\n', "of another"),
        "runtime of cards beside them": ("src/attention/cuda/a.cpp", '#include "jit/cuda/runtime.h"\n', None),
        "toolchains": ("src/jit/nvrtc/a.cpp", '#include "jit/host/process.h"\n', None),
        "bench below cli": ("src/bench/a.cpp", '#include "cli/output.h"\n', "bench includes cli"),
        "kernel text": ("src/tile/cuda/a.cuh", "#include <cmath>\n", "includes <cmath>"),
        "sparse beside attention": ("src/sparse/a.cpp", '#include "attention/abi.h"\n', "sparse includes attention"),
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
