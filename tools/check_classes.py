#!/usr/bin/env python3
"""Checks that no class below src/attention/ has more than 20 member functions: beyond that it is several things.

Constructors, destructors and assignments do not count; nested classes count by themselves.
--self-test shows that the rule can fail.
"""
import pathlib
import re
import sys
import tempfile

FOLDER, MOST = "src/attention", 20
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
CLASS = re.compile(r"(?<!enum )\b(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?([\w:]+)[^;{}()=,]*(?::[^;{}()]*)?\{")
TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>]|<[^<>]*>)*>")
CALL = re.compile(r"\b(?:alignas|decltype|noexcept|requires|static_assert)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
ANGLES = re.compile(r"<[^<>]*>")
OTHER = re.compile(r"(?:using|typedef|friend|enum|class|struct|union)\b")
FUNCTION = re.compile(r"[^=(]*?(operator\s*(?:\(\)|[^\s(]+)|~?\w+)\s*\((?!\s*\*)")


def blanked(pattern, text):
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def function_name(declaration):
    """Of a declaration up to its body or semicolon; None: it declares no function."""
    text = CALL.sub("", declaration)
    while (without := ANGLES.sub("", text)) != text:
        text = without
    text = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)*", "", text)
    match = None if OTHER.match(text) else FUNCTION.match(text)
    return match and match[1]


def functions(text, at):
    """Names of the member functions of the class whose body begins at `at`."""
    names, declaration, braces, parentheses = [], "", 0, 0
    while braces >= 0 and at < len(text):
        c = text[at]
        at += 1
        if braces == 0:
            parentheses += (c == "(") - (c == ")")
            if (c == "{" and parentheses == 0) or (c == ";" and parentheses == 0):
                name = function_name(declaration)
                if name:
                    names.append(name)
                # Braces that are no body initialise something, or are a nested class.
                declaration = "" if name or c == ";" or not declaration.strip() else declaration + "= "
            else:
                declaration += c
        braces += (c == "{") - (c == "}")
    return names


def classes(text):
    text = blanked(TEMPLATE, blanked(DIRECTIVE, blanked(NO_CODE, text)))
    for match in CLASS.finditer(text):
        name = match[1].split("::")[-1]
        own = [f for f in functions(text, match.end()) if f.strip("~") != name and not re.fullmatch(r"operator\s*=", f)]
        yield match[1], text.count("\n", 0, match.start()) + 1, own


def problems(root):
    found = []
    for path in sorted((root / FOLDER).rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        for name, line, own in classes(path.read_text()):
            if len(own) > MOST:
                found.append(f"{path.relative_to(root)}:{line}: {name} has {len(own)} member functions; at most {MOST}: "
                             f"{', '.join(own)}")
    return found


def self_test():
    cases = {  # text, the classes with the functions that are counted
        "declared": ("class A {\n public:\n  void f();\n  int g() const { return h(1); }\n};", {"A": "f g"}),
        "template": ("template <class T, int kN = 2>\nstruct A {\n  template <class U> void f(U u) { g<U>({u}); }\n};", {"A": "f"}),
        "special": ("struct A {\n  A();\n  explicit A(int i) : i_(i), j_{i} {}\n  ~A();\n  A& operator=(const A&) = delete;\n"
                    "  bool operator==(const A&) const = default;\n  void f();\n};", {"A": "operator== f"}),
        "data": ("struct A {\n  int i = f(1), j{2};\n  void (*call)(int) = nullptr;\n  std::function<void(int)> g;\n"
                 "  static_assert(sizeof(int) == 4);\n  using F = void(int);\n  alignas(16) float x[4] = {};\n};", {"A": ""}),
        "nested": ("class A : public B<int>, C {\n  struct D {\n    void f();\n  } d;\n  void g() override;\n};", {"A": "g", "D": "f"}),
        "no code": ("struct A {\n  // void f();\n#define G void g();\n  const char* s = \"void h();\";\n};", {"A": ""}),
        "enum": ("enum class A { b, c };\n", {}),
    }
    failed = 0
    for name, (text, expected) in cases.items():
        found = {c: " ".join(own) for c, _, own in classes(text)}
        if found != expected:
            failed += 1
            print(f"self-test '{name}': {found}")
    for count in (MOST, MOST + 1):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / FOLDER / "cuda/a.h"
            file.parent.mkdir(parents=True)
            file.write_text("struct A {\n  A();\n" + "".join(f"  void f{i}();\n" for i in range(count)) + "};\n")
            if len(problems(pathlib.Path(folder))) != (count > MOST):
                failed += 1
                print(f"self-test of {count} functions")
    return failed


def main():
    if "--self-test" in sys.argv:
        return 1 if self_test() else 0
    found = problems(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
