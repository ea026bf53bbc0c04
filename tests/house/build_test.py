"""Builds of the program and of the tests do not undo each other, and ctest never passes on what is not there or stale.

build_test.py SOURCE CMAKE CTEST GENERATOR COMPILER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SOURCE, CMAKE, CTEST, GENERATOR, COMPILER = sys.argv[1:]
LABELS = ("fast", "slow", "model", "fuzz")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **options)
    return done.returncode, done.stdout


def run_well(*command, **options):
    status, output = run(*command, **options)
    assert status == 0, (command, output)
    return output


def make_leaves_the_tests_alone(folder):
    """tools/build_cli.sh with a cmake that only says what it was asked for."""
    tools, bin_folder = folder / "tools", folder / "bin"
    tools.mkdir()
    bin_folder.mkdir()
    shutil.copy(f"{SOURCE}/tools/build_cli.sh", tools)
    cmake = bin_folder / "cmake"
    cmake.write_text(f'#!/bin/sh\necho "$@" >>{folder}/asked\n')
    cmake.chmod(0o755)
    environment = dict(os.environ, PATH=f"{bin_folder}:{os.environ['PATH']}")
    run_well(tools / "build_cli.sh", env=environment)
    configure, build = (folder / "asked").read_text().splitlines()
    assert "-DWEFT_BUILD_TESTS=OFF" in configure, configure  # they need more packages
    assert build == "--build build/release --target weft_installed", build
    (folder / "build/release").mkdir(parents=True)
    (folder / "asked").unlink()
    (folder / "build/release/CMakeCache.txt").touch()  # of a configuration that failed
    run_well(tools / "build_cli.sh", env=environment)
    assert "-DWEFT_BUILD_TESTS=OFF" in (folder / "asked").read_text()
    (folder / "asked").unlink()
    (folder / "build/release/build.ninja").touch()
    run_well(tools / "build_cli.sh", env=environment)
    configure, build = (folder / "asked").read_text().splitlines()
    assert "WEFT_BUILD_TESTS" not in configure, configure
    assert build == "--build build/release --target weft_installed", build


def ctest_fails_without_tests(folder):
    """In a folder that had tests once, too."""
    build = folder / "build"
    build.mkdir()
    (build / "CTestTestfile.cmake").write_text("add_test(Old /bin/true)\n")
    run_well(CMAKE, "-S", SOURCE, "-B", build, "-G", GENERATOR, f"-DCMAKE_CXX_COMPILER={COMPILER}",
             "-DWEFT_BUILD_TESTS=OFF")
    for selection in [(), *(("-L", f"^{label}$") for label in LABELS)]:
        status, output = run(CTEST, "--test-dir", build, "--output-on-failure", *selection)
        assert status != 0 and "WEFT_BUILD_TESTS=ON" in output.replace("\n", ""), output
        assert "Old" not in output, output


PROJECT = """cmake_minimum_required(VERSION 3.25)
project(small LANGUAGES CXX)
include({source}/cmake/WeftUpToDate.cmake)
enable_testing()
foreach(name one two)
  add_executable(${{name}} ${{name}}.cpp)
  weft_up_to_date(${{name}})
  add_test(NAME Runs_${{name}} COMMAND ${{name}})
  set_tests_properties(Runs_${{name}} PROPERTIES FIXTURES_REQUIRED build.${{name}})
endforeach()
"""


def ctest_fails_on_a_stale_program(folder):
    (folder / "CMakeLists.txt").write_text(PROJECT.format(source=SOURCE))
    for name in ("one", "two"):
        (folder / f"{name}.cpp").write_text("int main() { return 0; }\n")
    build = folder / "build"
    run_well(CMAKE, "-S", folder, "-B", build, "-G", GENERATOR, f"-DCMAKE_CXX_COMPILER={COMPILER}")

    def ctest(name):
        return run(CTEST, "--test-dir", build, "--output-on-failure", "-R", name)

    status, output = ctest("Runs_one")
    assert status != 0 or GENERATOR != "Ninja", output  # missing, which only Ninja tells without building
    run_well(CMAKE, "--build", build)
    status, output = ctest("Runs")
    assert status == 0 and "build.one" in output and "100% tests passed" in output, output
    (folder / "one.cpp").write_text("int main() { return 1; }\n")
    stamp = (build / "build.ninja").stat().st_mtime + 10 if GENERATOR == "Ninja" else None
    os.utime(folder / "one.cpp", stamp and (stamp, stamp))
    status, output = ctest("Runs_one")
    assert status != 0 and ("not built from the sources" in output or GENERATOR != "Ninja"), output
    status, output = ctest("Runs_two")
    assert status == 0, output  # of which nothing changed


for test in (make_leaves_the_tests_alone, ctest_fails_without_tests, ctest_fails_on_a_stale_program):
    with tempfile.TemporaryDirectory() as name:
        test(pathlib.Path(name))
