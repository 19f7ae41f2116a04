"""The drawings of CONTRIBUTING.md are what the source does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.layers.pages import PACKAGE
from tests.layers.picture import Message, Step, calls, messages, rooms, steps

Definition = ast.FunctionDef | ast.ClassDef
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
CLASSES = {node.name: node for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)}


def names(node: ast.AST) -> set[str]:
    """Every name that is used or defined in a piece of source."""
    found = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    return found


def definition(path: Path, name: str) -> Definition:
    """The function, class or method of a file; a method is named alone or after its class."""
    owner, _, last = name.rpartition(".")
    inside = ast.walk(TREES[path]) if not owner else ast.walk(definition(path, owner))
    found = [node for node in inside if isinstance(node, Definition) and node.name == last]
    assert found, f"{path.name} does not define {name}"
    return found[0]


def mentions(step: Step) -> set[str]:
    """The names in the function of a step, in the qualified name, and in the fields of the class it returns."""
    node = definition(PACKAGE / step.path, step.function)
    found = names(node) | set(step.function.split("."))
    returned = names(node.returns) if isinstance(node, ast.FunctionDef) and node.returns else set()
    for name in returned & CLASSES.keys():
        found |= {part for field in CLASSES[name].body if isinstance(field, ast.AnnAssign) for part in names(field)}
    return found


def handed_over(before: Step, after: Step) -> bool:
    """Whether the second function takes what the first one made, or a third one calls both."""
    if not before.function:  # a file of rows
        return True
    if before.thing in CLASSES:
        made_by = before.function.rpartition(".")[2]
        return before.thing in mentions(after) or made_by in mentions(after)
    if "." in before.thing:  # a file: the reader knows its name
        return before.thing in (PACKAGE / after.path).read_text(encoding="utf-8")
    both = {before.function.rpartition(".")[2], after.function.rpartition(".")[2]}
    return any(both <= names(tree) for tree in TREES.values())


def types(call: str) -> tuple[set[str], set[str]]:
    """Names in the types a method takes, and in the type it returns."""
    owner, _, method = call.partition(".")
    (node,) = [part for part in CLASSES[owner].body if isinstance(part, ast.FunctionDef) and part.name == method]
    takes: set[str] = set()
    for argument in node.args.args:
        if argument.annotation is not None:
            takes |= names(argument.annotation)
    return takes, names(node.returns) if node.returns else set()


def called(folder: Path) -> Iterator[str]:
    """Methods that the files of a folder call."""
    for path in folder.glob("*.py"):
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield node.func.attr


def test_the_rooms_are_the_folders() -> None:
    drawn = [name for place in rooms() for name in sorted(place)]
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(drawn) == sorted(there - {"__init__", "__main__"})


@pytest.mark.parametrize("step", steps()[1:], ids=lambda step: step.thing)
def test_a_step_makes_what_it_says(step: Step) -> None:
    made = mentions(step)
    if step.thing[0].isupper():
        assert step.thing in CLASSES
        assert step.thing in made, f"{step.function} does not make {step.thing}"


@pytest.mark.parametrize(("before", "after"), list(pairwise(steps())), ids=lambda step: step.thing)
def test_steps_follow_each_other(before: Step, after: Step) -> None:
    assert handed_over(before, after), f"{after.path}: {after.function} does not take what {before.function} made"


def test_unrelated_steps_are_told_apart() -> None:
    by_name = {step.thing: step for step in steps()}
    assert not handed_over(by_name["Split"], by_name["Inbox"])
    assert not handed_over(by_name["summary.json"], by_name["Ranks"])


@pytest.mark.parametrize("call", calls())
def test_the_calls_of_a_round_are_made(call: str) -> None:
    owner, _, method = call.partition(".")
    assert owner in CLASSES
    assert method in {node.name for node in CLASSES[owner].body if isinstance(node, ast.FunctionDef)}
    assert method in set(called(PACKAGE / "engine")), f"no engine calls {call}"


def test_the_loop_calls_the_first_step_and_the_last() -> None:
    first, *between, last = [call.partition(".")[2] for call in calls()]
    loop = names(definition(PACKAGE / "engine" / "run.py", "run"))
    assert {first, last} <= loop
    assert not loop & set(between)


@pytest.mark.parametrize("message", messages(), ids=lambda message: message.carries)
def test_a_message_is_what_both_ends_say(message: Message) -> None:
    assert message.carries in types(message.sender)[1], f"{message.sender} does not return {message.carries}"
    assert message.carries in types(message.receiver)[0], f"{message.receiver} does not take {message.carries}"
