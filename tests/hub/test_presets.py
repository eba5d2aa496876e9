from longtake.hub.presets import PRESETS


def test_presets_have_names_of_their_own_and_say_what_is_known_of_their_licence() -> None:
    assert [preset.name for preset in PRESETS] == ["lingbot-map-long", "lingbot-map"]
    for preset in PRESETS:
        assert preset.num_bytes == 4 * preset.num_parameters
        assert "no tag seen" in preset.licence
        assert "check" in preset.licence
