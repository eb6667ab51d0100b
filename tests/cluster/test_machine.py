import pytest

from cluster.machine import resolve_device


@pytest.mark.parametrize(
    ("wanted", "num_gpus", "device"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda"),
    ],
)
def test_the_device_is_what_is_wanted_and_there(wanted, num_gpus, device) -> None:
    assert resolve_device(wanted, num_gpus=num_gpus) == device


def test_cuda_without_a_gpu_is_refused_by_the_name_of_its_setting() -> None:
    with pytest.raises(ValueError, match=r"args\.device in serve_config\.yaml is cuda"):
        resolve_device("cuda", num_gpus=0)
