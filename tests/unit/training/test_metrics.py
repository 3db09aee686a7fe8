import pytest
import torch

from accelerate.training.metrics import truncate, truncate_full


def test_rows_are_cut_and_values_are_not():
    gathered = {"rows": torch.arange(8), "loss": torch.arange(2)}
    cut = truncate(gathered, {"rows": torch.arange(4), "loss": torch.tensor(0)}, 5)
    assert (cut["rows"].tolist(), cut["loss"].tolist()) == ([0, 1, 2, 3, 4], [0, 1])


def test_objects_are_cut_and_a_single_one_a_rank_is_not():
    assert truncate(["a", "b", "c", "d"], ["a", "b"], 3) == ["a", "b", "c"]
    assert truncate([{"n": 1}, {"n": 2}], {"n": 1}, 1) == [{"n": 1}, {"n": 2}]
    assert truncate(["a"], [], 3) == ["a"]


@pytest.mark.parametrize("remainder", [0, -1])
def test_a_full_or_unknown_last_batch_is_kept(remainder):
    rows = torch.arange(4)
    assert truncate(rows, rows[:2], remainder) is truncate_full(rows, 4, remainder) is rows


@pytest.mark.parametrize(
    ("num_rows", "kept"),
    [(4, 3), (3, 3), (11, 11), (1, 1)],
    ids=["a repeated mean", "the samples themselves", "all samples of an epoch", "one value"],
)
def test_one_process_cuts_what_was_repeated_for_a_full_batch(num_rows, kept):
    data = {"x": torch.arange(num_rows), "mean": torch.tensor(1.0), "text": "abcd"}
    cut = truncate_full(data, 4, 3)
    assert cut["x"].tolist() == list(range(kept))
    assert (cut["mean"].item(), cut["text"]) == (1.0, "abcd")
    names = [f"name {row}" for row in range(num_rows)]
    assert truncate_full(names, 4, 3) == names[:kept]
    assert truncate_full(torch.arange(num_rows), 4, 3).tolist() == list(range(kept))


def test_a_batch_of_unknown_size_is_left_alone():
    assert truncate_full(torch.arange(4), None, 3).tolist() == [0, 1, 2, 3]
