"""The two lists of exceptions excuse what they name, and nothing that is not there."""

from tests.golden.comparison import Finding
from tests.golden.verdict import Intended, unexpected

GONE = Finding("m.f", "function", "absent")
OTHER = Finding("m.C.g", "(self)", "(self, x=1)")
MORE = Finding("m.C.h", "absent", "method")
DOOR = Finding("accelerate.prepare_pippy", "from accelerate.inference.prepare_pippy", "absent")
MODULES = {"m": {"defined": {"f": {}, "C": {}}}}


def judged(findings, later=(), intended=()):
    return unexpected(findings, {"work": later}, intended, MODULES)


def test_a_difference_without_an_entry_is_told():
    (message,) = judged([OTHER])
    assert message.startswith("m.C.g\n    there: (self)\n    here:  (self, x=1)\n")


def test_later_work_excuses_an_object_its_members_and_its_doors():
    assert judged([GONE], ["m.f"]) == []
    assert judged([DOOR, Finding("accelerate.inference.prepare_pippy", "f", "absent")], [DOOR.path]) != []
    assert (
        judged(
            [DOOR, Finding("accelerate.inference.prepare_pippy", "f", "absent")],
            ["accelerate.inference.prepare_pippy"],
        )
        == []
    )


def test_a_reason_excuses_exactly_what_it_names():
    assert judged([OTHER], intended=[Intended("m.C.g", "(self, x=1)")]) == []
    assert judged([MORE], intended=[Intended("m.C.h")]) == []
    assert len(judged([OTHER], intended=[Intended("m.C.g", "(self, x=2)")])) == 1
    assert len(judged([OTHER], intended=[Intended("m.C.g")])) == 1
    assert len(judged([GONE], intended=[Intended("m.f")])) == 1


def test_an_entry_that_nothing_needs_is_told():
    assert judged([], ["m.f"]) == ["m.f is as it should be: take it off tests/golden/later.py"]
    assert judged([], intended=[Intended("m.f")]) == [
        "m.f does not differ: take it off docs/differences.yaml"
    ]
    # A class that has arrived, with a fault in a member: the class is no excuse any more.
    assert judged([OTHER], ["m.C"]) == ["m.C is as it should be: take it off tests/golden/later.py"]


def test_a_module_is_an_excuse_while_all_of_it_is_absent():
    both = [GONE, Finding("m.C", "class", "absent")]
    assert judged(both, ["m"]) == []
    assert judged([GONE], ["m"]) == ["m: m.C exist: list in tests/golden/later.py what is still absent"]
    assert judged([], ["m"]) == ["m is as it should be: take it off tests/golden/later.py"]


def test_one_list_is_enough():
    assert judged([OTHER], ["m.C.g"], [Intended("m.C.g", "(self, x=1)")]) == ["m.C.g is listed twice"]
