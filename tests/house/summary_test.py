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
<testcase name="a_card" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>card_test.cpp:9: Skipped
needs a model: make test-model fetches it
</system-out></testcase>
{more}
</testsuite>"""
FAILING = '<testcase name="B.Fails" status="fail"><failure message="wrong"/></testcase>'


def suite(failing="", more=""):
    return SUITE.format(failing=failing, more=more)


def summary(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (pathlib.Path(folder) / name).write_text(text)
        done = subprocess.run([sys.executable, sys.argv[1], folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()


steps = "layers\tpassed\t1\nrelease-build\tpassed\t9\nrelease-tests\t{}\t9\n"
status, lines = summary({"release.xml": suite(), "steps.tsv": steps.format("passed")})
assert status == 0, lines
assert lines[-1] == "3 passed, 0 failed, 2 skipped", lines  # one test, two steps without tests
assert any(line.startswith("cubins ") and " 7 made" in line for line in lines), lines
assert "skipped: release: C.Skipped (no such machine)" in lines, lines
assert "skipped: release: a_card (needs a model: make test-model fetches it)" in lines, lines

silent = ('<testcase name="D.Disabled" status="disabled"/>'
          '<testcase name="E.Silent" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
          '<testcase name="F.Waits" status="notrun"><skipped message="Fixture dependency failed"/></testcase>')
status, lines = summary({"release.xml": suite(more=silent), "steps.tsv": steps.format("passed")})
assert status == 1 and lines[-1] == "3 passed, 2 failed, 3 skipped", lines
assert "failed: release: D.Disabled (skipped without a reason)" in lines, lines
assert "failed: release: E.Silent (skipped without a reason)" in lines, lines
assert "skipped: release: F.Waits (Fixture dependency failed)" in lines, lines

status, lines = summary({"release.xml": suite(FAILING), "steps.tsv": steps.format("failed")})
assert status == 1 and lines[-1] == "3 passed, 1 failed, 2 skipped", lines
assert "failed: release: B.Fails" in lines, lines

stale = '<testcase name="build.b_test" status="fail"><failure message="stale"/></testcase>'
status, lines = summary({"release.xml": suite(stale), "steps.tsv": steps.format("failed")})
assert status == 1 and "failed: release: build.b_test" in lines, lines

status, lines = summary({"steps.tsv": "asan-build\tfailed\t3\n"})
assert status == 1 and lines[-1] == "0 passed, 1 failed, 0 skipped", lines

status, lines = summary({"release.xml": suite(), "steps.tsv": "release-tests\tfailed\t3\n"})
assert status == 1 and lines[-1] == "1 passed, 1 failed, 2 skipped", lines  # ended badly without a failed test

cubins = suite().replace("cubins made: 7", "cubins made: {}")
for made in (200, 201):
    status, lines = summary({"release.xml": cubins.format(made - 7), "asan.xml": suite()})
    assert status == (made > 200) and lines[-1] == f"2 passed, {made - 200} failed, 4 skipped", lines
assert "failed: 201 cubins are made, more than 200" in lines, lines

status, lines = summary({})
assert status == 1, lines  # nothing ran
