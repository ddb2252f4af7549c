from pathlib import Path

import pytest

from xcompress.files import write_json
from xcompress.modeling.st_folder import pooling_of


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({"pooling_mode": ["cls", "mean"]}, "cls+mean"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": True}, "mean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True, "pooling_mode_mean_tokens": False}, "mean_sqrt_len"),
        ({"pooling_mode_lasttoken": True}, "lasttoken"),
        ({"word_embedding_dimension": 384}, "mean"),
    ],
)
def test_pooling_is_read_in_both_notations(config: dict[str, object], pooling: str, tmp_path: Path) -> None:
    assert pooling_of(tmp_path) is None
    modules = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.models.Pooling"}]
    write_json(tmp_path / "modules.json", modules)
    write_json(tmp_path / "1_Pooling" / "config.json", config)
    assert pooling_of(tmp_path) == pooling
