"""The message of ranks that do not agree, from their reports."""

from dataclasses import replace

import torch

from accelerate.runtime.disagreement import MOST_SHOWN, Report, disagreement, leaves_in_words

ALIKE = Report(
    label="gather", number=7, site="train.py:88", leaves={"['a']": "float32 (2,)", "['b']": "int8 ()"}
)


def test_a_report_survives_its_journey():
    report = replace(ALIKE, problem="no", history={6: "gather at train.py:80"})
    assert Report.decode(report.encode()) == report


def test_leaves_in_words():
    ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    data = {
        "a": [torch.ones(2, 0), torch.ones((), dtype=torch.complex64, device="meta")],
        "b": None,
        3: ragged,
    }
    assert leaves_in_words(data) == {
        "['a'][0]": "float32 (2, 0)",
        "['a'][1]": "complex64 () on meta",
        "['b']": "NoneType",
        "[3]": "float32, nested",
    }
    assert leaves_in_words(torch.ones(1)) == {"": "float32 (1,)"}


def test_ranks_with_one_report_share_a_line():
    other = replace(ALIKE, leaves={"['a']": "float32 (3,)", "['b']": "int8 ()"})
    lines = disagreement([([0, 1, 2, 5], ALIKE), ([3, 4], other)]).splitlines()
    assert lines[1:5] == [
        "  ranks 0-2, 5: gather number 7 at train.py:88",
        "      ['a'] float32 (2,)",
        "  ranks 3-4: gather number 7 at train.py:88",
        "      ['a'] float32 (3,)",
    ]
    assert "pad_across_processes" in lines[-1]


def test_different_calls_show_all_that_they_were_given():
    other = replace(ALIKE, label="reduce(reduction='sum')", site="train.py:90")
    text = disagreement([([0], ALIKE), ([1], other)])
    assert text.count("['a'] float32 (2,)") == text.count("['b'] int8 ()") == 2
    assert "same calls in the same order" in text
    assert "pad_across_processes" not in text


def test_a_problem_stands_in_place_of_tensors():
    text = disagreement([([0], ALIKE), ([1], replace(ALIKE, problem="it is sparse", leaves={}))])
    assert "cannot take part: it is sparse" in text
    assert "is missing" not in text


def test_many_differences_are_counted():
    leaves = {f"[{index}]": "int8 ()" for index in range(MOST_SHOWN + 3)}
    text = disagreement([([0], replace(ALIKE, leaves=leaves)), ([1], replace(ALIKE, leaves={}))])
    assert text.count("is missing") == MOST_SHOWN
    assert "3 more such tensors" in text


def test_the_first_call_at_different_places_is_named():
    history = {number: f"gather at train.py:{number}" for number in range(1, 8)}
    astray = history | {3: "gather at log.py:5", 4: "gather at train.py:3"}
    third = history | {3: "gather at log.py:6"}
    reports = [
        ([0], replace(ALIKE, history=history)),
        ([1, 2], replace(ALIKE, label="reduce", history=astray)),
        ([3], replace(ALIKE, history=third)),
    ]
    assert (
        "for the first time in call 3: rank 0 in gather at train.py:3, "
        "ranks 1-2 in gather at log.py:5, rank 3 in gather at log.py:6."
    ) in disagreement(reports)
    two_that_agree = [reports[0], ([1], replace(ALIKE, label="reduce", history=history))]
    assert "at different places" not in disagreement(two_that_agree)
    only_now = history | {7: "reduce at train.py:9"}
    assert "at different places" not in disagreement([reports[0], ([1], replace(ALIKE, history=only_now))])


def test_ranks_at_one_place_before_are_named_together():
    reports = [
        ([0], replace(ALIKE, history={1: "gather at a.py:1"})),
        ([1], replace(ALIKE, history={1: "gather at a.py:2"}, label="reduce")),
        ([2], replace(ALIKE, history={1: "gather at a.py:1"}, label="reduce")),
    ]
    assert "call 1: ranks 0, 2 in gather at a.py:1, rank 1 in gather at a.py:2." in disagreement(reports)
