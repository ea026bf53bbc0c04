#!/usr/bin/env python3
"""Checks that no class of FOLDERS has more than 20 member functions, or more than two flags: beyond that it is several things.

Constructors, destructors and assignments do not count; nested classes count by themselves. A flag is a member of type bool;
where several describe a thing and choose no other algorithm, FLAGS names the class and says what they describe. LARGER names
the classes that are several things today, with how many functions they have: they may shrink, not grow.
--self-test shows that each rule can fail.
"""
import pathlib
import re
import sys
import tempfile

FOLDERS = ("src/attention", "src/decode", "src/loop", "src/serve")
MOST, MOST_FLAGS = 20, 2
FLAGS = {"KernelTraits": "a kernel, as its backend states it",
         "Reading": "what was read of a declaration so far, in the order of its parts",
         "Stmt": "what a loop or a store is, as the program's text says",
         "ApiRequest": "what a client asked for",
         "ApiAnswer": "what a client asked for",
         "Generation": "how far an answer is",
         "RequestState": "how far a request is",
         "Session": "how far a connection is",
         "Server::Impl": "which calls to the system are under way"}
LARGER = {"CFamily": 45, "Engine::Impl": 26, "Session": 25, "PrefixCache": 26, "Scheduler": 25, "Sequences": 22}
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
CLASS = re.compile(r"(?<!enum )\b(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?([\w:]+)[^;{}()=,]*(?::[^;{}()]*)?\{")
TEMPLATE = re.compile(r"\btemplate\s*<(?:[^<>]|<[^<>]*>)*>")
CALL = re.compile(r"\b(?:alignas|decltype|noexcept|requires|static_assert)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
ANGLES = re.compile(r"<[^<>]*>")
OTHER = re.compile(r"(?:using|typedef|friend|enum|class|struct|union)\b")
FLAG = re.compile(r"(?:(?:const|mutable)\s+)*bool\s+(?!operator\b)(\w+\s*(?:=[^,]*)?(?:,\s*\w+\s*(?:=[^,]*)?)*)$")
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


def flag_names(declaration):
    """Of a declaration up to its semicolon: its members of type bool."""
    text = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)*", "", declaration).strip()
    match = FLAG.match(text)
    return [re.match(r"\w+", each.strip())[0] for each in match[1].split(",")] if match else []


def members(text, at):
    """Names of the member functions and of the flags of the class whose body begins at `at`."""
    names, flags, declaration, braces, parentheses = [], [], "", 0, 0
    while braces >= 0 and at < len(text):
        c = text[at]
        at += 1
        if braces == 0:
            parentheses += (c == "(") - (c == ")")
            if (c == "{" and parentheses == 0) or (c == ";" and parentheses == 0):
                name = function_name(declaration)
                if name:
                    names.append(name)
                elif c == ";":
                    flags += flag_names(declaration)
                # Braces that are no body initialise something, or are a nested class.
                declaration = "" if name or c == ";" or not declaration.strip() else declaration + "= "
            else:
                declaration += c
        braces += (c == "{") - (c == "}")
    return names, flags


def classes(text):
    text = blanked(TEMPLATE, blanked(DIRECTIVE, blanked(NO_CODE, text)))
    for match in CLASS.finditer(text):
        name = match[1].split("::")[-1]
        names, flags = members(text, match.end())
        own = [f for f in names if f.strip("~") != name and not re.fullmatch(r"operator\s*=", f)]
        yield match[1], text.count("\n", 0, match.start()) + 1, own, flags


def problems(root):
    found = []
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        for name, line, own, flags in classes(path.read_text()):
            where = f"{path.relative_to(root)}:{line}: {name}"
            most = LARGER.get(name, MOST)
            if len(own) > most:
                found.append(f"{where} has {len(own)} member functions; at most {most}: {', '.join(own)}")
            elif name in LARGER and len(own) < most:
                found.append(f"{where} has {len(own)} member functions: LARGER still allows {most}")
            if len(flags) > MOST_FLAGS and name not in FLAGS:
                found.append(f"{where} has {len(flags)} flags; at most {MOST_FLAGS}: {', '.join(flags)}; what they switch is "
                             "several things")
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
        found = {c: " ".join(own) for c, _, own, _ in classes(text)}
        if found != expected:
            failed += 1
            print(f"self-test '{name}': {found}")
    flags = {  # body, the flags that are counted
        "bool a; const bool b = f(1); mutable bool c_{true};": "a b c_",
        "bool a = true, b = false;": "a b",
        "public: bool a;\nprivate:\n bool b = true;": "a b",
        "static constexpr bool kA = true; bool f(int); bool operator==(const A&) const = default; std::vector<bool> v;": "",
        "bool f() const { bool a; return a; } bool b;": "b",
        "bool* a; bool (*call)(bool) = nullptr; using B = bool;": "",
    }
    for body, expected in flags.items():
        found = [" ".join(own) for _, _, _, own in classes("struct A {\n" + body + "\n};\n")]
        if found != [expected]:
            failed += 1
            print(f"self-test '{body}': {found}")
    for name, count in (("A", MOST_FLAGS), ("A", MOST_FLAGS + 1), (next(iter(FLAGS)), MOST_FLAGS + 1)):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / FOLDERS[0] / "cuda/a.h"
            file.parent.mkdir(parents=True)
            file.write_text(f"struct {name} {{\n" + "".join(f"  bool f{i} = false;\n" for i in range(count)) + "};\n")
            if len(problems(pathlib.Path(folder))) != (count > MOST_FLAGS and name not in FLAGS):
                failed += 1
                print(f"self-test of {name} with {count} flags")
    larger, limit = next(iter(LARGER.items()))
    for name, count, wrong in (("A", MOST, 0), ("A", MOST + 1, 1), (larger, limit - 1, 1), (larger, limit, 0), (larger, limit + 1, 1)):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / FOLDERS[-1] / "cuda/a.h"
            file.parent.mkdir(parents=True)
            file.write_text(f"struct {name} {{\n  {name}();\n" + "".join(f"  void f{i}();\n" for i in range(count)) + "};\n")
            if len(problems(pathlib.Path(folder))) != wrong:
                failed += 1
                print(f"self-test of {name} with {count} functions")
    return failed


def main():
    if "--self-test" in sys.argv:
        return 1 if self_test() else 0
    found = problems(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
