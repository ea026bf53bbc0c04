"""Another build of Weft, and the rows that it and this one are compared by."""
import dataclasses
import itertools
import os
import pathlib
import subprocess

from contestants import CONTESTANTS, other_of

PROGRAMS = ("weft", "weft_contestant")


class NoBuild(Exception):
    """What --against names is no build of Weft; the message says what it lacks."""


def programs_of(build):
    """The folder of its programs: of a build folder, of that folder itself, or of one of the programs."""
    path = pathlib.Path(build).resolve()
    for folder in (path.parent,) if path.is_file() else (path / "bin", path):
        if all((folder / program).is_file() for program in PROGRAMS):
            return folder
    raise NoBuild(f"'{build}' holds no bin/weft with a bin/weft_contestant: make them there with "
                  f"cmake --build {build} --target {' '.join(PROGRAMS)}")


def describe(source):
    """The commit that lies in a folder, "-dirty" where a tracked file differs from it; figures that a run kept do not count.

    Where there is no .git it is what the environment's WEFT_COMMIT says."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=source, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)bench/results")
    return (git("describe", "--always") or os.environ.get("WEFT_COMMIT", "unknown")) + ("-dirty" if changed else "")


def version_of(programs):
    """The commit of the source that a build was configured for; where that is gone, the build folder's name."""
    cache = programs.parent / "CMakeCache.txt"
    lines = cache.read_text().splitlines() if cache.exists() else []
    source = next((line.split("=", 1)[1] for line in lines if line.startswith("CMAKE_HOME_DIRECTORY:")), "")
    return describe(source) if pathlib.Path(source).is_dir() and source else programs.parent.name


def pairs_of(row):
    """The row once for each of Weft's contestants, with the two builds alone: so both run after the same neighbour."""
    for name in row.contestants:
        if other_of(name) in CONTESTANTS:
            yield dataclasses.replace(row, contestants=(name, other_of(name)))


def together(rows):
    """Rows that one run of a program prints are measured at once; any other alone."""
    for _, group in itertools.groupby(rows, key=lambda row: row.fields.get("bench", row.name)):
        yield list(group)


def of_case(row, results):
    """What runs of `weft bench` say about one of the rows that they print."""
    case, own = (row.fields["case"], row.fields["metric"]), {}
    for name, readings in results.items():
        if isinstance(readings, list) and any(case not in reading for reading in readings):
            readings = f"`weft bench {row.fields['bench']}` of this build prints no row '{case[0]}', '{case[1]}'"
        own[name] = ([row.seconds(reading[case]) for reading in readings] if isinstance(readings, list) else readings)
    return own


def measured(group, measure):
    """(row, results) for each pair of each row of the group; `measure(row)` takes the readings of one."""
    for pairs in zip(*map(pairs_of, group)):
        results = measure(pairs[0])
        for pair in pairs:
            yield pair, of_case(pair, results) if "case" in pair.fields else results
