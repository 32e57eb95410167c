"""Write the lectures and the assignment as notebooks:

    python course/notebooks.py                          course/notebooks/*.ipynb, for students
    python course/notebooks.py --teach DIR --seed 7     DIR/source, for nbgrader: with solutions and hidden tests

A notebook has the cells of a Python file (see exercises.py), without output. Its first cells install regard and write
exercises.py, so that it needs nothing else. In assignment.py the mark of a cell also says its role:

    # %% answer NAME                    students write this cell; what is between ### BEGIN SOLUTION and ### END SOLUTION is removed
    # %% test NAME POINTS               graded by running it; ### BEGIN HIDDEN TESTS to ### END HIDDEN TESTS is removed
    # %% [markdown] answer NAME POINTS  a text that a person grades
"""  # noqa: E501

import argparse
import ast
import re
import runpy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from exercises import EXERCISES, Function, cells
from nbformat import v4

COURSE = Path(__file__).resolve().parent
LECTURES = sorted(COURSE.glob("[0-9]_*.py"))
HIDDEN_CASES = 3  # of every exercise
_SOLUTION = re.compile(r"^( *)### BEGIN SOLUTION\n.*?### END SOLUTION$", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"\n### BEGIN HIDDEN TESTS\n.*?### END HIDDEN TESTS", re.DOTALL)
_MARK = re.compile(r"# %% (\[markdown\] )?(answer|test) (\S+) ?(\d*)")
_STUB = r"\1# Replace the next line by your code.\n\1raise NotImplementedError"


def code(source: str, **metadata: Any) -> Any:
    return v4.new_code_cell(source, metadata=metadata)


def graded(role: str, name: str, points: str) -> dict[str, Any]:
    """The metadata by which nbgrader knows a cell that students write (`answer`) or that gives points (`test`)."""
    known = {"grade_id": name if points else f"{name}-answer", "schema_version": 3, "task": False}
    worth = {"points": int(points)} if points else {}
    answer = role == "answer"
    return {"nbgrader": {"grade": bool(points), "solution": answer, "locked": not answer, **known, **worth}}


def notebook(body: Iterable[Any]) -> str:
    """A notebook of these cells, as text; nothing in it depends on when or where it was written."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = v4.new_notebook(cells=list(body), metadata={"kernelspec": kernel, "language_info": {"name": "python"}})
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"
    nbformat.validate(made)
    return nbformat.writes(made)


def preamble() -> list[Any]:
    """Cells that install regard and write exercises.py beside the notebook."""
    shared = (COURSE / "exercises.py").read_text(encoding="utf-8")
    hidden = {"jupyter": {"source_hidden": True}, "cellView": "form", "tags": ["hide-input"]}
    return [code("%pip install --quiet regard"), code(f"%%writefile exercises.py\n{shared.rstrip()}", **hidden)]


def converted(script: str) -> Iterator[Any]:
    """The cells of a file, each with its role if it has one."""
    lines = script.split("\n")
    for text, body, line in cells(script):
        role = _MARK.match(lines[line - 1])
        metadata = graded(*role.groups()[1:]) if role else {}
        yield (v4.new_markdown_cell if text else v4.new_code_cell)(body, metadata=metadata)


def students(script: str) -> str:
    """The file without solutions and hidden tests."""
    return _HIDDEN.sub("", _SOLUTION.sub(_STUB, script))


def sheet(seed: int) -> Iterator[Any]:
    """The exercises of all lectures for nbgrader: questions, cells to fill in, and tests drawn with `seed`."""
    yield v4.new_markdown_cell("# Exercises\n\nFunctions get numpy arrays and return one.")
    yield code("import math\n\nimport numpy as np\nfrom exercises import check")
    for lecture in LECTURES:
        question = ""
        for text, body, _ in cells(lecture.read_text(encoding="utf-8")):
            asked = re.search(r"^print\(check\(\"(.+?)\", (\w+)\)\)", body, re.MULTILINE)
            if text:
                question = body[body.find("**") :]
            elif asked:
                number, name = asked.groups()
                known = f"exercise-{number.replace('.', '-')}"  # nbgrader allows no dots
                yield v4.new_markdown_cell(question)
                yield code(solution(number, name), **graded("answer", known, ""))
                yield code(hidden_test(number, name, seed), **graded("test", known, "1"))


def solution(number: str, name: str) -> str:
    """A cell with the answer to an exercise, as nbgrader removes it."""
    tree = ast.parse((COURSE / "answers.py").read_text(encoding="utf-8"))
    (answers,) = (one.value for one in tree.body if isinstance(one, ast.Assign) and one.targets[0].id == "ANSWERS")
    value = dict(zip((key.value for key in answers.keys), answers.values, strict=True))[number]
    if isinstance(value, ast.Name):
        (found,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == value.id)
        written = [ast.unparse(line) for line in found.body[1:]]  # after the docstring
    elif isinstance(value, ast.Lambda):
        written = [f"return {ast.unparse(value.body)}"]
    else:
        return f"### BEGIN SOLUTION\n{name} = {ast.unparse(value)}\n### END SOLUTION"
    body = "\n".join(["### BEGIN SOLUTION", *written, "### END SOLUTION"])
    indented = "\n".join(f"    {line}" for line in body.split("\n"))
    return f"def {name}({', '.join(EXERCISES[number].names)}):\n{indented}"


def hidden_test(number: str, name: str, seed: int) -> str:
    """The check that students see, and hidden cases: inputs drawn with `seed`, and the results of the right answer."""
    teacher = runpy.run_path(str(COURSE / "answers.py"))
    lines = [f'assert check("{number}", {name}).right, check("{number}", {name})', "### BEGIN HIDDEN TESTS"]
    if isinstance(EXERCISES[number], Function):
        for case in range(HIDDEN_CASES):
            draw = np.random.default_rng([seed, case, *map(ord, number)])
            inputs = teacher["INPUTS"][number](draw)
            result = np.asarray(teacher["ANSWERS"][number](*inputs)).tolist()
            given = ", ".join(
                f"np.array({one.tolist()})" if isinstance(one, np.ndarray) else repr(one) for one in inputs
            )
            lines.append(f"np.testing.assert_allclose({name}({given}), {result}, atol=1e-6)")
    else:
        lines.append(f"np.testing.assert_allclose({name}, {teacher['ANSWERS'][number]}, rtol=1e-3)")
    return "\n".join([*lines, "### END HIDDEN TESTS"])


def student_notebooks() -> dict[str, str]:
    """The name and text of every notebook for students."""
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in [*LECTURES, COURSE / "assignment.py"]}
    return {f"{name}.ipynb": notebook([*preamble(), *converted(students(text))]) for name, text in scripts.items()}


def teach(folder: Path, seed: int) -> None:
    """Write the source of both graded notebooks, as nbgrader expects it."""
    assignment = (COURSE / "assignment.py").read_text(encoding="utf-8").replace("SEED = 0", f"SEED = {seed}")
    for name, body in {"exercises": sheet(seed), "assignment": converted(assignment)}.items():
        source = folder / "source" / name
        source.mkdir(parents=True, exist_ok=True)
        (source / f"{name}.ipynb").write_text(notebook(body), encoding="utf-8")
        (source / "exercises.py").write_bytes((COURSE / "exercises.py").read_bytes())
    (folder / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")


CONFIG = """c = get_config()  # noqa: F821 - nbgrader defines it
c.CourseDirectory.course_id = "attention"
c.ExecutePreprocessor.timeout = 1800  # seconds for each cell: the longest one trains for a minute on an idle core
c.ExecutePreprocessor.interrupt_on_timeout = True
c.ClearSolutions.code_stub = {"python": "# Replace the next line by your code.\\nraise NotImplementedError"}
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the course as notebooks.")
    parser.add_argument("--teach", type=Path, metavar="DIR", help="write a course folder for nbgrader")
    parser.add_argument("--seed", type=int, help="of the hidden tests; keep it secret")
    options = parser.parse_args()
    if options.teach and options.seed is None:
        parser.error("--teach needs --seed, from which the hidden tests are drawn")
    if options.teach:
        teach(options.teach, options.seed)
    else:
        (COURSE / "notebooks").mkdir(exist_ok=True)
        for name, text in student_notebooks().items():
            (COURSE / "notebooks" / name).write_text(text, encoding="utf-8")
