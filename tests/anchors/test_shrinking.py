"""Any configuration made tiny stays consistent."""

from __future__ import annotations

from tower_anchors.shrinking import HEAD_DIM, HEADS, HIDDEN, INNER, LAYERS, shrink


def test_one_name_has_one_size_everywhere() -> None:
    made = shrink(
        {
            "vision_config": {"hidden_size": 1152, "depth": 27, "num_heads": 16, "patch_size": 14},
            "text_config": {
                "hidden_size": 4096,
                "num_hidden_layers": 36,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "intermediate_size": 12288,
                "vocab_size": 151936,
            },
        }
    )
    vision, text = made["vision_config"], made["text_config"]
    assert vision == {"hidden_size": HIDDEN, "depth": LAYERS, "num_heads": HEADS, "patch_size": 14}
    assert text["hidden_size"] == text["num_attention_heads"] * text["head_dim"] == HIDDEN
    assert text["num_attention_heads"] == text["num_key_value_heads"] == HEADS
    assert (text["head_dim"], text["intermediate_size"]) == (HEAD_DIM, INNER)
    assert text["num_hidden_layers"] == LAYERS and text["vocab_size"] == 128


def test_lists_are_cut_with_the_layers_and_indices_point_to_layers_there_are() -> None:
    made = shrink(
        {
            "num_hidden_layers": 4,
            "layer_types": ["full", "sliding", "full", "sliding"],
            "fullatt_block_indexes": [1, 3],
            "vision_feature_layer": -2,
            "image_token_ids": [7, 8, 9],
        }
    )
    assert made["layer_types"] == ["full", "sliding"]
    assert made["fullatt_block_indexes"] == [1]
    assert made["vision_feature_layer"] == -2
    assert made["image_token_ids"] == [7, 8, 9]


def test_what_is_small_no_size_or_a_switch_stays() -> None:
    config = {
        "depth": 1,
        "hidden_size": 0,
        "use_heads": True,
        "num_channels": 3,
        "hidden_act": "gelu",
        "id2label": {"0": "a"},
        "rope_theta": 10000.0,
        "image_size": 32,
        "projection_dim": None,
    }
    assert shrink(config) == config
