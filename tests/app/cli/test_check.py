"""`reelserve check` names what Serve would ignore in silence."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from app.cli import app
from app.cli.check import DEPLOYMENTS, problems

GOOD = """
http_options:
  host: 127.0.0.1
controller_options:
  runtime_env:
    env_vars: {RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS: "1"}
applications:
  - name: reelserve
    import_path: app.graph:build
    route_prefix: /
    runtime_env: {env_vars: {ANYTHING: "1"}}
    args:
      device: auto
      media: {upload_limit_bytes: 1000, roots: [/videos]}
      part_a: {model: "mine:Part", options: {any_key: 1}}
    deployments:
      - name: PartA
        num_replicas: 2
        user_config: {free: 1}
        logging_config: {log_level: INFO}
      - name: PartB
        autoscaling_config: {min_replicas: 1, max_replicas: 3}
"""


def check(tmp_path: Path, text: str) -> tuple[int, str]:
    """Exit status and all that was printed."""
    file = tmp_path / "serve_config.yaml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["check", str(file)])
    return result.exit_code, result.output.replace(f"{file}", "FILE")


def test_a_good_file_gets_one_line(tmp_path: Path) -> None:
    assert check(tmp_path, GOOD) == (0, "FILE: 18 settings, no problem\n")


def test_our_own_file_is_good_and_has_every_deployment() -> None:
    file = Path(__file__).parents[3] / "serve_config.yaml"
    document = yaml.safe_load(file.read_text())
    assert problems(document) == []
    named = [deployment["name"] for deployment in document["applications"][0]["deployments"]]
    assert tuple(named) == DEPLOYMENTS


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("host:", "hots:", "http_options.hots: unknown key, the nearest known is host"),
        ("http_options:", "http_option:", "http_option: unknown key, the nearest known is"),
        ("  host: 127.0.0.1", "  port: abc", "http_options.port: Input should be a valid integer"),
        ("route_prefix", "rout_prefix", "applications[0].rout_prefix: unknown key"),
        ("{env_vars: {ANY", "{env_var: {ANY", "[0].runtime_env.env_var: unknown key, the nearest"),
        (
            "device",
            "devise",
            "applications[0].args.devise: unknown key, the nearest known is device",
        ),
        ("upload_limit_bytes", "upload_limit", "args.media.upload_limit: unknown key"),
        ("1000", "4 GB", "args.media.upload_limit_bytes: Input should be a valid integer"),
        ("device: auto", "device: gpu", "args.device: Input should be 'auto', 'cuda' or 'cpu'"),
        ("model: ", "modle: ", "args.part_a.model: Field required"),
        ("num_replicas", "num_replica", "num_replica: unknown key, the nearest known is num_repl"),
        (
            "num_replicas: 2",
            "num_replicas: 0",
            "num_replicas: Input should be greater than 0, not 0",
        ),
        ("num_replicas", "max_concurrent_queries", "the nearest known is max_ongoing_requests"),
        ("log_level", "log_levle", "deployments[0].logging_config.log_levle: unknown key"),
        ("min_replicas: 1", "min_replica: 1", "autoscaling_config.min_replica: unknown key"),
        ("min_replicas: 1", "min_replicas: a", "autoscaling_config.min_replicas: Input should be"),
        ("PartB", "PartC", "deployments[1].name: no deployment 'PartC': Ingress, Decoder, CpuDec"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    status, output = check(tmp_path, GOOD.replace(right, wrong))
    assert status == 1
    assert said in output


def test_all_problems_are_listed_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    wrong = GOOD.replace("host:", "hots:").replace("device: auto", "device: gpu")
    status, output = check(tmp_path, wrong.replace("max_replicas", "max_replica"))
    assert status == 1
    assert [line.split(":")[1] for line in output.splitlines()] == ["3", "13", "22"]


def test_ray_actor_options_are_allowed_and_said_to_replace_args(tmp_path: Path) -> None:
    options = "- name: PartB\n        ray_actor_options: {num_cpus: 1}"
    status, output = check(tmp_path, GOOD.replace("- name: PartB", options))
    assert status == 0
    assert "FILE:22: note: applications[0].deployments[1].ray_actor_options: replaces" in output
    wrong = GOOD.replace("- name: PartB", options.replace("num_cpus", "num_cpu"))
    assert "ray_actor_options.num_cpu: unknown key" in check(tmp_path, wrong)[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("applications:\n  - name: [", "line 2, column 12: not YAML"),
        ("a: b: c\n", "line 1, column 5: not YAML: mapping values are not allowed here"),
        ("", "expected keys such as `applications:`, found None"),
        ("- a\n", "expected keys such as `applications:`, found ['a']"),
        ("applications: 3\n", "applications: Input should be a valid list, not 3"),
        ("applications: [3]\n", "applications[0]: Input should be a valid dictionary"),
        ("{}\n", "applications: Field required"),
    ],
)
def test_a_file_that_holds_no_configuration_gets_a_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    status, output = check(tmp_path, text)
    assert status == 1
    assert said in output


def test_a_missing_file_gets_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(tmp_path / "none.yaml")])
    assert (result.exit_code, result.output) == (
        1,
        f"{tmp_path}/none.yaml: No such file or directory\n",
    )
