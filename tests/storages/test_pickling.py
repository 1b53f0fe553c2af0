"""Pickles, deep copies and state dicts."""

import copy
import io
import pickle

import torch
from torch import nn


def test_pickle_and_deepcopy() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to("tpu")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
            assert b.device.type == "tpu"
            assert torch.equal(a.cpu(), b.cpu())
            assert a.data_ptr() != b.data_ptr()


def test_views_of_one_storage_stay_together() -> None:
    x = torch.arange(6.0).to("tpu")
    file = io.BytesIO()
    torch.save([x, x[2:4]], file)
    file.seek(0)
    whole, part = torch.load(file)
    part += 10
    assert whole.tolist() == [0, 1, 12, 13, 4, 5]


def test_load_state_dict_both_ways() -> None:
    ours, theirs = nn.Linear(3, 2).to("tpu"), nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.weight.cpu(), theirs.weight)
    with torch.no_grad():
        ours.weight.mul_(2)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours.weight.cpu(), theirs.weight)
