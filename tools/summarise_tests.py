#!/usr/bin/env python3
"""Sums up a test run: summarise_tests.py FOLDER.

FOLDER holds CTest's *.xml (JUnit) and steps.tsv (name, passed or failed, seconds). Steps that ran tests are counted by
their tests, all others as one. A test that is skipped gives its reason, or has failed.
The last line is "N passed, N failed, N skipped"; the exit status is 1 when anything failed, or more cubins were made
than a run may take the time for.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

MOST_CUBINS = 200  # each takes a second or more


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def reason(case):
    """Why a test was skipped: as GTEST_SKIP() puts it into the output, or what CTest says of one that it did not start."""
    given = re.search(r": Skipped\n(.+)", case.findtext("system-out") or "")
    if given:
        return given[1]
    if case.get("status") == "disabled":
        return ""
    message = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
    return "" if message.startswith("SKIP_") else message


def summarise(folder):
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    lines, names, cubins = [], {"failed": [], "skipped": []}, 0
    suites = {}
    for file in sorted(folder.glob("*.xml")):
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        for case in ElementTree.parse(file).getroot().iter("testcase"):
            result = outcome(case)
            cubins += sum(map(int, re.findall(r"^cubins made: (\d+)$", case.findtext("system-out") or "", re.MULTILINE)))
            if result == "passed" and case.get("name").startswith("build."):
                continue  # says that a program is built, and tests nothing
            test, why = f"{file.stem}: {case.get('name')}", reason(case) if result == "skipped" else ""
            if result == "skipped" and not why:
                result, why = "failed", "skipped without a reason"
            counts[result] += 1
            if result in names:
                names[result].append(test + (f" ({why})" if why else ""))
        suites[file.stem] = counts
        for key in totals:
            totals[key] += counts[key]
    steps = folder / "steps.tsv"
    for line in steps.read_text().splitlines() if steps.exists() else []:
        name, result, seconds = line.split("\t")
        suite = {"fuzzing": "fuzz"}.get(name, name.removesuffix("-tests"))
        detail = result
        if suite in suites:
            counts = suites[suite]
            detail = ", ".join(f"{counts[key]} {key}" for key in counts)
        if suite not in suites or (result == "failed" and suites[suite]["failed"] == 0):
            totals[result] += 1
            if result == "failed":
                names["failed"].append(name)
                detail = "failed" if suite not in suites else detail + ", and the step itself failed"
        lines.append(f"{name:<20} {detail} ({seconds} s)")
    if cubins:
        lines.append(f"{'cubins':<20} {cubins} made by tests of texts, at most {MOST_CUBINS}")
    if cubins > MOST_CUBINS:
        totals["failed"] += 1
        names["failed"].append(f"{cubins} cubins are made, more than {MOST_CUBINS}")
    return totals, lines, names


def main():
    totals, lines, names = summarise(pathlib.Path(sys.argv[1]))
    print("\n".join(lines))
    for name in names["skipped"]:
        print(f"skipped: {name}")
    for name in names["failed"]:  # at the end, where a log that was cut still has them
        print(f"failed: {name}")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] or not totals["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
