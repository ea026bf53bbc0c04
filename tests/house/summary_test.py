"""The closing summary counts every outcome, names what failed, and fails when anything did."""
import pathlib
import subprocess
import sys
import tempfile

SUITE = """<?xml version="1.0"?><testsuite name="x" tests="4">
<testcase name="A.Passes" status="run"><system-out>cubins made: 7
</system-out></testcase>
<testcase name="build.a_test" status="run"/>
{failing}
<testcase name="C.Skipped" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN      ] C.Skipped
x_test.cpp:3: Skipped
no such machine
[  SKIPPED ] C.Skipped (0 ms)</system-out></testcase>
<testcase name="D.Disabled" status="disabled"/>
</testsuite>"""
FAILING = '<testcase name="B.Fails" status="fail"><failure message="wrong"/></testcase>'


def summary(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (pathlib.Path(folder) / name).write_text(text)
        done = subprocess.run([sys.executable, sys.argv[1], folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


steps = "layers\tpassed\t1\nrelease-build\tpassed\t9\nrelease-tests\t{}\t9\n"
status, lines = summary({"release.xml": SUITE.format(failing=""), "steps.tsv": steps.format("passed"),
                         "need-model.txt": "Model.Answers\n"})
assert status == 0, lines
assert lines[-1] == "3 passed, 0 failed, 3 skipped", lines  # one test, two steps without tests
assert any(line.startswith("cubins ") and " 7 made" in line for line in lines), lines
assert "1 tests need the model: make test-model" in lines and "skipped: Model.Answers" in lines, lines
assert "skipped: release: C.Skipped (no such machine)" in lines and "skipped: release: D.Disabled" in lines, lines

status, lines = summary({"release.xml": SUITE.format(failing=FAILING), "steps.tsv": steps.format("failed")})
assert status == 1 and lines[-1] == "3 passed, 1 failed, 2 skipped", lines
assert "failed: release: B.Fails" in lines, lines

stale = '<testcase name="build.b_test" status="fail"><failure message="stale"/></testcase>'
status, lines = summary({"release.xml": SUITE.format(failing=stale), "steps.tsv": steps.format("failed")})
assert status == 1 and "failed: release: build.b_test" in lines, lines

status, lines = summary({"steps.tsv": "asan-build\tfailed\t3\n"})
assert status == 1 and lines[-1] == "0 passed, 1 failed, 0 skipped", lines

status, lines = summary({"release.xml": SUITE.format(failing=""), "steps.tsv": "release-tests\tfailed\t3\n"})
assert status == 1 and lines[-1] == "1 passed, 1 failed, 2 skipped", lines  # ended badly without a failed test

cubins = SUITE.format(failing="").replace("cubins made: 7", "cubins made: {}")
for made in (120, 121):
    status, lines = summary({"release.xml": cubins.format(made - 7), "asan.xml": SUITE.format(failing="")})
    assert status == (made > 120) and lines[-1] == f"2 passed, {made - 120} failed, 4 skipped", lines
assert "failed: 121 cubins are made, more than 120" in lines, lines

status, lines = summary({})
assert status == 1, lines  # nothing ran
