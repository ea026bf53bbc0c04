"""docs/python.md does what it says, and the package is typed."""
import ast
import contextlib
import enum
import inspect
import io
import pathlib
import re
import unittest

import weft
from support import MODEL, ROOT, TestCase


def run(document):
    """What the document's examples print, which are run one after another."""
    text = (ROOT / document).read_text()
    names, said = {"MODEL": MODEL}, io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.chdir(ROOT):
        for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            line = text.count("\n", 0, match.start(1))
            exec(compile("\n" * line + match[1], document, "exec"), names)
    return text, said


class Docs(TestCase):
    def test_variants(self):
        text, said = run("docs/variants.md")
        self.assertTrue("```\n" + said.getvalue().rstrip() + "\n```" in text, said.getvalue())

    def test_python(self):
        text, said = run("docs/python.md")
        self.assertIn("(5, 8, 64) (5, 8)", said.getvalue())
        self.assertIn("head_dim_qk = 60", said.getvalue())
        self.assertLessEqual(len(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1].splitlines()), 10)

    def test_sparse(self):
        run("docs/sparse.md")

    def test_tables_of_both_languages(self):
        """What their last columns call exists."""
        for document, modules, least in (("docs/sparse.md", (weft.sparse, weft), 20),
                                         ("docs/variants.md", (weft, weft.variants), 6)):
            called, last = [], ""
            for line in (ROOT / document).read_text().splitlines():
                cells = [cell.strip() for cell in line.strip("|").split(" | ")]
                last = cells[-1].strip(" |") if line.startswith("|") and not last else last
                last = last if line.startswith("|") else ""
                if last == "In Python":
                    called += re.findall(r'(?<![\w."])(\w+)\(', cells[-1])
            missing = [name for name in called if not any(hasattr(module, name) for module in modules)]
            self.assertEqual(missing, [], document)
            self.assertGreater(len(called), least, document)

    def test_names_in_the_document_exist(self):
        text = (ROOT / "docs/python.md").read_text()
        for name in re.findall(r"\bweft((?:\.\w+)+)", text):
            if name.startswith((".torch", ".flashinfer", ".transformers")):  # tests with torch
                continue
            found = weft
            for part in name[1:].split("."):
                found = getattr(found, part)

    def test_stubs_name_what_the_module_has(self):
        folder = pathlib.Path(weft._weft.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        stub = ast.parse((folder / "_weft/__init__.pyi").read_text())
        named = {node.name for node in ast.walk(stub) if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        missing = [name for name in vars(weft._weft)
                   if not name.startswith("_") and callable(getattr(weft._weft, name)) and name not in named]
        self.assertEqual(missing, [])
        for name in ("AttentionSpec", "Error", "TensorView", "build", "attend"):
            self.assertIn(name, named)

    def test_everything_public_is_documented(self):
        def says(found):
            """The docstring without the signature that nanobind begins it with."""
            text = (found.__doc__ or "").strip()
            return text.partition("\n")[2].strip() if type(found).__name__ in ("nb_func", "nb_method") else text

        bare = []
        for module in (weft, weft.jit, weft.serve, weft.sparse, weft.variants):
            for name in module.__all__:
                found = getattr(module, name)
                if not callable(found):
                    continue
                if not says(found):
                    bare.append(f"{module.__name__}.{name}")
                members = vars(found) if inspect.isclass(found) and not issubclass(found, enum.Enum) else {}
                bare += [f"{module.__name__}.{name}.{member}" for member, value in members.items()
                         if not member.startswith("_") and callable(value) and not says(value)]
        self.assertEqual(bare, [])


if __name__ == "__main__":
    unittest.main()
