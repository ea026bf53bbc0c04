#!/usr/bin/env python3
"""Tests the Python package with libraries that Debian 12 has not: all of tests/python with torch, transformers, jax,
scipy, ml_dtypes and pytest, and mypy --strict over the package and its lessons. They come from PyPI into an environment
of their own below the cache folder (5 GB, once).

    tests/python/frameworks.py [--build build/release]
"""
import argparse
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PACKAGES = ["torch==2.15.0", "numpy==2.4.6", "scipy==1.17.1", "ml_dtypes==0.6.0", "mypy==2.4.1", "pytest==9.2.0",
            "einops==0.8.2", "transformers==5.24.0", "jax==0.10.2", "jaxlib==0.10.2"]
TESTS = sorted(path.stem for path in (ROOT / "tests/python").glob("test_*.py"))


def environment():
    """A Python that has PACKAGES, made of the one that the package was built for, and a lock that keeps it so: another
    run that wants other packages waits until it is closed."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "weft/frameworks"
    wanted, marker = "\n".join(PACKAGES), folder / "packages"
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = open(folder.with_suffix(".lock"), "w")
    while True:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if marker.exists() and marker.read_text() == wanted:
            return folder / "bin/python", lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        if marker.exists() and marker.read_text() == wanted:  # somebody else was first
            continue
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
        marker.write_text(wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    build = parser.parse_args().build.resolve()
    python, lock = environment()
    variables = {**os.environ, "PYTHONPATH": str(build / "python"), "WEFT_PYTHON_MAY_LEAK": "1"}  # torch keeps modules
    failed = 0
    for tests in ([name for name in TESTS if name != "test_jax"], ["test_jax"]):  # others fork, which jax warns of
        failed |= subprocess.run([python, "-X", "faulthandler", "-m", "unittest", "-q", *tests], env=variables,
                                 cwd=ROOT / "tests/python").returncode
    with tempfile.TemporaryDirectory() as folder:  # real files: the build's are links
        shutil.copytree(build / "python/weft", pathlib.Path(folder) / "weft")
        lessons = sorted(map(str, (ROOT / "examples/python").glob("*.py")))
        for what in (["-p", "weft"], *([lesson] for lesson in lessons)):
            failed |= subprocess.run([python, "-m", "mypy", "--strict", *what], cwd=folder).returncode
    lock.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
