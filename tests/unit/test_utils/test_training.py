import numpy as np
import pytest
import torch

from accelerate.accelerator import Accelerator
from accelerate.test_utils.training import (
    RegressionDataset,
    RegressionModel,
    mocked_dataloaders,
    mocked_dataloaders_for_autoregressive_models,
)


def test_points_are_the_interfaces() -> None:
    # What accelerate 1.15.0 gives for the same seed.
    data = RegressionDataset(length=4, seed=1)
    np.testing.assert_allclose(data.x, [0.34558418, 0.82161814, 0.33043706, -1.3031572], rtol=1e-6)
    np.testing.assert_allclose(data.y, [3.781704, 4.687874, 3.6071787, 0.4517974], rtol=1e-6)
    assert data[1] == {"x": data.x[1], "y": data.y[1]}
    assert (len(data), data.length, data.x.dtype, data.y.dtype) == (4, 4, np.float32, np.float32)


def test_the_seed_decides() -> None:
    assert (RegressionDataset(seed=3).x == RegressionDataset(seed=3).x).all()
    assert (RegressionDataset().x != RegressionDataset().x).any()


def test_the_model_is_a_line() -> None:
    model = RegressionModel(a=2, b=3, double_output=True)
    assert model(torch.tensor([1.0, 2.0])).tolist() == [5.0, 7.0]
    assert {name: value.dtype for name, value in model.named_parameters()} == {
        "a": torch.float32,
        "b": torch.float32,
    }
    with pytest.raises(TypeError, match="pass the points"):
        model()


def test_loaders_for_classification() -> None:
    train, evaluation = mocked_dataloaders(Accelerator(), batch_size=8)
    assert (len(train), len(evaluation)) == (8, 4)
    for batch in train:
        assert set(batch) == {"input_ids", "token_type_ids", "attention_mask", "labels"}
        ids, mask = batch["input_ids"], batch["attention_mask"]
        assert ids.shape == mask.shape == batch["token_type_ids"].shape
        assert torch.equal(mask == 1, ids != 0)
        assert torch.equal(ids.amax(dim=1) >= 500, batch["labels"] == 1)


def test_loaders_for_continuation() -> None:
    train, evaluation = mocked_dataloaders_for_autoregressive_models(Accelerator())
    (batch, *_) = evaluation
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    kept = batch["attention_mask"] == 1
    assert torch.equal(batch["labels"][kept], batch["input_ids"][kept])
    assert set(batch["labels"][~kept].tolist()) == {-100}
    assert next(iter(train))["input_ids"].shape[0] == 16
