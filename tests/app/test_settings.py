from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from app.settings import Settings

CONFIG = Path(__file__).parents[2] / "serve_config.yaml"


def written() -> dict:
    [application] = yaml.safe_load(CONFIG.read_text())["applications"]
    return application["args"]


def test_the_file_shows_every_number_with_its_default() -> None:
    shown = Settings.model_validate(written())
    assert shown.model_copy(update={"part_a": None, "part_b": None}) == Settings().model_copy(
        update={"part_a": None, "part_b": None}
    )
    for part in ("part_a", "part_b"):
        ours, default = getattr(shown, part), getattr(Settings(), part)
        assert ours.model_copy(update={"options": {}}) == default
    assert written().keys() == Settings.model_fields.keys()


def test_every_number_of_the_file_has_a_comment_where_it_first_stands() -> None:
    args = CONFIG.read_text().partition("    args:\n")[2]
    named = {}
    for line in args.partition("    # Scale")[0].splitlines():
        key, _, value = line.strip().partition(":")
        if value:
            named.setdefault(key, line)
    assert [line for line in named.values() if "#" not in line] == []


@pytest.mark.parametrize("key", ["stal_seconds", "num_gpu"])
def test_an_unknown_key_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        Settings.model_validate({key: 1})


def test_settings_cannot_be_changed_once_they_are_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().stall_seconds = 1  # type: ignore[misc]
