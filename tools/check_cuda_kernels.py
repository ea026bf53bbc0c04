#!/usr/bin/env python3
"""Checks the text of CUDA kernels: tile/cuda, every cuda/kernels/ folder, and the kernels of tests/simt.

1. asm, and CUDA's own words (threadIdx, __shfl_sync, __syncthreads, ...), stand in tile/cuda/ptx alone: the rest is what
   the host runs too.
2. Shared memory is what the launch gives: no static __shared__.
3. Nothing is included with <>: NVRTC has no path to look along.
4. Every function of tile/cuda/ptx has a twin for the host in tests/simt/twins, and the other way round; shared_address,
   which makes operands of asm, needs none.
--self-test shows that each rule can fail.
"""
import pathlib
import re
import sys
import tempfile

PTX = "src/tile/cuda/ptx/"
TWINS = "tests/simt/twins/tile/cuda/ptx/"
WITHOUT_TWIN = {"shared_address"}
HARDWARE = re.compile(r"\b(asm|__asm__|threadIdx|blockIdx|blockDim|gridDim|__CUDA_ARCH__|__device__|__global__|"
                      r"__forceinline__|__sync\w+|__shfl\w*|__ballot\w*|__ldg|__nv_\w+|atomic[A-Z]\w*)\b")
FUNCTION = re.compile(r"^WEFT_INLINE [^(=;]*?\b(\w+)\(([^{;]*)\) \{", re.MULTILINE)


def kernel_files(root):
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in (".h", ".cpp") or not path.is_file():
            continue
        if name.startswith(("src/tile/cuda/", "tests/simt/kernels/")) or re.match(r"src/.*/cuda/kernels/", name) or \
                name in ("tests/simt/broken.cpp", "tests/simt/broken_cluster.cpp", "tests/simt/broken_lanes.cpp",
                         "tests/simt/broken_ring.cpp", "tests/simt/broken_tensor.cpp", "tests/simt/broken_wgmma.cpp",
                         "tests/simt/forms.cpp", "tests/simt/kernels.cpp", "tests/simt/older_kernels.cpp",
                         "tests/simt/layout.cpp", "tests/simt/variant.cpp"):
            yield name, path.read_text()


def functions(root, folder):
    found = {}
    for path in sorted((root / folder).glob("*.h")):
        for match in FUNCTION.finditer(path.read_text()):
            arguments = len([a for a in match.group(2).split(",") if a.strip()])
            found[(path.name, match.group(1), arguments)] = None
    return found


def problems(root):
    found = []
    for name, text in kernel_files(root):
        code = re.sub(r"//.*", "", text)
        for number, line in enumerate(code.splitlines(), 1):
            where = f"{name}:{number}"
            if not name.startswith(PTX) and (match := HARDWARE.search(line)):
                found.append(f"{where}: {match[0]} outside of tile/cuda/ptx")
            if re.search(r"(?<!extern )__shared__", line):
                found.append(f"{where}: static __shared__; take shared memory from the launch")
            if re.search(r"#\s*include\s*<", line):
                found.append(f"{where}: an include that NVRTC does not find")
    ours, twins = functions(root, PTX), functions(root, TWINS)
    for file, name, arguments in ours:
        if (file, name, arguments) not in twins and name not in WITHOUT_TWIN:
            found.append(f"{PTX}{file}: {name} of {arguments} arguments has no twin in {TWINS}")
    for file, name, arguments in twins:
        if (file, name, arguments) not in ours:
            found.append(f"{TWINS}{file}: {name} of {arguments} arguments is the twin of nothing")
    return found


def self_test():
    function = "WEFT_INLINE float exp2(float x) {\n  return x;\n}\n"
    cases = {  # files, part of the complaint (none: allowed)
        "asm in ptx": ({PTX + "a.h": '  asm("x");\n'}, None),
        "asm elsewhere": ({"src/tile/cuda/a.h": '  asm("x");\n'}, "src/tile/cuda/a.h:1: asm outside"),
        "asm in a comment": ({"src/tile/cuda/a.h": "// asm is elsewhere\n"}, None),
        "thread index": ({"src/attention/cuda/kernels/a.h": "int i = threadIdx.x;\n"}, "threadIdx outside"),
        "host file": ({"src/attention/cuda/launch.cpp": "#include <vector>\n"}, None),
        "static shared": ({PTX + "a.h": "__shared__ float x[4];\n"}, "static __shared__"),
        "shared of the launch": ({PTX + "a.h": "extern __shared__ int x[];\n"}, None),
        "include": ({"tests/simt/kernels/a.h": "#include <cuda_fp16.h>\n"}, "an include that NVRTC"),
        "twins": ({PTX + "a.h": function, TWINS + "a.h": function}, None),
        "no twin": ({PTX + "a.h": function}, "exp2 of 1 arguments has no twin"),
        "other arguments": ({PTX + "a.h": function, TWINS + "a.h": function.replace("float x", "float x, int y")}, "exp2 of"),
        "twin of nothing": ({TWINS + "a.h": function}, "the twin of nothing"),
    }
    failed = 0
    for name, (files, complaint) in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            for file, text in files.items():
                path = pathlib.Path(folder) / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            found = problems(pathlib.Path(folder))
            good = not found if complaint is None else bool(found) and complaint in found[0]
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
