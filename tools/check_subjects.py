#!/usr/bin/env python3
"""Checks that subjects of commits have at most 72 characters.

check_subjects.py [RANGE]: those of the range, origin/main..HEAD if none is given.
check_subjects.py --message FILE: that of a message that is about to be committed, for Git's hook commit-msg.
--self-test shows that the rule can fail.
"""
import pathlib
import subprocess
import sys

MOST = 72


def subject_of(message):
    """As Git takes it: the lines up to the first empty one, without its comments."""
    lines = []
    for line in message.splitlines():
        if line.startswith("#"):
            continue
        if line.strip():
            lines.append(line.strip())
        elif lines:
            break
    return " ".join(lines)


def too_long(subjects):
    return [f"{len(subject)} characters, at most {MOST}: {subject}" for subject in subjects if len(subject) > MOST]


def subjects_of(commits):
    done = subprocess.run(["git", "log", "--no-merges", "--format=%s", commits, "--"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"check_subjects.py: the commits '{commits}' cannot be read; {done.stderr.strip()}")
    return done.stdout.splitlines()


def self_test():
    fits, too_wide = "x" * MOST, "é" + "x" * MOST
    cases = {"fits": (fits, 0), "is too wide": (too_wide, 1), "has a body": (fits + "\n\n" + too_wide, 0),
             "goes on in a second line": (fits + "\ny", 1), "stands under comments": ("\n# " + too_wide + "\n" + fits, 0)}
    wrong = [name for name, (message, count) in cases.items() if len(too_long([subject_of(message)])) != count]
    for name in wrong:
        print(f"self-test: a subject that {name}")
    return len(wrong)


def main():
    if "--self-test" in sys.argv:
        return 1 if self_test() else 0
    if sys.argv[1:2] == ["--message"]:
        subjects = [subject_of(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))]
    else:
        subjects = subjects_of(sys.argv[1] if len(sys.argv) > 1 else "origin/main..HEAD")
    found = too_long(subjects)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
